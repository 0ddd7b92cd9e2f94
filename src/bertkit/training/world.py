"""The processes of one run: alone, or several started by torchrun, which sum their gradients and count together."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from bertkit.errors import BertkitError

# A dead process is noticed at once; this is for one that hangs, and must outlast a slow save by rank 0.
TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, number: int) -> int:
        """The first process's number, for all."""
        if self.size == 1:
            return number
        shared = torch.tensor([number], device=self.device)
        dist.broadcast(shared, 0)
        return int(shared.item())


def is_first_process() -> bool:
    """Whether this process speaks for all; known before they have joined."""
    return os.environ.get("RANK", "0") == "0"


def leave_world() -> None:
    """The end of a program under torchrun whose work is done and written.

    Taking the interpreter down with a process group's threads about makes PyTorch abort now and then, and torchrun
    would call the whole run failed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def choose_device(name: str) -> torch.device:
    """cpu, cuda or auto; under torchrun each process has the GPU of its local rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise BertkitError(f"no device is named {name!r}; use cpu, cuda or auto")
    if name == "cpu":
        return torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if local >= torch.cuda.device_count():
        if not torch.cuda.device_count():
            raise BertkitError("there is no GPU here that PyTorch can use; choose the device cpu or auto")
        raise BertkitError(
            f"no GPU for local rank {local}: {torch.cuda.device_count()} here; start fewer, or device = 'cpu'"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


@contextmanager
def join_world(device: str) -> Iterator[World]:
    """This process's place among those that torchrun started; a lost companion is one clear line."""
    place, size = choose_device(device), int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(device=place)
        return
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield World(dist.get_rank(), size, place)
    except (RuntimeError, dist.DistError) as error:
        reason = (str(error).splitlines() or [""])[0][:160]
        raise BertkitError(
            f"another process of this run died or does not answer ({reason}); start it again with --resume"
        ) from error
    dist.barrier()  # nobody leaves while another still needs its answer
    dist.destroy_process_group()
