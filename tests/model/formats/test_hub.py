"""From what a person types to a path; the hub itself is never asked."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import RepositoryNotFoundError

from bertkit.errors import BertkitError
from bertkit.model.formats import hub, load_model, resolve, save_model
from bertkit.model.formats.sentence_transformers import SENTENCE_FILES
from tests.model.formats.peers import assert_one_line, make_model


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for fetched models, and no one at the hub's address."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "cache"


def refusal(source: str, *parts: str) -> None:
    with pytest.raises(BertkitError) as caught:
        resolve(source)
    assert_one_line(caught.value, source, *parts)


def test_what_is_here_stays_as_it_is(tmp_path: Path) -> None:
    save_model(make_model("pooler"), tmp_path / "a", layout="tf1")
    for name in ("a", "a/bert_model.ckpt", "a/bert_model.ckpt.index"):
        assert resolve(str(tmp_path / name)) == tmp_path / name
        assert load_model(resolve(str(tmp_path / name)))[1].format == "TensorFlow checkpoint"


@pytest.mark.parametrize("source", ["./absent", "/absent/model", "a/b/c", "~/absent-model", "model.ckpt/", "", "über"])
def test_no_name_of_the_hub(source: str) -> None:
    refusal(source, "no file or folder")


@pytest.mark.parametrize("source", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_no_network(source: str) -> None:
    refusal(source, f"no folder {source} here", "the hub could not be reached")


@pytest.fixture
def silent_server() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_network_does_not_hang(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", silent_server)
    monkeypatch.setattr(hub, "TIMEOUT", 0.3)
    start = time.perf_counter()
    refusal("org/name", "could not be reached")
    assert time.perf_counter() - start < 3


def pretend(monkeypatch: pytest.MonkeyPatch, files: list[str]) -> dict[str, Any]:
    """A hub with these files; what is then asked of it is in the dict."""
    asked: dict[str, Any] = {}

    def model_info(_: object, name: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(sha="0" * 40, siblings=[SimpleNamespace(rfilename=file) for file in files])

    def snapshot_download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return "/fetched"

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


@pytest.mark.parametrize(
    ("files", "fetched", "left"),
    [
        (["model.safetensors", "pytorch_model.bin", "tf_model.h5"], ["model.safetensors"], ["pytorch_model.bin"]),
        (["pytorch_model.bin", "flax_model.msgpack"], ["pytorch_model.bin"], ["flax_model.msgpack"]),
        (["model.safetensors.index.json"], ["model.safetensors.index.json", "model-*.safetensors"], []),
        (["bert_model.ckpt.index"], ["*.ckpt.index", "*.ckpt.data-*"], ["model.safetensors"]),
    ],
)
def test_only_what_is_needed_is_fetched(
    files: list[str], fetched: list[str], left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pretend(monkeypatch, files)
    assert resolve("org/name") == Path("/fetched")
    assert {"config.json", "vocab.txt", "tokenizer.json", *fetched} <= set(asked["allow_patterns"])
    assert not set(left) & set(asked["allow_patterns"])


def test_no_weights_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, ["README.md", "tf_model.h5"])
    refusal("org/name", "no weights")


def test_no_such_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def model_info(*_: object, **__: object) -> None:
        raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    refusal("org/name", "no public model of that name")


def test_what_was_fetched_before_needs_no_network(no_cache: Path) -> None:
    repository, commit = no_cache / "models--org--name", "0123456789abcdef0123456789abcdef01234567"
    save_model(make_model("pooler"), repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert load_model(resolve("org/name"))[0].config.heads == ("pooler",)
    (repository / "snapshots" / commit / "model.safetensors").unlink()
    refusal("org/name", "could not be reached")


def test_what_says_how_sentence_vectors_are_made_is_fetched() -> None:
    assert {*SENTENCE_FILES} <= {*hub._patterns("a/b", ["model.safetensors"])}
