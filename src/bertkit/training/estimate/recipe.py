"""What a recipe will take on this machine, before anything runs: hours, memory, disk, tokens, epochs, FLOPs.

A few steps of every stage are really made, on micro-batches of the recipe's own store where it is there; nothing is
written. What was scaled, assumed or guessed is said in the notes.
"""

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.model.config import num_parameters
from bertkit.training.determinism import deterministic_algorithms
from bertkit.training.estimate.material import Material, gather_material
from bertkit.training.estimate.memory import available_memory, checkpoint_bytes, disk_bytes, step_memory
from bertkit.training.estimate.timing import Timing, time_stage
from bertkit.training.recipe import Recipe
from bertkit.training.world import choose_device

DISK_RATE = 500e6  # bytes/s, assumed: nothing is written to find out
SCALED = 0.3  # how far off a figure scaled by FLOPs may well be
# Section A.2 of the paper: the cost of both runs, and what makes a recipe one of them.
PUBLISHED = {"base": "4 Cloud TPUs (16 chips) for 4 days", "large": "16 Cloud TPUs (64 chips) for 4 days"}
PUBLISHED_STEPS, PUBLISHED_SEQUENCES = 1_000_000, 256


@dataclass(frozen=True)
class StageEstimate:
    """One stage."""

    max_length: int
    steps: int
    tokens: int
    flops: float
    seconds_per_step: float
    seconds: float
    epochs: float | None  # over the corpus; None: there is no store yet
    num_timed: int
    measured_on: str  # empty: whole steps


@dataclass(frozen=True)
class Estimate:
    """The whole recipe on one process of this machine."""

    device: str
    precision: str
    num_parameters: int
    steps: int
    tokens: int
    flops: float
    hours: float
    hours_low: float
    hours_high: float
    training_hours: float
    evaluation_hours: float
    checkpoint_hours: float
    memory_bytes: int  # counted
    measured_memory_bytes: int | None  # the peak of real steps, on a GPU
    available_memory_bytes: int
    disk_bytes: int
    free_disk_bytes: int
    corpus_tokens: int | None
    epochs: float | None
    stages: list[StageEstimate]
    published: str | None
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def estimate_recipe(recipe: Recipe, out: Path = Path("run")) -> Estimate:
    """Measure a few steps of every stage and multiply."""
    device = choose_device(recipe.device)
    resolved = recipe.resolve(device)
    material = gather_material(resolved)
    timings = time_stages(resolved, material, device)
    return put_together(resolved, material, timings, device, out)


def time_stages(recipe: Recipe, material: Material, device: torch.device) -> list[Timing]:
    """Every stage, with the operations that a run would use."""
    pairs = zip(recipe.stages, material.feeds, strict=True)
    try:
        with deterministic_algorithms(bool(recipe.deterministic)):
            return [time_stage(recipe, material.config, stage, feed, device) for stage, feed in pairs]
    except torch.OutOfMemoryError as error:
        raise BertkitError(
            "out of GPU memory: halve tokens_per_batch of the stages and double micro_batches; doctor says what fits"
        ) from error


def put_together(
    recipe: Recipe, material: Material, timings: Sequence[Timing], device: torch.device, out: Path
) -> Estimate:
    """Costs of steps, evaluations and checkpoints as those of the run."""
    config, half = material.config, recipe.resolve(device).dtype is not None
    evaluation = recipe.evaluation.num_batches * timings[0].forward * material.num_held_out
    checkpoint = checkpoint_bytes(config, recipe.optimizer) / DISK_RATE
    steps = recipe.steps or steps_in_minutes(recipe, timings, evaluation, checkpoint)
    stages = [stage_estimate(recipe, material, number, timing, steps) for number, timing in enumerate(timings)]
    training = sum(stage.seconds for stage in stages)
    evaluating = evaluation * num_looks(steps, recipe.evaluation.every_steps)
    saving = checkpoint * num_saves(recipe, steps)
    shares = [bounds(timing) for timing in timings]
    low, high = (sum(stage.seconds * share[i] for stage, share in zip(stages, shares, strict=True)) for i in (0, 1))
    peaks = [timing.peak_bytes for timing in timings if timing.peak_bytes is not None]
    kept = min(recipe.checkpoints.keep, num_saves(recipe, steps))
    return Estimate(
        device=device_name(device),
        precision=recipe.precision,
        num_parameters=num_parameters(config),
        steps=steps,
        tokens=sum(stage.tokens for stage in stages),
        flops=sum(stage.flops for stage in stages),
        hours=(training + evaluating + saving) / 3600,
        hours_low=(low + evaluating + saving) / 3600,
        hours_high=(high + evaluating + saving) / 3600,
        training_hours=training / 3600,
        evaluation_hours=evaluating / 3600,
        checkpoint_hours=saving / 3600,
        memory_bytes=max(step_memory(config, recipe.optimizer, s, device, half=half).total for s in recipe.stages),
        measured_memory_bytes=max(peaks) if len(peaks) == len(timings) else None,
        available_memory_bytes=available_memory(device),
        disk_bytes=disk_bytes(config, recipe.optimizer, kept),
        free_disk_bytes=free_disk(out),
        corpus_tokens=material.corpus_tokens,
        epochs=sum(stage.epochs or 0.0 for stage in stages) if material.epoch_sizes else None,
        stages=stages,
        published=published_cost(recipe),
        notes=material.notes + timing_notes(recipe, timings),
    )


