"""Where a checkpoint's files are, and the tensors in them under Hugging Face's names, whatever the layout.

In: a folder, a weights file or a TensorFlow prefix. Out: the config's path, the format, the tensors on the CPU.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.formats.int8_rows import NAME as INT8
from bertkit.model.formats.int8_rows import read_int8
from bertkit.model.formats.names import canonical, from_google
from bertkit.model.formats.safetensors_files import read_safetensors
from bertkit.model.formats.shards import read_shards
from bertkit.model.formats.tf_bundle import index_path, open_bundle
from bertkit.model.formats.torch_bin import read_bin

Kind = Literal[
    "safetensors",
    "sharded safetensors",
    "PyTorch .bin",
    "sharded PyTorch .bin",
    "int8 safetensors",
    "TensorFlow checkpoint",
]
# In the order of preference where a folder holds several
WEIGHTS: dict[str, Kind] = {
    "model.safetensors": "safetensors",
    "model.safetensors.index.json": "sharded safetensors",
    "pytorch_model.bin": "PyTorch .bin",
    "pytorch_model.bin.index.json": "sharded PyTorch .bin",
    INT8: "int8 safetensors",
}
ENDINGS: dict[str, Kind] = {
    "-int8.safetensors": "int8 safetensors",
    ".safetensors": "safetensors",
    ".safetensors.index.json": "sharded safetensors",
    ".bin": "PyTorch .bin",
    ".bin.index.json": "sharded PyTorch .bin",
}
CONFIGS = ("config.json", "bert_config.json")
LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Location:
    """A checkpoint on disk: the weights (a file, an index or a TensorFlow prefix) and the config beside them."""

    kind: Kind
    weights: Path
    config: Path


@dataclass(frozen=True)
class Stored:
    """The tensors of a checkpoint by canonical Hugging Face name, and the names that were not even read."""

    location: Location
    files: tuple[Path, ...]
    tensors: dict[str, Tensor]
    unread: tuple[str, ...] = ()


def locate(source: Path) -> Location:
    """Find the weights and the config of this folder, weights file or TensorFlow prefix."""
    kind, weights = _find_weights(source)
    configs = [weights.with_name(name) for name in CONFIGS]
    if kind == "TensorFlow checkpoint":
        configs.reverse()
    config = next((path for path in configs if path.is_file()), None)
    if config is None:
        raise BertkitError(f"{weights.parent} has no config.json or bert_config.json beside {weights.name}")
    return Location(kind, weights, config)


def _find_weights(source: Path) -> tuple[Kind, Path]:
    if source.is_dir():
        return _find_in_folder(source)
    prefix = source.with_name(re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", source.name))
    if index_path(prefix).is_file():
        return "TensorFlow checkpoint", prefix
    if not source.exists():
        raise BertkitError(f"no file or folder {source}")
    for ending, kind in ENDINGS.items():
        if source.name.endswith(ending):
            return kind, source
    raise BertkitError(f"{source} is no weights file that bertkit knows ({', '.join(ENDINGS)}, .ckpt.index)")


def _find_in_folder(folder: Path) -> tuple[Kind, Path]:
    for name, kind in WEIGHTS.items():
        if (folder / name).is_file():
            return kind, folder / name
    prefixes = {path.name.removesuffix(".index"): path.with_suffix("") for path in sorted(folder.glob("*.index"))}
    if not prefixes:
        raise BertkitError(f"{folder} holds no weights; bertkit reads {', '.join(WEIGHTS)} and bert_model.ckpt.index")
    only = next(iter(prefixes)) if len(prefixes) == 1 else None
    for choice in (_named_checkpoint(folder), "bert_model.ckpt", only):
        if choice in prefixes:
            return "TensorFlow checkpoint", prefixes[choice]
    raise BertkitError(f"{folder} holds several checkpoints; name one: {', '.join(prefixes)}")


def _named_checkpoint(folder: Path) -> str | None:
    """What TensorFlow's file `checkpoint` calls the latest."""
    path = folder / "checkpoint"
    text = path.read_text(errors="replace") if path.is_file() else ""
    named = re.search(r'^model_checkpoint_path: "([^"]+)"', text, re.MULTILINE)
    return named and Path(named[1]).name


def read_stored(location: Location) -> Stored:
    """Read the tensors of this checkpoint."""
    weights = location.weights
    if location.kind == "TensorFlow checkpoint":
        return _read_google(location)
    read = read_int8 if "int8" in location.kind else read_safetensors if "safetensors" in location.kind else read_bin
    if "sharded" in location.kind:
        tensors, files = read_shards(weights, lambda path: read(_not_a_pointer(path)))
    else:
        tensors, files = read(_not_a_pointer(weights)), (weights,)
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if canonical(name) in renamed:
            raise BertkitError(f"{weights} holds {canonical(name)} twice, in two spellings")
        renamed[canonical(name)] = tensor
    return Stored(location, files, renamed)


def _not_a_pointer(path: Path) -> Path:
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise BertkitError(f"{path} is a Git LFS pointer, not the weights; run git lfs pull")
    return path


def _read_google(location: Location) -> Stored:
    bundle = open_bundle(location.weights)
    rows = {name: from_google(name) for name in bundle.entries}
    tensors: dict[str, Tensor] = {}
    for name, row in rows.items():
        if row is not None:  # the rest is the optimizer's, up to twice the model's size: not worth reading
            tensor = bundle.read(name)
            tensors[row.huggingface] = tensor.t() if row.is_transposed and tensor.dim() == 2 else tensor
    shards = sorted({bundle.shard(bundle.entries[name].shard) for name, row in rows.items() if row is not None})
    unread = tuple(name for name, row in rows.items() if row is None)
    return Stored(location, (index_path(location.weights), *shards), tensors, unread)
