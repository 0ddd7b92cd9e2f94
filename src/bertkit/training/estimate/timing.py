"""How long a stage's steps take here: the real loop on real micro-batches, a few steps after a warm-up.

Where a whole step is too much for this machine, less is run: one micro-batch in place of many, then a shorter one, then
fewer layers; and the rest is multiplied by FLOPs. The Timing says which. Weights stay as they are: the rate is 0.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

import torch

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig, num_parameters
from bertkit.training.doctor.batches import ShortFeed
from bertkit.training.estimate.memory import available_memory, step_memory
from bertkit.training.feeds import Feed, StepCounts, sum_counts
from bertkit.training.flops import step_flops
from bertkit.training.loop import Progress, StepRecord, Trainer
from bertkit.training.optimizers.build import build_optimizers, clip_gradients
from bertkit.training.plan import Stage, StepPlan
from bertkit.training.recipe import Recipe
from bertkit.training.world import World

MOST_SECONDS = 3.0  # that one measured step may be expected to take
STAGE_SECONDS = 12.0  # after which no further step of a stage is begun
NUM_WARM, LEAST_TIMED, MOST_TIMED = 2, 2, 24
NUM_GROUPS = 4  # looks at a GPU, which is not to wait after every step
LEAST_TOKENS = 512
SLOWER_THAN_PRODUCTS = 2.0  # a step against its matrix products alone, at a guess
MEMORY_SHARE = 0.8
NUM_COUNTED = 8  # micro-batches whose counts stand for all


@dataclass(frozen=True)
class Part:
    """How much of a step is run."""

    num_layers: int
    num_tokens: int  # of a micro-batch
    micro_batches: int

    def name(self, config: BertConfig, stage: Stage) -> str:
        """What was not run, in words; empty where all was."""
        said = []
        if self.num_layers < config.num_layers:
            said.append(f"{self.num_layers} of {config.num_layers} layers")
        if self.num_tokens < stage.tokens_per_batch:
            said.append(f"{self.num_tokens:,} of {stage.tokens_per_batch:,} tokens a micro-batch")
        if said:
            return " and ".join(said) + ", scaled by FLOPs"
        return "" if self.micro_batches == stage.micro_batches else f"1 of {stage.micro_batches} micro-batches"


@dataclass(frozen=True)
class Timing:
    """A stage's costs in seconds, and the range that was measured as shares of the middle one."""

    micro_batch: float
    update: float  # clipping and the optimizer, once a step
    forward: float  # one micro-batch, for evaluation
    low: float
    high: float
    counts: StepCounts  # of one whole micro-batch
    flops: float  # of one whole micro-batch, forward and backward
    num_timed: int
    part: str  # what was run in place of a whole step; empty: whole steps were
    is_scaled: bool
    peak_bytes: int | None  # of the GPU, where whole micro-batches were run


