"""Text becomes training examples: sentence pairs and masks, drawn anew every epoch."""
