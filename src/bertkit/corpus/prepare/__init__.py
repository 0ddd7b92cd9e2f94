"""Text to a token store: cleaned, de-duplicated, tokenized once, by all cores."""
