"""Frozen features of any layers, for texts and words, to files."""
