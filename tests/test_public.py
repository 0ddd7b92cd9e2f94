"""The names that people type are pinned."""

import pytest

import bertkit


def test_public_names() -> None:
    assert bertkit.__all__ == [
        "Bert",
        "BertConfig",
        "BertModel",
        "BertkitError",
        "LongTextError",
        "LongTextWarning",
        "Tokenizer",
        "convert",
        "finetune",
        "load",
        "preset",
        "tune_vectors",
    ]
    for name in bertkit.__all__:
        assert getattr(bertkit, name) is not None
    assert set(bertkit.__all__) <= set(dir(bertkit))


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="finetuen"):
        _ = bertkit.finetuen
