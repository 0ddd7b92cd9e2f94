"""The optimizer's state in shards: every process writes and reads its own part, through torch.distributed.checkpoint.

The weights are always gathered into one ordinary model.safetensors, so that a checkpoint stays a model to use; the
state, twice as large and of use to nobody else, need not be. Any number of processes, also one, reads what any wrote.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from bertkit.errors import BertkitError
from bertkit.training.sharding import is_shard

# DCP's own format keeps its metadata as a pickle. Its safetensors format keeps each shard's place in the file's
# header, as JSON, so that nothing is ever unpickled.


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write and sync this process's part; where any process fails, all do."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _failures_as(OSError):
        save(dict(tensors), storage_writer=writer)


def read_shards(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """This process's part of every tensor, named `parameter/key`, lying as the model's parameters do."""
    reader = HuggingFaceStorageReader(str(folder))
    parameters = dict(model.named_parameters())
    tensors: dict[str, Any] = {
        name: _room(stored, parameters.get(name.rpartition("/")[0]))
        for name, stored in reader.read_metadata().state_dict_metadata.items()
        if isinstance(stored, TensorStorageMetadata)
    }
    alone = not dist.is_initialized()
    with _failures_as(BertkitError), warnings.catch_warnings():
        if alone:  # which it says, though it is told
            warnings.simplefilter("ignore", UserWarning)
        load(tensors, storage_reader=reader, no_dist=alone)
    return tensors


def _room(stored: TensorStorageMetadata, p: Tensor | None) -> Tensor:
    """Zeros to be filled: sharded where the parameter is."""
    if p is not None and is_shard(p) and stored.size == p.shape:
        return torch.zeros_like(p.detach(), dtype=stored.properties.dtype)
    return torch.zeros(stored.size, dtype=stored.properties.dtype, device=None if p is None else p.device)


@contextmanager
def _failures_as(kind: type[Exception]) -> Iterator[None]:
    """DCP tells of all processes at once; one of their reasons is enough for a line."""
    try:
        yield
    except CheckpointException as error:
        first = next(iter(error.failures.values()), (error, None))[0]
        raise kind(str(getattr(first, "strerror", None) or first)) from error
