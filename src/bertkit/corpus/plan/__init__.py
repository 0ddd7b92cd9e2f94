"""An epoch's plan: which sentences form which pair, from their lengths alone."""
