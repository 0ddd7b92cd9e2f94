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
from bertkit.inference.engines.choose import sample_factors, use_engine
from bertkit.inference.engines.export import export_onnx
from bertkit.inference.engines.peers import peers_of
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


def test_channels_of_eight_bit_products_are_evened_out() -> None:
    bert = untrained(0, num_layers=2)
    with torch.no_grad():
        bert.model.encoder.embeddings.norm.weight[3] = 50.0  # of the first layer's inputs
    factors = sample_factors(bert)
    assert factors.keys() == {"0.qkv", "0.up", "1.qkv", "1.up"}
    assert all(factor.shape == (bert.config.hidden_size,) and (factor > 0).all() for factor in factors.values())
    assert factors["0.qkv"].argmax() == 3


def test_an_export_of_other_weights_is_not_used(tmp_path: Path) -> None:
    first, second = untrained(0, num_layers=1), untrained(1, num_layers=1)
    folder = first.save(tmp_path / "m")
    export_onnx(first, folder, int8=True)
    second.save(folder)
    with pytest.warns(UserWarning, match="is of other weights and is not used; export it again"):
        loaded = bertkit.load(folder, device="cpu")
    assert loaded.engine == "torch"
    asked = bertkit.load(folder, device="cpu", engine="int8")  # measured anew, as without an export
    np.testing.assert_array_equal(asked.embed(TEXTS), use_engine(second, "int8").embed(TEXTS))


def test_the_last_export_counts(tmp_path: Path) -> None:
    bert = untrained(0, num_layers=1)
    folder = bert.save(tmp_path / "m")
    export_onnx(bert, folder, int8=True)
    export_onnx(bert, folder)
    assert [path.name for path in (folder / "onnx").iterdir()] == ["model.onnx"]
    assert bertkit.load(folder, device="cpu").engine == "onnx"


def test_a_home_folder_is_used_as_it_was_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_onnx(bert := untrained(0, num_layers=1), bert.save(tmp_path / "m"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert bertkit.load("~/m", device="cpu").engine == "onnx"


def test_a_failed_export_leaves_the_one_before(tmp_path: Path) -> None:
    bert = untrained(0, num_layers=1)
    export_onnx(bert, tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "onnx").iterdir()}
    with pytest.raises(BertkitError, match="no task's head"):
        export_onnx(bert, tmp_path, int8=True, evaluate=tmp_path / "dev.csv")
    with torch.no_grad():
        bert.model.encoder.embeddings.norm.weight[0] = float("nan")
    with pytest.raises(BertkitError, match="differs from PyTorch by nan"):
        export_onnx(bert, tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "onnx").iterdir()} == before


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    bert = untrained(0, num_layers=1)
    (tmp_path / "file").touch()
    with pytest.raises(BertkitError, match="file/onnx cannot be made"):
        export_onnx(bert, tmp_path / "file")
    bert.model.to(torch.bfloat16)
    with pytest.raises(BertkitError, match="dtype='float32'"):
        export_onnx(bert, tmp_path)


def test_pytorch_takes_over_again() -> None:
    bert = untrained(0, num_layers=1)
    encoder, truth = bert.model.encoder, bert.embed(TEXTS)
    use_engine(bert, "int8", threads=1)
    assert use_engine(bert, "torch").engine == "torch"
    assert bert.model.encoder is encoder
    np.testing.assert_array_equal(bert.embed(TEXTS), truth)


def test_peers_that_cannot_load_a_folder_are_left_out(tmp_path: Path) -> None:
    untrained(0, num_layers=1).save(tmp_path, layout="int8")
    found, notes = peers_of(tmp_path, 64, 1)
    assert found == {}
    assert "transformers does not load" in notes[0]
    assert "\n" not in notes[0]


def test_weights_that_change_under_an_engine_count() -> None:
    bert = use_engine(untrained(0, num_layers=1, initializer_range=0.2), "int8", threads=1)
    encoder, before = bert.model.encoder, bert.embed(TEXTS)
    assert isinstance(encoder, SessionEncoder)
    bert.model.to("cpu").train().eval()
    assert encoder.is_current
    optimizer = torch.optim.SGD(bert.model.parameters(), lr=0.1)
    encoder(pack([[2, 5, 6, 3]]))[0].pow(3).sum().backward()
    optimizer.step()
    after = bert.embed(TEXTS)
    assert abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(bert.encode(TEXTS[0]).vectors.mean(0), bert.embed(TEXTS[0]))
    with torch.inference_mode():
        batch = pack([[2, 5, 6, 3], [2, 3]])
        assert torch.equal(encoder(batch), encoder.all_layers(batch)[-1])
    np.testing.assert_array_equal(after, use_engine(bert, "torch").embed(TEXTS))


def test_a_left_to_right_model_is_pytorchs_whatever_lies_beside_it(tmp_path: Path) -> None:
    folder = untrained(0, num_layers=1, is_causal=True).save(tmp_path / "m")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").touch()
    assert bertkit.load(folder, device="cpu").engine == "torch"
