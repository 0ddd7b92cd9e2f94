"""Damaged, foreign or hostile files: one line that names the file, and nothing is executed."""

import json
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit.errors import BertkitError
from bertkit.model.formats import load_model, save_model
from tests.model.formats.peers import assert_one_line, make_model

SAFETENSORS, BIN = "model.safetensors", "pytorch_model.bin"


def refusal(source: Path, *parts: str, **options: Any) -> None:
    with pytest.raises(BertkitError) as caught:
        load_model(source, **options)
    assert_one_line(caught.value, *parts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(make_model("pooler", "mlm", "nsp"), tmp_path)
    return tmp_path


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    save_model(make_model("pooler", "mlm", "nsp"), tmp_path, layout="bin")
    return tmp_path


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors in place by a function."""
    tensors = load_file(folder / SAFETENSORS)
    change(tensors)
    save_file(tensors, folder / SAFETENSORS, metadata={"format": "pt"})


@pytest.mark.parametrize("size", [0, 4, 100, 5_000, -1])
def test_truncated_safetensors(folder: Path, size: int) -> None:
    path = folder / SAFETENSORS
    path.write_bytes(path.read_bytes()[:size])
    refusal(folder, SAFETENSORS)


def test_corrupt_safetensors_header(folder: Path) -> None:
    path = folder / SAFETENSORS
    data = bytearray(path.read_bytes())
    data[20] ^= 0xFF
    path.write_bytes(data)
    refusal(folder, SAFETENSORS)
    path.write_bytes(b"\xff" * 8 + data[8:])
    refusal(folder, SAFETENSORS)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("size", [0, 3, 60, 3_000, -2_000, -1])
def test_truncated_bin(bin_folder: Path, legacy: bool, size: int) -> None:
    path = bin_folder / BIN
    if legacy:
        torch.save(torch.load(path), path, _use_new_zipfile_serialization=False)
    load_model(bin_folder)
    path.write_bytes(path.read_bytes()[:size])
    refusal(bin_folder, BIN)


def test_flipped_byte_in_bin(bin_folder: Path) -> None:
    path = bin_folder / BIN
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    refusal(bin_folder, BIN, "checksum")


def test_bin_without_checksums(bin_folder: Path) -> None:
    tensors = torch.load(bin_folder / BIN)
    try:
        torch.serialization.set_crc32_options(False)
        torch.save(tensors, bin_folder / BIN)
    finally:
        torch.serialization.set_crc32_options(True)
    load_model(bin_folder)


class Hostile:
    """Unpickled without care, this makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.target),)


class HostileCall(Hostile):
    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("hostile", [Hostile, HostileCall])
@pytest.mark.parametrize("form", ["zip", "legacy", "plain pickle"])
def test_a_pickle_that_wants_to_run_code_does_not(bin_folder: Path, form: str, hostile: type[Hostile]) -> None:
    path, target = bin_folder / BIN, bin_folder / "executed"
    content = {"bert.embeddings.word_embeddings.weight": hostile(target)}
    if form == "plain pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(BertkitError) as caught:
        load_model(bin_folder)
    assert not target.exists()
    assert_one_line(caught.value, BIN, "nothing was run")
    # It is a real danger: the unguarded way runs it.
    if form == "plain pickle":
        pickle.loads(path.read_bytes())
        assert target.exists()


def test_bin_of_something_else(bin_folder: Path) -> None:
    torch.save([torch.zeros(3)], bin_folder / BIN)
    refusal(bin_folder, BIN, "list")
    torch.save({"epoch": 3, "state_dict": {"a": torch.zeros(3)}}, bin_folder / BIN)
    refusal(bin_folder, BIN, "epoch, state_dict")
    with zipfile.ZipFile(bin_folder / BIN, "w") as archive:
        archive.writestr("readme", "hello")
    refusal(bin_folder, BIN)
    (bin_folder / BIN).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    refusal(bin_folder, BIN, "git lfs pull")


def test_wrong_shape(folder: Path) -> None:
    name = "bert.encoder.layer.1.attention.self.key.weight"
    rewrite(folder, lambda tensors: tensors.update({name: torch.zeros(32, 31)}))
    refusal(folder, SAFETENSORS, name, "[32, 31]", "[32, 32]")


def test_vocabulary_of_another_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    refusal(folder, SAFETENSORS, "word_embeddings", "[90, 32]", "[100, 32]")


def test_missing_encoder_tensors(folder: Path) -> None:
    rewrite(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if "layer.0.attention" in name])
    refusal(folder, SAFETENSORS, "bert.encoder.layer.0.attention.self.query.weight", "7 more")


def test_missing_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**9}))
    refusal(folder, SAFETENSORS, "2 layers", "config.json", "1000000000")


def test_incomplete_head(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop("cls.predictions.transform.dense.bias"))
    refusal(folder, SAFETENSORS, "mlm head", "cls.predictions.transform.dense.bias")
    assert load_model(folder, heads=["pooler"])[0].config.heads == ("pooler",)


def test_one_tensor_in_two_spellings(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"bert.embeddings.LayerNorm.gamma": torch.zeros(32)}))
    refusal(folder, SAFETENSORS, "bert.embeddings.LayerNorm.weight", "twice")