def stage_estimate(recipe: Recipe, material: Material, number: int, timing: Timing, steps: int) -> StageEstimate:
    """A stage of a run of so many steps; batches that grow at the start are counted as they are."""
    stage = recipe.stages[number]
    num_steps, micro_batches = stage_extent(recipe, number, steps)
    sizes = material.epoch_sizes
    return StageEstimate(
        max_length=stage.max_length,
        steps=num_steps,
        tokens=micro_batches * timing.counts.num_tokens,
        flops=micro_batches * timing.flops,
        seconds_per_step=timing.micro_batch * stage.micro_batches + timing.update,
        seconds=micro_batches * timing.micro_batch + num_steps * timing.update,
        epochs=micro_batches / sizes[number] if sizes else None,
        num_timed=timing.num_timed,
        measured_on=timing.part,
    )


def stage_extent(recipe: Recipe, number: int, steps: int) -> tuple[int, int]:
    """Steps and micro-batches of a stage in a run of so many steps."""
    plan = recipe.plan
    first, end = plan.first_step(number, steps), plan.first_step(number + 1, steps)
    if end <= first:
        return 0, 0
    last = plan.locate(end - 1, steps)
    return end - first, last.first + last.count


def steps_in_minutes(recipe: Recipe, timings: Sequence[Timing], evaluation: float, checkpoint: float) -> int:
    """How many steps a time budget has room for, evaluations and checkpoints included."""
    pairs = zip(recipe.stages, timings, strict=True)
    a_step = sum(stage.share * (t.micro_batch * stage.micro_batches + t.update) for stage, t in pairs)
    every = (recipe.evaluation.every_steps, recipe.checkpoints.every_steps)
    a_step += sum(cost / n for cost, n in zip((evaluation, checkpoint), every, strict=True) if n)
    left = 60 * (recipe.minutes or 0.0) - 2 * (evaluation + checkpoint)  # at the start and at the end
    return max(1, int(left / a_step))


def num_looks(steps: int, every: int) -> int:
    """Evaluations of a run: before it, after it, and every so many steps."""
    return 2 + ((steps - 1) // every if every else 0)


def num_saves(recipe: Recipe, steps: int) -> int:
    """Checkpoints of a run at most: those that are due, and one at each evaluation, which may be the best."""
    every = [n for n in (recipe.evaluation.every_steps, recipe.checkpoints.every_steps) if n]
    inside = sum((steps - 1) // n for n in every) - ((steps - 1) // math.lcm(*every) if len(every) > 1 else 0)
    return 2 + inside


def bounds(timing: Timing) -> tuple[float, float]:
    """The least and the most that the true time may well be, as shares of the middle one."""
    off = SCALED if timing.is_scaled else 0.0
    return timing.low * (1 - off), timing.high * (1 + off)


def timing_notes(recipe: Recipe, timings: Sequence[Timing]) -> list[str]:
    """What was scaled or assumed."""
    notes = [
        f"stage {number + 1} was measured on {timing.part}" for number, timing in enumerate(timings) if timing.part
    ]
    if any(timing.is_scaled for timing in timings):
        notes.append(f"figures scaled by FLOPs may well be {SCALED:.0%} off")
    if recipe.growth.layers:
        notes.append("all layers are assumed from the first step on; with growth it takes less")
    notes.append(f"checkpoints are assumed to be written at {DISK_RATE / 1e6:.0f} MB/s")
    notes.append("one process; under torchrun the micro-batches of a step are shared among the processes")
    return notes


def published_cost(recipe: Recipe) -> str | None:
    """What the paper's own run of this recipe took, where it is one of the two."""
    sequences = {stage.tokens_per_batch * stage.micro_batches / stage.max_length for stage in recipe.stages}
    is_theirs = recipe.steps == PUBLISHED_STEPS and sequences == {PUBLISHED_SEQUENCES} and not recipe.model.init
    return PUBLISHED.get(recipe.model.size) if is_theirs else None


def free_disk(out: Path) -> int:
    """Bytes free where the run would be written."""
    place = out.absolute()
    return shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.exists())).free


def device_name(device: torch.device) -> str:
    """For people."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
