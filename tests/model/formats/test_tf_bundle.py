"""TensorFlow's checkpoint format: checksums, the sorted table, every kind of damage, what Google's scripts leave in it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model.formats import load_model, save_model
from bertkit.model.formats.crc32c import crc32c, masked
from bertkit.model.formats.protobuf import write_bytes, write_int, write_varint
from bertkit.model.formats.snappy import decompress
from bertkit.model.formats.sstable import read_table, write_table
from bertkit.model.formats.tf_bundle import open_bundle, write_bundle
from tests.model.formats.peers import assert_one_line, assert_same, make_model, plain_crc

DATA, INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"


@pytest.mark.parametrize(
    ("data", "expected"),
    # the published check value, and those of RFC 3720, B.4
    [(b"123456789", 0xE3069283), (b"\0" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_known_checksums(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@pytest.mark.parametrize("size", [0, 1, 3, 63, 64, 65, 127, 128, 255, 1000, 4096, 65_539])
def test_checksum_of_every_size(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    assert crc32c(data) == plain_crc(data.tobytes())


def test_checksum_of_many_lanes_sees_every_bit() -> None:
    data = np.random.default_rng(0).integers(0, 256, 1_500_001, dtype=np.uint8)
    checksums = {crc32c(data)}
    for place in (0, 5, 65_536, 777_777, 1_500_000):
        data[place] ^= 1
        checksums.add(crc32c(data))
    assert len(checksums) == 6
    half = 700_000  # a checksum of the whole from the parts: crc(a + b) is crc(a + zeros) ^ crc(b) ^ crc(zeros)
    zeros = np.zeros(data.size - half, np.uint8)
    together = crc32c(np.concatenate([data[:half], zeros])) ^ crc32c(data[half:]) ^ crc32c(zeros)
    assert together == crc32c(data)


@pytest.mark.parametrize("block_bytes", [1, 100, 10**6])
def test_table_round_trip(block_bytes: int) -> None:
    pairs = [(b"", b"header"), *((f"layer_{n:04d}/kernel".encode(), bytes([n % 256]) * n) for n in range(100))]
    assert list(read_table(write_table(pairs, block_bytes))) == pairs


def test_snappy() -> None:
    # "abcd", a copy of 8 from 4 back (which overlaps itself), a literal of 70 bytes, a long and a far copy
    long = bytes(range(70))
    packed = write_varint(4 + 8 + 70 + 64 + 5) + b"\x0cabcd" + bytes([(8 - 4) << 2 | 1, 4])
    packed += bytes([60 << 2, 69]) + long + bytes([63 << 2 | 2, 70, 0]) + bytes([4 << 2 | 3, 146, 0, 0, 0])
    assert decompress(packed) == b"abcd" * 3 + long + long[:64] + b"abcda"
    for end in range(1, len(packed)):
        with pytest.raises(ValueError, match=r"."):
            decompress(packed[:end])


def test_compressed_index_is_read(tmp_path: Path) -> None:
    write_bundle(tmp_path / "x", {"a": torch.arange(3.0)})
    table = list(read_table((tmp_path / "x.index").read_bytes()))
    (tmp_path / "x.index").write_bytes(compressed_table(table))
    assert torch.equal(open_bundle(tmp_path / "x").read("a"), torch.arange(3.0))


def compressed_table(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A table whose one data block is a snappy literal."""
    entries = b"".join(write_varint(0) + write_varint(len(k)) + write_varint(len(v)) + k + v for k, v in pairs)
    block = entries + b"\0\0\0\0\1\0\0\0"
    stored = write_varint(len(block)) + bytes([60 << 2, len(block) - 1]) + block + b"\1"
    stored += masked(crc32c(stored)).to_bytes(4, "little")
    handle = write_varint(0) + write_varint(len(stored) - 5)
    index = b"\0\1" + bytes([len(handle)]) + b"~" + handle + b"\0\0\0\0\1\0\0\0" + b"\0"
    stored_index = index + masked(crc32c(index)).to_bytes(4, "little")
    footer = write_varint(0) + write_varint(0) + write_varint(len(stored)) + write_varint(len(index) - 1)
    return stored + stored_index + footer.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 5, 6)])
def test_types_and_shapes(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = (torch.rand(shape) * 9).to(dtype)
    write_bundle(tmp_path / "x", {"a": tensor, "b": tensor})
    read = open_bundle(tmp_path / "x").read("b")
    assert (read.dtype, read.shape) == (dtype, tensor.shape)
    assert torch.equal(read, tensor)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(make_model("pooler", "mlm", "nsp"), tmp_path, layout="tf1")
    return tmp_path


@pytest.mark.parametrize("name", [DATA, INDEX])
@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.9, 0.9999])
def test_truncation(saved: Path, name: str, part: float) -> None:
    path = saved / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(BertkitError) as caught:
        load_model(saved)
    assert_one_line(caught.value, name)


@pytest.mark.parametrize("name", [DATA, INDEX])
def test_any_flipped_byte_is_noticed(saved: Path, name: str) -> None:
    path = saved / name
    data = bytearray(path.read_bytes())
    # The padding inside the index's footer is the only part that nothing depends on.
    end = len(data) - 48 if name == INDEX else len(data)
    for place in np.random.default_rng(1).integers(0, end, 25).tolist():
        data[place] ^= 0x10
        path.write_bytes(data)
        with pytest.raises(BertkitError) as caught:
            load_model(saved)
        assert_one_line(caught.value, name)
        data[place] ^= 0x10


