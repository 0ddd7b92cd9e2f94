"""Figures in, one self-contained HTML page out."""
