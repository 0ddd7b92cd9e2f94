"""Tagging (named entities): words in, words out."""
