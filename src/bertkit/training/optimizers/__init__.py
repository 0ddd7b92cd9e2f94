"""AdamW, LAMB and Muon over a model's parameters."""
