"""Checkpoints that are whole or not there: weights, optimizer and position, as safetensors and JSON.

A checkpoint is written aside, synced, renamed, and only then pointed to by `last` (and `best`), so that a kill at any
moment leaves the one before. Its folder is an ordinary Hugging Face folder too, as in
`bertkit fill-mask -m run/checkpoints/last`.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.formats import load_model, save_model
from bertkit.model.formats.safetensors_files import read_safetensors, write_safetensors
from bertkit.tokenizer import Tokenizer
from bertkit.training.sharding import gather, local_part
from bertkit.training.world import World

FORMAT = 1
WRITING = ".writing-"
PREFIX = "step-"
OPTIMIZER, STATE, SHARDS = "optimizer.safetensors", "state.json", "optimizer"
LOWER = "lower the learning rate"
SLOW_SAVE = "BERTKIT_SLOW_SAVE"  # seconds to wait between files: tests kill a run inside a save


@dataclass(frozen=True)
class CheckpointConfig:
    """How often, and how many are kept beside the best."""

    every_steps: int = 1000  # 0: only before the first step and after the last
    keep: int = 2
    sharded: bool = False  # with fsdp: every process writes its part of the optimizer's state, nobody gathers it

    def __post_init__(self) -> None:
        if self.every_steps < 0 or self.keep < 1:
            raise BertkitError("checkpoints: every_steps must be at least 0 and keep at least 1")


@dataclass(frozen=True)
class Checkpoint:
    """What a run goes on from."""

    model: BertModel
    optimizer: dict[str, Tensor]  # empty where it lies in shards
    state: dict[str, Any]
    shards: Path | None = None


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = Path(folder), keep

    def save(
        self,
        model: BertModel,
        tokenizer: Tokenizer | None,
        optimizer: Mapping[str, Tensor] | None,
        state: Mapping[str, Any],
        *,
        is_best: bool,
    ) -> Path:
        """Write the checkpoint of state["step"]; without room for it the last good one stays, and the error says so.

        Without an optimizer's state, its shards lie aside already.
        """
        step = int(state["step"])
        refuse_broken(step, {**dict(model.named_parameters()), **(optimizer or {})})
        target, aside = self.folder / f"{PREFIX}{step:08d}", self._aside(step)
        old = self.folder / f"{WRITING}old-{target.name}"
        with self._room_for(step):
            if optimizer is not None:
                self._begin(step)
            self._write(aside, model, tokenizer, optimizer, {**state, "is_best": is_best})
            if target.exists():  # of the same step, by a run that was killed before or that went on from an older one
                target.rename(old)
            aside.rename(target)
            _sync(self.folder)
            self._point("last", target)
            if is_best:
                self._point("best", target)
        shutil.rmtree(old, ignore_errors=True)
        self._retain()
        return target

    def save_shards(self, tensors: Mapping[str, Tensor], step: int, world: World) -> None:
        """Every process writes its part of the optimizer's state aside; `save` then makes it a checkpoint."""
        from bertkit.training.checkpoint_shards import write_shards  # slow to import

        broken = torch.tensor([float(find_broken(tensors) is not None)], device=world.device)
        if world.sum(broken).item():
            raise BertkitError(f"the optimizer's state is not finite after step {step}: nothing was saved; {LOWER}")
        with self._room_for(step):
            if world.is_first:
                self._begin(step)
            world.agree(0)  # the others wait for the folder
            write_shards(self._aside(step) / SHARDS, tensors)

    def _aside(self, step: int) -> Path:
        return self.folder / f"{WRITING}{PREFIX}{step:08d}"

    def _begin(self, step: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._aside(step), ignore_errors=True)
        self._aside(step).mkdir()

    @contextmanager
    def _room_for(self, step: int) -> Iterator[None]:
        """A failure leaves nothing half-written and is one line."""
        try:
            yield
        except (OSError, SafetensorError, BertkitError) as error:
            shutil.rmtree(self._aside(step), ignore_errors=True)
            raise BertkitError(self._no_room(step, error)) from error

    def _write(
        self,
        aside: Path,
        model: BertModel,
        tokenizer: Tokenizer | None,
        optimizer: Mapping[str, Tensor] | None,
        state: Mapping[str, Any],
    ) -> None:
        save_model(model, aside)
        _dawdle()
        if tokenizer:
            tokenizer.save(aside, max_length=model.config.max_positions)
        if optimizer is not None:
            write_safetensors(aside / OPTIMIZER, {name: _plain(tensor) for name, tensor in optimizer.items()})
        _dawdle()
        sizes = {str(path.relative_to(aside)): path.stat().st_size for path in _files(aside)}
        text = json.dumps({"format": FORMAT, **state, "files": sizes}, indent=2, allow_nan=False)
        (aside / STATE).write_text(text + "\n", encoding="utf-8")
        for path in _files(aside):
            path.chmod(0o644)
            _sync(path)
        for path in {path.parent for path in _files(aside)}:
            _sync(path)
        _dawdle()

    def _point(self, name: str, target: Path) -> None:
        link, fresh = self.folder / name, self.folder / f"{WRITING}{name}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target.name)
        fresh.replace(link)
        _sync(self.folder)

    def _no_room(self, step: int, error: Exception) -> str:
        why = (str(getattr(error, "strerror", None) or error).splitlines() or ["no reason given"])[0]
        last = self.last_step()
        good = f"the last good checkpoint is step {last}" if last is not None else "there is no checkpoint yet"
        return f"cannot save step {step} in {self.folder}: {why}; {good}; make room and start again with --resume"

    def last_step(self) -> int | None:
        """The step of the newest checkpoint that is whole."""
        last = self._link("last")
        return int(os.readlink(last).removeprefix(PREFIX)) if last else None

    def _link(self, name: str) -> Path | None:
        """`last` or `best`, where there is one; a broken one is refused, or a run would begin anew over its checkpoints."""
        link = self.folder / name
        if link.is_symlink() and not (link / STATE).is_file():
            raise BertkitError(
                f"{link} points to {os.readlink(link)}, which is not there; point it to another checkpoint"
            )
        if not link.is_symlink() and link.exists():
            raise BertkitError(
                f"{link} is a folder and not a link: copy the run again with its links (cp -a, rsync -a)"
            )
        return link if link.is_symlink() else None

    def load(self, name: str = "last") -> Checkpoint | None:
        """The checkpoint that is pointed to, or None where there is none."""
        folder = self._link(name)
        if folder is None:
            return None
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        for file, size in state["files"].items():
            if not (folder / file).is_file() or (folder / file).stat().st_size != size:
                raise BertkitError(f"{folder / file} is missing or cut short; point {folder} to an older checkpoint")
        model, _ = load_model(folder.resolve())
        if (folder / SHARDS).is_dir():
            return Checkpoint(model, {}, state, folder / SHARDS)
        # Copies: safetensors maps the file, and the run will remove it one day.
        tensors = {name: tensor.clone() for name, tensor in read_safetensors(folder / OPTIMIZER).items()}
        return Checkpoint(model, tensors, state)

    def clean(self) -> None:
        """Remove what a kill left half-written, and point to the best where the kill came just before that."""
        for path in self.folder.glob(f"{WRITING}*"):
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        last = self._link("last")
        if last and json.loads((last / STATE).read_text(encoding="utf-8"))["is_best"]:
            self._point("best", last.resolve())

    def _retain(self) -> None:
        """Remove old checkpoints, but never one that is pointed to."""
        pointed = {os.readlink(self.folder / name) for name in ("last", "best") if (self.folder / name).is_symlink()}
        old = sorted(self.folder.glob(f"{PREFIX}*"))[: -self.keep]
        for path in old:
            if path.name not in pointed:
                # Renamed first, so that a kill in between leaves no folder that looks whole.
                with suppress(OSError):
                    shutil.rmtree(path.rename(path.with_name(f"{WRITING}old-{path.name}")))


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of names and values: equal only for bitwise equal tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_plain(tensor).reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _plain(tensor: Tensor) -> Tensor:
    return gather(tensor).to("cpu").contiguous()


def refuse_broken(step: int, tensors: Mapping[str, Tensor]) -> None:
    """Values that are not finite are never saved."""
    if name := find_broken(tensors):
        raise BertkitError(f"{name} is not finite after step {step}: nothing was saved; {LOWER}")


@torch.no_grad()
def find_broken(tensors: Mapping[str, Tensor]) -> str | None:
    """One look at the device for all tensors, or what lies here of them; names are sought only if something is wrong."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors.values():
        if (part := local_part(tensor)).numel():
            by_device.setdefault(part.device, []).append(part)
    norms = [torch.stack(torch._foreach_norm(group, ord=float("inf"))) for group in by_device.values()]
    if all(bool(torch.isfinite(norm).all()) for norm in norms):
        return None
    return next(name for name, tensor in tensors.items() if not bool(torch.isfinite(local_part(tensor)).all()))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _dawdle() -> None:
    if seconds := os.environ.get(SLOW_SAVE):
        time.sleep(float(seconds))