@pytest.mark.parametrize("name", [DATA, INDEX])
def test_missing_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(BertkitError) as caught:
        load_model(saved / "bert_model.ckpt")
    assert_one_line(caught.value, "bert_model.ckpt")


def test_several_data_files(tmp_path: Path) -> None:
    write_bundle(tmp_path / "x", {"a": torch.arange(4.0), "b": torch.arange(5)})
    table = dict(read_table((tmp_path / "x.index").read_bytes()))
    table[b""] = table[b""].replace(write_int(1, 1), write_int(1, 2), 1)
    table[b"b"] = table[b"b"].replace(write_int(4, 16), write_int(3, 1), 1)
    (tmp_path / "x.index").write_bytes(write_table(sorted(table.items())))
    data = (tmp_path / "x.data-00000-of-00001").read_bytes()
    (tmp_path / "x.data-00000-of-00002").write_bytes(data[:16])
    (tmp_path / "x.data-00001-of-00002").write_bytes(data[16:])
    bundle = open_bundle(tmp_path / "x")
    assert torch.equal(bundle.read("a"), torch.arange(4.0))
    assert torch.equal(bundle.read("b"), torch.arange(5))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda entry: entry + write_bytes(7, b""), "slices"),
        (lambda entry: write_int(1, 7) + entry[2:], "type 7"),
        (lambda entry: entry.replace(write_int(1, 4), write_int(1, 5)), "shape"),
    ],
)
def test_what_cannot_be_read_is_said(change: object, word: str, tmp_path: Path) -> None:
    write_bundle(tmp_path / "x", {"a": torch.arange(4.0)})
    table = dict(read_table((tmp_path / "x.index").read_bytes()))
    table[b"a"] = change(table[b"a"])  # type: ignore[operator]
    (tmp_path / "x.index").write_bytes(write_table(sorted(table.items())))
    with pytest.raises(BertkitError) as caught:
        open_bundle(tmp_path / "x").read("a")
    assert_one_line(caught.value, "x.index", word)


def google_folder(folder: Path, extra: dict[str, torch.Tensor], drop: str = "-") -> None:
    """A checkpoint as Google's scripts leave it: a bare config, and tensors added or dropped."""
    save_model(make_model("pooler", "mlm", "nsp"), folder, layout="tf1")
    bundle = open_bundle(folder / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries if not name.startswith(drop)}
    write_bundle(folder / "bert_model.ckpt", tensors | extra)
    config = json.loads((folder / "bert_config.json").read_text())
    for key in ("architectures", "model_type", "tie_word_embeddings", "dtype", "layer_norm_eps", "pad_token_id"):
        del config[key]
    (folder / "bert_config.json").write_text(json.dumps(config))


def test_optimizer_slots_are_left_and_reported(tmp_path: Path) -> None:
    slots = {
        "bert/pooler/dense/kernel/adam_m": torch.ones(32, 32),
        "bert/pooler/dense/kernel/adam_v": torch.ones(32, 32),
    }
    google_folder(tmp_path, slots | {"global_step": torch.tensor(1000)})
    model, report = load_model(tmp_path)
    assert_same(model, make_model("pooler", "mlm", "nsp"))
    assert set(report.ignored) == {*slots, "global_step"}
    assert report.format == "TensorFlow checkpoint"


def test_finetuned_classifier_and_span(tmp_path: Path) -> None:
    weights, bias = torch.randn(3, 32), torch.randn(3)
    google_folder(tmp_path / "classifier", {"output_weights": weights, "output_bias": bias}, drop="cls/")
    model, _ = load_model(tmp_path / "classifier", labels=["no", "maybe", "yes"])
    assert model.config.heads == ("pooler", "classifier")
    assert model.config.labels == ("no", "maybe", "yes")
    assert torch.equal(model.state_dict()["classifier.weight"], weights)
    squad = {"cls/squad/output_weights": weights[:2], "cls/squad/output_bias": bias[:2]}
    google_folder(tmp_path / "squad", squad, drop="cls/")
    model, _ = load_model(tmp_path / "squad")
    assert model.config.heads == ("pooler", "span")
    assert torch.equal(model.state_dict()["span.weight"], weights[:2])


def test_which_checkpoint_of_a_folder(saved: Path) -> None:
    for step in (100, 200):
        for ending in (".index", ".data-00000-of-00001"):
            shutil.copy(saved / f"bert_model.ckpt{ending}", saved / f"model.ckpt-{step}{ending}")
    assert load_model(saved)[1].source.endswith("bert_model.ckpt")
    (saved / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-200"\n')
    assert load_model(saved)[1].source.endswith("model.ckpt-200")
    (saved / "checkpoint").unlink()
    (saved / INDEX).unlink()
    with pytest.raises(BertkitError) as caught:
        load_model(saved)
    assert_one_line(caught.value, str(saved), "model.ckpt-100", "model.ckpt-200")
    assert load_model(saved / "model.ckpt-100")[1].files == (
        "model.ckpt-100.index",
        "model.ckpt-100.data-00000-of-00001",
    )
    assert load_model(saved / "model.ckpt-100.index")[1].source.endswith("model.ckpt-100")
