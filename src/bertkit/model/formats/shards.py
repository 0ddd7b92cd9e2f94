"""Weights in several files: an index (`*.index.json`) that says which tensor lies in which file.

Reading checks that index and files agree on every tensor; a disagreement names the file.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.formats.config import read_json_object


def read_shards(index: Path, read: Callable[[Path], dict[str, Tensor]]) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    """All tensors, and the files that they came from."""
    weight_map = _read_weight_map(index)
    names_of_file: dict[str, set[str]] = {}
    for name, file in weight_map.items():
        names_of_file.setdefault(file, set()).add(name)
    tensors: dict[str, Tensor] = {}
    paths = tuple(index.with_name(file) for file in sorted(names_of_file))
    for path in paths:
        if not path.is_file():
            raise BertkitError(f"{path} is missing, but {index.name} counts on it; fetch it too")
        shard = read(path)
        _compare(path, index, names_of_file[path.name], shard, tensors)
        tensors.update(shard)
    return tensors, paths


def _read_weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BertkitError(f"{index} has no weight_map, so it does not say which file holds what")
    for file in weight_map.values():
        # A name with a folder in it could point anywhere on this machine.
        if not isinstance(file, str) or not re.fullmatch(r"[^/\\]+\.(safetensors|bin)", file):
            raise BertkitError(f"{index} names {str(file)[:80]!r}, which is no weights file of its own folder")
    return weight_map


def _compare(path: Path, index: Path, expected: set[str], shard: Iterable[str], earlier: Iterable[str]) -> None:
    found = set(shard)
    if doubled := found & set(earlier):
        raise BertkitError(f"{path} holds {min(doubled)}, which another file of {index.name} holds too")
    if missing := expected - found:
        raise BertkitError(f"{path} does not hold {min(missing)}, though {index.name} says so")
    if extra := found - expected:
        raise BertkitError(f"{path} holds {min(extra)}, which {index.name} does not know")


def plan_shards(tensors: Mapping[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    """Cut the tensors, in their order, into files of at most so many bytes (a larger tensor gets its own)."""
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        if shards[-1] and filled + tensor.nbytes > max_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += tensor.nbytes
    return shards


def index_json(shards: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
    """The index of these files (file name: its tensors)."""
    tensors = [tensor for shard in shards.values() for tensor in shard.values()]
    return {
        "metadata": {
            "total_parameters": sum(tensor.numel() for tensor in tensors),
            "total_size": sum(tensor.nbytes for tensor in tensors),
        },
        "weight_map": {name: file for file, shard in shards.items() for name in shard},
    }
