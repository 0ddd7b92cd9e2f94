"""Is this fit to train with? Findings, each with its figure and what to do."""
