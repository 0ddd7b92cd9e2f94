"""How weights and gradients are spread over the processes of a run, chosen here: copies (DDP) or shards (FSDP2).

In: an objective (a model with its loss). Out: the same, exchanging gradients with the other processes. With FSDP2 every
layer is a group of its own; the root group has the embeddings, the decoder tied to them, and the heads. All functions
that gather are called by every process alike. What FSDP2 needs is imported where weights are sharded: it takes most of a
second, and where it was never imported nothing is a shard.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.training.objective import Objective
from bertkit.training.world import World

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor
    from typing_extensions import TypeIs

Parallel = Literal["ddp", "fsdp"]
PARALLEL: tuple[Parallel, ...] = ("ddp", "fsdp")
WHOLE_MATRICES = {  # optimizers that look at whole matrices, of which a process has only rows
    "muon": "Muon orthogonalises whole matrices",
    "lamb": "LAMB takes the norms of whole matrices",
}


def check_parallel(parallel: str, optimizer: str) -> None:
    """Refuse what cannot be, in one line."""
    if parallel not in PARALLEL:
        raise BertkitError(f"unknown parallel {parallel!r}; choose one of {', '.join(PARALLEL)}")
    if parallel == "fsdp" and optimizer in WHOLE_MATRICES:
        why = WHOLE_MATRICES[optimizer]
        raise BertkitError(f"{why}, which fsdp shards: set optimizer.name = 'adamw' or parallel = 'ddp'")


def shard_objective(model: BertModel, device: torch.device, dtype: torch.dtype | None) -> nn.Module:
    """The model's loss with its weights sharded in place over all processes; build optimizers after this."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    objective = Objective(model)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    # As HalfPrecision does alone: narrow copies compute, float32 weights and gradients stay. The step's counts, an
    # input, must not be rounded.
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for module in (*model.encoder.layers, objective):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return objective


def shards_weights(objective: nn.Module) -> "TypeGuard[FSDPModule]":
    """Whether its weights are sharded while it computes."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and isinstance(objective, module.FSDPModule)


def is_shard(tensor: Tensor) -> "TypeIs[DTensor]":
    """Whether the other processes have the rest of it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def exchange_gradients(objective: nn.Module, world: World) -> nn.Module:
    """The objective whose backward pass leaves the mean gradient of all processes."""
    if world.size == 1 or shards_weights(objective):
        return objective
    return DistributedDataParallel(objective)  # there are no buffers to be kept alike


def without_exchange(objective: nn.Module) -> AbstractContextManager[None]:
    """While this lasts, gradients add up in each process alone."""
    if shards_weights(objective):
        return _unsynced_shards(objective)
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()


@contextmanager
def _unsynced_shards(objective: "FSDPModule") -> Iterator[None]:
    objective.set_requires_gradient_sync(False)
    objective.set_is_last_backward(False)
    try:
        yield
    finally:
        objective.set_requires_gradient_sync(True)
        objective.set_is_last_backward(True)


def settle(objective: nn.Module) -> None:
    """After a forward pass alone the root group's weights are still whole: free them, so that all are shards again."""
    if shards_weights(objective):
        objective.reshard()


def is_sharded(model: nn.Module) -> bool:
    """Whether its weights are shards."""
    return any(is_shard(p) for p in model.parameters())


def local_part(tensor: Tensor) -> Tensor:
    """What of it lies here."""
    return tensor.to_local() if is_shard(tensor) else tensor


def shard_like(tensor: Tensor, p: Tensor) -> Tensor:
    """A whole tensor as p lies; every process has the whole and keeps its part, so nothing is sent."""
    if not is_shard(p) or is_shard(tensor) or tensor.shape != p.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(p.device), p.device_mesh, p.placements, src_data_rank=None)


def gather(tensor: Tensor) -> Tensor:
    """The whole tensor."""
    whole: Tensor = tensor.full_tensor() if is_shard(tensor) else tensor
    return whole.detach()


def gather_all(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole tensors in the machine's memory, one after another; kept only where asked for."""
    gathered: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = gather(tensor)
        if keep:
            gathered[name] = whole.to("cpu")
    return gathered


def gather_model(model: BertModel, *, keep: bool) -> BertModel | None:
    """A plain copy of a sharded model in the machine's memory, where it is kept; a plain model is its own."""
    if not is_sharded(model):
        return model if keep else None
    tensors = gather_all(model.state_dict(), keep=keep)
    if not keep:
        return None
    with torch.device("meta"):
        plain = BertModel(model.config)
    plain.load_state_dict(tensors, assign=True)
    return plain