def test_tensors_of_another_model(folder: Path) -> None:
    save_file({"roberta.embeddings.weight": torch.zeros(2)}, folder / SAFETENSORS)
    refusal(folder, SAFETENSORS, "no BERT encoder", "roberta.embeddings.weight")


def test_integers_are_no_weights(folder: Path) -> None:
    name = "bert.embeddings.LayerNorm.bias"
    rewrite(folder, lambda tensors: tensors.update({name: torch.zeros(32, dtype=torch.int64)}))
    refusal(folder, SAFETENSORS, name, "int64")


def test_values_that_are_not_finite_are_noted(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors["bert.pooler.dense.bias"].fill_(float("nan")))
    report = load_model(folder)[1]
    assert report.broken == ("bert.pooler.dense.bias",)
    assert "NaN or infinite values in: bert.pooler.dense.bias" in report.lines()


def test_values_that_half_precision_cannot_hold_are_refused(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors["bert.pooler.dense.bias"].fill_(70_000.0))
    with pytest.raises(BertkitError) as caught:
        load_model(folder, dtype=torch.float16)
    assert_one_line(caught.value, "model.safetensors", "too large for float16; use bfloat16")
    assert load_model(folder, dtype=torch.bfloat16)[1].broken == ()


def test_a_config_of_another_width_is_no_factorised_embedding(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 48}))
    with pytest.raises(BertkitError) as caught:
        load_model(folder)
    assert_one_line(caught.value, "model.safetensors", "but config.json makes it")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_model(make_model("pooler"), tmp_path, layout="sharded", max_shard_bytes=40_000)
    return tmp_path


def shards(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("model-*.safetensors"))
    assert len(paths) > 1
    return paths


def test_missing_or_truncated_shard(sharded: Path) -> None:
    path = shards(sharded)[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    refusal(sharded, path.name)
    path.unlink()
    refusal(sharded, path.name, "missing")


@pytest.mark.parametrize("fault", ["doubled", "extra", "moved"])
def test_shards_that_disagree_with_their_index(sharded: Path, fault: str) -> None:
    first, second = shards(sharded)[:2]
    if fault == "extra":
        save_file(load_file(second) | {"stranger": torch.zeros(1)}, second, metadata={"format": "pt"})
        refusal(sharded, second.name, "stranger")
    elif fault == "doubled":
        name, tensor = next(iter(load_file(first).items()))
        save_file(load_file(second) | {name: tensor}, second, metadata={"format": "pt"})
        refusal(sharded, second.name, name)
    else:
        tensors = load_file(second)
        name = next(iter(tensors))
        save_file({key: tensor for key, tensor in tensors.items() if key != name}, second, metadata={"format": "pt"})
        refusal(sharded, second.name, name)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": "../secret.bin"}}', '{"weight_map": {"a": 3}}']
)
def test_broken_shard_index(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    refusal(sharded, "model.safetensors.index.json")


def test_sharded_bin(tmp_path: Path) -> None:
    model = make_model("pooler")
    save_model(model, tmp_path, layout="bin")
    tensors = torch.load(tmp_path / BIN)
    names = list(tensors)
    (tmp_path / BIN).unlink()
    for number, part in enumerate((names[:10], names[10:])):
        torch.save({name: tensors[name] for name in part}, tmp_path / f"pytorch_model-{number}.bin")
    weight_map = {name: f"pytorch_model-{int(place >= 10)}.bin" for place, name in enumerate(names)}
    (tmp_path / f"{BIN}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    loaded, report = load_model(tmp_path)
    assert report.format == "sharded PyTorch .bin"
    assert report.files == ("pytorch_model-0.bin", "pytorch_model-1.bin")
    assert torch.equal(loaded.state_dict()["pooler.weight"], model.state_dict()["pooler.weight"])
    (tmp_path / "pytorch_model-1.bin").unlink()
    refusal(tmp_path, "pytorch_model-1.bin")


@pytest.mark.parametrize("layout", ["safetensors", "sharded", "bin", "tf1"])
def test_random_damage_is_refused_in_one_line_or_harmless(layout: Any, tmp_path: Path) -> None:
    save_model(make_model("mlm"), tmp_path, layout=layout, max_shard_bytes=30_000)
    chance = random.Random(4)
    for _ in range(60):
        path = chance.choice(sorted(tmp_path.iterdir()))
        whole = path.read_bytes()
        data = bytearray(whole)
        for _ in range(chance.choice([1, 3, 20])):
            data[chance.randrange(min(len(data), 6_000))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            load_model(tmp_path)
        except BertkitError as error:
            assert_one_line(error)
        path.write_bytes(whole)


def test_nothing_there(tmp_path: Path, folder: Path) -> None:
    refusal(tmp_path / "absent", "absent")
    (tmp_path / "empty").mkdir()
    refusal(tmp_path / "empty", "empty", "model.safetensors")
    (folder / "config.json").unlink()
    refusal(folder, "config.json")
    refusal(folder / SAFETENSORS, "config.json")
    (folder / "weights.h5").write_text("x")
    refusal(folder / "weights.h5", "weights.h5")
