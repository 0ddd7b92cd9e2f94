"""Simple models beside BERT, so that people see whether BERT was worth it. No torch here."""

from bertkit.tasks.baseline.answers import AnswerBaseline
from bertkit.tasks.baseline.texts import TextBaseline
from bertkit.tasks.baseline.words import WordBaseline

__all__ = ["AnswerBaseline", "TextBaseline", "WordBaseline"]
