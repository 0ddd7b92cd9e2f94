"""Sentence vectors tuned on pairs."""
