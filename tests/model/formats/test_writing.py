"""Saving: nothing half-written, nothing hidden, nothing that cannot be read back."""

import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model.formats import load_model, save_model, writing
from tests.model.formats.peers import assert_one_line, assert_same, make_model


@pytest.mark.parametrize("layout", ["safetensors", "sharded", "bin", "tf1"])
def test_a_failed_save_leaves_the_old_model(layout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_model("pooler")
    save_model(old, tmp_path, layout=layout)
    before = sorted(tmp_path.iterdir())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_write_json", fail)
    with pytest.raises(BertkitError) as caught:
        save_model(make_model("pooler", seed=6), tmp_path, layout=layout)
    assert_one_line(caught.value, str(tmp_path), "No space left")
    assert sorted(tmp_path.iterdir()) == before
    assert_same(load_model(tmp_path)[0], old)


def test_saving_again_replaces(tmp_path: Path) -> None:
    save_model(make_model("pooler"), tmp_path, layout="sharded", max_shard_bytes=10_000)
    model = make_model("pooler", seed=6)
    files = save_model(model, tmp_path, layout="sharded", max_shard_bytes=50_000)
    assert set(tmp_path.iterdir()) == set(files)
    assert_same(load_model(tmp_path)[0], model)


def test_two_layouts_in_one_folder_are_refused(tmp_path: Path) -> None:
    save_model(make_model("pooler"), tmp_path)
    with pytest.raises(BertkitError) as caught:
        save_model(make_model("pooler"), tmp_path, layout="bin")
    assert_one_line(caught.value, str(tmp_path), "model.safetensors")


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    files = save_model(make_model("pooler"), tmp_path / "model")
    (tmp_path / "plain").write_text("")
    assert {path.stat().st_mode for path in files} == {(tmp_path / "plain").stat().st_mode}


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    cases: list[tuple[Any, Any, str]] = [
        (make_model("pooler", "classifier", "tagger"), "safetensors", "classifier"),
        (make_model("mlm", tied_decoder=False), "tf1", "untied"),
        (make_model("mlm"), "keras", "keras"),
    ]
    for model, layout, word in cases:
        with pytest.raises(BertkitError) as caught:
            save_model(model, tmp_path / word, layout=layout)
        assert_one_line(caught.value, word)
    (tmp_path / "file").write_text("")
    with pytest.raises(BertkitError) as caught:
        save_model(make_model("mlm"), tmp_path / "file")
    assert_one_line(caught.value, "file")


def test_the_model_itself_is_left_alone(tmp_path: Path) -> None:
    model = make_model("pooler", "mlm").train()
    save_model(model, tmp_path, dtype=torch.float16)
    assert model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("layout", ["safetensors", "sharded", "bin", "tf1", "int8"])
def test_a_full_disk_is_one_line(layout: Any, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(BertkitError) as caught:
            save_model(make_model("pooler"), tmp_path, layout=layout)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_one_line(caught.value, str(tmp_path), "cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_shards_without_an_index_are_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "model-00001-of-00002.safetensors").write_text("being fetched")
    save_model(make_model("pooler"), tmp_path)
    assert (tmp_path / "model-00001-of-00002.safetensors").exists()
