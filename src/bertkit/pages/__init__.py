"""Figures in, one self-contained HTML page out."""

from bertkit.pages.attention import AttentionData, attention_page
from bertkit.pages.demo import CurvePoint, DemoReport, FilledText, Guess, PairExample, demo_page
from bertkit.pages.explain import explain_page
from bertkit.pages.frame import save
from bertkit.pages.words import words_page

__all__ = [
    "AttentionData",
    "CurvePoint",
    "DemoReport",
    "FilledText",
    "Guess",
    "PairExample",
    "attention_page",
    "demo_page",
    "explain_page",
    "save",
    "words_page",
]
