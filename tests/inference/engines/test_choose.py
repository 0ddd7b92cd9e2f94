"""The engines agree: the same vectors, predictions and fillings by PyTorch and by ONNX Runtime, in any batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertkit
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.engines import choose as engines
from bertkit.inference.engines.choose import use_engine
from bertkit.inference.engines.export import export_onnx
from bertkit.inference.engines.session import SessionEncoder, num_threads
from bertkit.inference.fresh import untrained
from bertkit.model.packed import pack

TEXTS = ["The dog sleeps.", "A cat.", "Penguins cannot fly, but they swim well in cold water.", "", "The dog sleeps."]


@pytest.fixture(scope="module")
def plain() -> Bert:
    return untrained(0, num_layers=2, initializer_range=0.2)


@pytest.fixture(scope="module")
def fast() -> Bert:
    return use_engine(untrained(0, num_layers=2, initializer_range=0.2), "onnx", threads=1)


@pytest.fixture(scope="module")
def narrow() -> Bert:
    return use_engine(untrained(0, num_layers=2, initializer_range=0.2), "int8", threads=1)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("layer", [-1, 0, "mean-all"])
def test_vectors_agree(plain: Bert, fast: Bert, pooling: str, layer: Any) -> None:
    options = {"pooling": pooling, "layer": layer}
    np.testing.assert_allclose(fast.embed(TEXTS, **options), plain.embed(TEXTS, **options), atol=2e-5)


def test_long_texts_agree(plain: Bert, fast: Bert) -> None:
    long = " ".join(TEXTS * 60)
    with pytest.warns(bertkit.LongTextWarning):
        truth = plain.embed([long, "A cat."])
    with pytest.warns(bertkit.LongTextWarning):
        np.testing.assert_allclose(fast.embed([long, "A cat."]), truth, atol=2e-5)


def test_fillings_and_next_sentences_agree(plain: Bert, fast: Bert) -> None:
    texts = ["The [MASK] sleeps on the [MASK].", "A [MASK]."]
    for ours, theirs in zip(fast.fill_mask(texts), plain.fill_mask(texts), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert [c.token for c in one.candidates] == [c.token for c in other.candidates]
    pairs = [("The dog sleeps.", "A cat."), ("A cat.", "Penguins swim.")]
    np.testing.assert_allclose(fast.next_sentences(pairs), plain.next_sentences(pairs), atol=1e-5)


def test_eight_bits_are_near(plain: Bert, narrow: Bert) -> None:
    truth, found = plain.embed(TEXTS, normalize=True), narrow.embed(TEXTS, normalize=True)
    assert (truth * found).sum(axis=1).min() > 0.99
    assert narrow.engine == "int8"


def test_whatever_shares_the_batch_changes_nothing(narrow: Bert) -> None:
    together = narrow.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(narrow.embed(text), vector, atol=1e-5)


def test_threads_that_share_a_batch_change_nothing(narrow: Bert) -> None:
    """Runs of different lengths at once give, bit for bit, what one after another gives, for vectors and for rows."""
    several = use_engine(untrained(0, num_layers=2, initializer_range=0.2), "int8", threads=2)
    texts = [" ".join(TEXTS[2].split()[: n % 9]) for n in range(40)]
    np.testing.assert_array_equal(several.embed(texts), narrow.embed(texts))
    batch = pack([[2, *range(5, 5 + n % 7), 3] for n in range(20)])
    with torch.inference_mode():
        assert torch.equal(several.model.encoder(batch), narrow.model.encoder(batch))


def test_rows_in_any_order(plain: Bert, fast: Bert) -> None:
    batch = pack([[2, 5, 6, 3], [2, 3], [2, 7, 8, 3], [2, 9, 3]])
    rows = torch.tensor([12, 0, 5, 4, 7, 0])
    with torch.inference_mode():
        found, truth = fast.model.encoder(batch, rows=rows), plain.model.encoder(batch, rows=rows)
    torch.testing.assert_close(found, truth, atol=2e-5, rtol=0)


def test_training_and_gradients_stay_pytorchs(fast: Bert) -> None:
    batch = pack([[2, 5, 6, 3]])
    assert fast.model.encoder(batch).requires_grad
    assert isinstance(fast.model.encoder, SessionEncoder)
    assert set(fast.model.encoder.state_dict()) == set(untrained(0, num_layers=2).model.encoder.state_dict())


def test_an_exported_folder_is_used_as_it_was_exported(tmp_path: Path, plain: Bert) -> None:
    folder = plain.save(tmp_path / "m")
    assert bertkit.load(folder, device="cpu").engine == "torch"
    report = export_onnx(plain, folder)
    assert report.difference < 1e-4
    assert bertkit.load(folder, device="cpu").engine == "onnx"
    report = export_onnx(plain, folder, int8=True)
    assert report.cosines["lowest"] > 0.99
    loaded = bertkit.load(folder, device="cpu")
    assert loaded.engine == "int8"
    assert (loaded.embed(TEXTS, normalize=True) * plain.embed(TEXTS, normalize=True)).sum(1).min() > 0.99
    assert bertkit.load(folder, device="cpu", engine="torch").engine == "torch"


def test_threads_follow_pytorch() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert num_threads() == 1
    torch.set_num_threads(before)


def test_bad_choices_are_one_line(plain: Bert, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="unknown engine 'fast'; choose one of auto, torch, onnx, int8"):
        use_engine(plain, "fast")
    half = untrained(0, num_layers=1)
    half.model.to(torch.bfloat16)
    with pytest.raises(BertkitError, match="engine int8 is for CPUs and float32 weights"):
        use_engine(half, "int8")
    with pytest.raises(BertkitError, match="engine float8 is for bfloat16 weights on an NVIDIA GPU"):
        use_engine(half, "float8")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").touch()
    monkeypatch.setattr(engines, "has_runtime", lambda: False)
    assert use_engine(plain, "auto", folder=tmp_path).engine == "torch"
