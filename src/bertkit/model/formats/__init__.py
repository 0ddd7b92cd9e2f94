"""Checkpoints: Hugging Face's folders and Google's TensorFlow files, read into a BertModel and written from one."""

from bertkit.model.formats.hub import resolve
from bertkit.model.formats.reading import load_model
from bertkit.model.formats.report import LoadReport
from bertkit.model.formats.writing import Layout, save_model

__all__ = ["Layout", "LoadReport", "load_model", "resolve", "save_model"]