def time_stage(recipe: Recipe, config: BertConfig, stage: Stage, feed: Feed, device: torch.device) -> Timing:
    """Run a part of the stage's steps."""
    recipe = recipe.resolve(device)
    part = choose_part(recipe, config, stage, device)
    whole = sum_counts(feed.counts(index) for index in range(NUM_COUNTED))
    whole = StepCounts(*(value // NUM_COUNTED for value in (whole.num_masked, whole.num_pairs, whole.num_tokens)))
    small = replace(config, num_layers=part.num_layers)
    shown: Feed = feed if part.num_tokens == stage.tokens_per_batch else ShortFeed(feed, part.num_tokens)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    model = BertModel(small).to(device)
    trainer = make_trainer(recipe, model, replace(stage, micro_batches=part.micro_batches, share=1.0), shown, device)
    records = run_steps(trainer)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    update = time_update(trainer)
    forward = time_forward(trainer, shown)
    seen = sum_counts(record.counts for record in records)
    num = len(records) * part.micro_batches
    flops = step_flops(config, whole, stage.max_length)
    scale = flops / (step_flops(small, seen, stage.max_length) / num)
    seconds = [record.seconds for record in records]
    middle = median(seconds)
    is_scaled = small != config or part.num_tokens < stage.tokens_per_batch
    return Timing(
        micro_batch=max(middle - update, middle / 10) / part.micro_batches * scale,
        update=update * num_parameters(config) / num_parameters(small),
        forward=forward * scale,
        low=min(seconds) / middle,
        high=max(seconds) / middle,
        counts=whole,
        flops=flops,
        num_timed=len(records),
        part=part.name(config, stage),
        is_scaled=is_scaled,
        peak_bytes=None if is_scaled else peak,
    )


def choose_part(recipe: Recipe, config: BertConfig, stage: Stage, device: torch.device) -> Part:
    """The largest part of a step that is expected to take a few seconds and to fit in memory."""
    half = recipe.dtype is not None
    rate = product_rate(config, device, recipe.dtype)
    room = MEMORY_SHARE * available_memory(device)
    part = None
    for part in parts_of(config, stage):
        small = replace(config, num_layers=part.num_layers)
        shorter = replace(stage, tokens_per_batch=part.num_tokens)
        counts = StepCounts(
            int(stage.masking.rate * part.num_tokens), part.num_tokens // stage.max_length, part.num_tokens
        )
        products = step_flops(small, counts, stage.max_length) * part.micro_batches
        fits = step_memory(small, recipe.optimizer, shorter, device, half=half).total < room
        if fits and SLOWER_THAN_PRODUCTS * products / rate <= MOST_SECONDS:
            return part
    if part is None or not fits:
        raise BertkitError("not even one layer with one sequence fits in the memory that is free here; free some")
    return part


def parts_of(config: BertConfig, stage: Stage) -> Iterator[Part]:
    """Whole steps, one micro-batch, shorter ones, fewer layers."""
    layers, tokens = config.num_layers, stage.tokens_per_batch
    yield Part(layers, tokens, stage.micro_batches)
    least = max(stage.max_length, min(tokens, LEAST_TOKENS))
    while tokens > least:
        yield Part(layers, tokens, 1)
        tokens = max(least, tokens // 2)
    while layers > 1:
        yield Part(layers, tokens, 1)
        layers //= 2
    yield Part(1, tokens, 1)


def product_rate(config: BertConfig, device: torch.device, narrow: torch.dtype | None) -> float:
    """FLOP/s of one matrix product as wide as the feed-forward."""
    dtype = narrow or torch.float32
    left = torch.ones(LEAST_TOKENS, config.hidden_size, device=device, dtype=dtype)
    right = torch.ones(config.hidden_size, config.intermediate_size, device=device, dtype=dtype)
    num = 10
    for attempt in range(2):  # the first one warms up
        started = time.perf_counter()
        for _ in range(1 if attempt == 0 else num):
            product = left @ right
        _wait(product)
    return 2.0 * num * LEAST_TOKENS * right.numel() / max(1e-9, time.perf_counter() - started)


def make_trainer(recipe: Recipe, model: BertModel, stage: Stage, feed: Feed, device: torch.device) -> Trainer:
    """The loop of a run with nothing to write, whose steps change nothing."""
    still = replace(recipe.optimizer, learning_rate=0.0, matrix_learning_rate=None, pooler_learning_rate=None)
    options = replace(recipe.loop_options, log_every=MOST_TIMED // NUM_GROUPS if device.type == "cuda" else 1)
    progress = Progress(NUM_WARM + MOST_TIMED)
    optimizers = build_optimizers(model, still)
    plan = StepPlan((stage,))
    return Trainer(model, [feed], plan, optimizers, recipe.schedule, options, progress, World(device=device))


def run_steps(trainer: Trainer) -> list[StepRecord]:
    """The steps after the warm-up: as many as the time allows."""
    found: list[StepRecord] = []
    started = time.perf_counter()
    num_warm = max(NUM_WARM, trainer.options.log_every)  # what is collected with a warm-up step is one too

    def note(records: list[StepRecord]) -> None:
        found.extend(records)
        enough = trainer.progress.step >= num_warm + LEAST_TIMED
        if enough and time.perf_counter() - started > STAGE_SECONDS:
            trainer.progress.num_steps = trainer.progress.step

    trainer.progress.num_steps = num_warm + MOST_TIMED
    trainer.run(note)
    return found[num_warm:]


def time_update(trainer: Trainer) -> float:
    """Seconds of clipping and one optimizer step."""
    for p in trainer.parameters:
        p.grad = torch.zeros_like(p)
    _wait(trainer.parameters[0])
    started = time.perf_counter()
    clip_gradients(trainer.parameters, trainer.options.clip_norm)
    for optimizer in trainer.optimizers:
        optimizer.step()
    _wait(trainer.parameters[0])
    seconds = time.perf_counter() - started
    for optimizer in trainer.optimizers:
        optimizer.zero_grad(set_to_none=True)
    return seconds


@torch.no_grad()
def time_forward(trainer: Trainer, feed: Feed) -> float:
    """Seconds of one micro-batch without gradients, dropout off."""
    trainer.plain_objective.eval()
    batch, ones = feed.micro_batch(0).to(trainer.world.device), torch.ones(2, device=trainer.world.device)
    if trainer.world.device.type == "cuda" or trainer.options.compile:
        trainer.plain_objective(batch, ones)
    started = time.perf_counter()
    _, sums = trainer.plain_objective(batch, ones)
    _wait(sums)
    return time.perf_counter() - started


def _wait(tensor: torch.Tensor) -> None:
    """Until the device has computed everything."""
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
