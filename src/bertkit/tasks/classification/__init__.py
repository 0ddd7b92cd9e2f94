"""Classification and regression of one text or two."""
