"""From a name to a Bert: what a folder gives back, and what cannot be had in one line."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants

import bertkit
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.inference.loading import choose_device, choose_dtype, load, named_dtype
from bertkit.model import BertModel
from bertkit.model.formats.sentence_transformers import SentenceStyle
from bertkit.tasks.registry import StoredTask
from bertkit.tokenizer import CasingWarning, Tokenizer

TEXTS = ["The dog sleeps in the [MASK].", "", "Ünïcödé 中文", "unbelievable milk"]


@pytest.fixture(scope="module")
def saved(bert: Bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert.save(tmp_path_factory.mktemp("saved") / "model")


def refusal(source: str | Path, **options: Any) -> str:
    with pytest.raises(BertkitError) as caught:
        load(source, **options)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("layout", ["safetensors", "sharded", "bin", "tf1"])
def test_what_was_saved_gives_the_same_numbers(layout: str, bert: Bert, tmp_path: Path) -> None:
    loaded = bertkit.load(bert.save(tmp_path / "model", layout=layout), device="cpu")
    assert loaded.config == bert.config
    assert loaded.tokenizer.fingerprint == bert.tokenizer.fingerprint
    assert np.array_equal(loaded.embed(TEXTS), bert.embed(TEXTS))
    assert loaded.fill_mask(TEXTS[0]) == bert.fill_mask(TEXTS[0])
    assert loaded.next_sentence(TEXTS[0], TEXTS[3]) == bert.next_sentence(TEXTS[0], TEXTS[3])
    assert loaded.report is not None
    assert not loaded.model.training


def test_the_names_that_a_checkpoint_goes_by(bert: Bert, saved: Path, tmp_path: Path) -> None:
    bert.save(tmp_path, layout="tf1")
    sources: list[str | Path] = [
        saved,
        str(saved),
        f"{saved}/",
        saved / "model.safetensors",
        tmp_path,
        tmp_path / "bert_model.ckpt",
    ]
    for source in [*sources, str(tmp_path / "bert_model.ckpt.index")]:
        assert np.array_equal(load(source, device="cpu").embed("milk"), bert.embed("milk"))


def test_half_precision_is_widened_unless_asked_for(bert: Bert, tmp_path: Path) -> None:
    bert.save(tmp_path, dtype=torch.float16)
    for dtype, expected in ((None, torch.float32), ("bfloat16", torch.bfloat16), (torch.float16, torch.float16)):
        loaded = load(tmp_path, device="cpu", dtype=dtype)
        assert {parameter.dtype for parameter in loaded.model.parameters()} == {expected}
        assert np.abs(loaded.embed(TEXTS) - bert.embed(TEXTS)).max() < 0.1


def test_other_heads(saved: Path) -> None:
    loaded = load(saved, device="cpu", heads=["pooler", "classifier"], labels=["bad", "good"])
    assert loaded.config.heads == ("pooler", "classifier")
    assert loaded.report is not None
    assert loaded.report.new == ("classifier (2 labels)",)
    assert "unknown head 'clasifier'" in refusal(saved, heads=["clasifier"])


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "CPU ", "0"])
def test_devices_that_have_no_name(name: str, saved: Path) -> None:
    assert f"no device is named {name!r}; use cpu, cuda" in refusal(saved, device=name)


@pytest.mark.parametrize("name", ["mps", "xpu", "meta", "hpu", "vulkan"])
def test_devices_that_are_not_here(name: str, saved: Path) -> None:
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("it is here")
    assert name in refusal(saved, device=name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_here(saved: Path) -> None:
    for name in ("cuda", "cuda:1"):
        assert f"no device {name!r} here" in refusal(saved, device=name)
    assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("name", ["float99", "int8", "", "torch.float32", "half"])
def test_dtypes_that_have_no_name(name: str, saved: Path) -> None:
    assert f"unknown dtype {name!r}; choose one of float32, float16, bfloat16" in refusal(saved, dtype=name)


def test_dtypes_of_devices() -> None:
    assert choose_dtype(torch.device("cpu"), None) == torch.float32
    assert choose_dtype(torch.device("cpu"), "bfloat16") == torch.bfloat16
    assert choose_dtype(torch.device("cuda"), torch.float64) == torch.float64
    assert [named_dtype(name) for name in ("float32", "float16")] == [torch.float32, torch.float16]


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert str(tmp_path / "absent") in refusal(tmp_path / "absent")
    assert "./absent" in refusal("./absent")


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_a_hub_name_without_network(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert f"no folder {name} here, and the hub could not be reached" in refusal(name)


def test_a_tokenizer_larger_than_the_model(bert: Bert, tmp_path: Path) -> None:
    size = bert.tokenizer.vocab_size
    said = f"the tokenizer has {size} tokens but the model has rows for {size - 1}"
    small = BertModel(bert.config.with_heads(["pooler"], vocab_size=size - 1))
    with pytest.raises(BertkitError, match=said):
        Bert(small, bert.tokenizer)
    Bert(small, Tokenizer.from_vocab(bert.tokenizer.tokens[:-1], lowercase=True)).save(tmp_path)
    bert.tokenizer.save(tmp_path)
    assert said in refusal(tmp_path)


def test_a_tokenizer_smaller_than_the_model_is_fine(bert: Bert, tmp_path: Path) -> None:
    padded = Bert(BertModel(bert.config.with_heads(["pooler"], vocab_size=2048)), bert.tokenizer)
    loaded = load(padded.save(tmp_path), device="cpu")
    assert loaded.config.vocab_size == 2048
    assert np.array_equal(loaded.embed("milk"), padded.embed("milk"))


def test_the_saved_tokenizer_knows_where_the_model_ends(bert: Bert, tmp_path: Path) -> None:
    short = Bert(BertModel(bert.config.with_heads(["pooler"], max_positions=40)), bert.tokenizer)
    config = json.loads((short.save(tmp_path) / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == 40
    assert load(tmp_path, device="cpu").tokenizer.max_length == 40


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "config.json"])
def test_damaged_files_are_named(name: str, bert: Bert, tmp_path: Path) -> None:
    path = bert.save(tmp_path / "model") / name
    path.write_bytes(b"\xff\xfe" + path.read_bytes())
    assert name in refusal(path.parent)


def test_casing_can_be_corrected(saved: Path, tmp_path: Path) -> None:
    assert bertkit.load(saved, device="cpu").tokenizer.lowercase
    with pytest.warns(CasingWarning):
        assert not bertkit.load(saved, device="cpu", lowercase=False).tokenizer.lowercase
    with pytest.warns(CasingWarning):
        bertkit.convert(saved, tmp_path / "cased", lowercase=False)
    with pytest.warns(CasingWarning):
        assert not bertkit.load(tmp_path / "cased", device="cpu").tokenizer.lowercase


def test_how_sentence_vectors_are_pooled_is_carried_along(saved: Path, tmp_path: Path) -> None:
    source = shutil.copytree(saved, tmp_path / "source")
    (source / "modules.json").write_text("[]")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    bertkit.convert(source, tmp_path / "target")
    for name in ("modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "target" / name).read_bytes() == (source / name).read_bytes()
    assert load(tmp_path / "target", device="cpu").embed_options().pooling == "cls"
    bertkit.convert(source, source, dtype="float16")  # in place
    assert load(source, device="cpu").embed_options().pooling == "cls"


def test_a_model_of_one_segment_takes_no_pairs() -> None:
    bert = untrained(0, num_segments=1)
    assert bert.embed("one text").shape == (128,)
    for ask in (bert.next_sentence, bert.encode, bert.attention):
        with pytest.raises(BertkitError, match="no pairs"):
            ask("one", "two")


def test_every_cut_is_told_not_only_the_first(saved: Path) -> None:
    code = f"import bertkit; b = bertkit.load({str(saved)!r}, device='cpu')\nfor _ in range(3): b.embed('dog ' * 600)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("LongTextWarning") == 3


def test_what_stood_in_the_folder_before_says_nothing_of_the_new_model(tmp_path: Path) -> None:
    bert = untrained(0, num_layers=1)
    Bert(bert.model, bert.tokenizer, style=SentenceStyle("cls", True, 32)).save(tmp_path)
    (tmp_path / "task.json").write_text(json.dumps(asdict(StoredTask("answering", max_length=32))))
    bert.save(tmp_path)
    found = load(tmp_path, device="cpu")
    assert found.style is None
    assert found.stored == StoredTask()
    assert (found.embed("A dog.") == bert.embed("A dog.")).all()


@pytest.mark.parametrize("source", ["~nobody-of-this-name/model", "a sentence and no folder " * 20])
def test_what_can_be_no_path_is_one_line(source: str) -> None:
    with pytest.raises(BertkitError, match="no file or folder"):
        load(source)
