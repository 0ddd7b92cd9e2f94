"""Files of text in, lines and documents out. Knows nothing of tokens or torch."""
