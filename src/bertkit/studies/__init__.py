"""Measuring checkpoints: the suite of `bertkit evaluate --suite`, made of the product's own data, loop and tasks."""
