"""What a recipe will take on this machine, before anything runs: time, memory, disk, tokens.

A few steps are really made, on random tokens in the recipe's shapes; nothing is read or written.
"""

import time
from dataclasses import dataclass

import torch

from bertkit.model.bert import BertModel
from bertkit.model.config import num_parameters
from bertkit.model.packed import pack
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.training.feeds import StepCounts
from bertkit.training.journal import memory_bytes
from bertkit.training.loop import LoopOptions, Progress, Trainer
from bertkit.training.optimizers import build_optimizers
from bertkit.training.plan import Stage, StepPlan
from bertkit.training.recipe import Recipe
from bertkit.training.world import choose_device

NUM_WARM, NUM_TIMED = 2, 3
FIRST_ID = 5  # above the special tokens
NUM_MOMENTS = 2  # an optimizer keeps for each weight; Muon keeps one for most
POINTED = 1  # the best checkpoint may be an old one, kept beside the newest


@dataclass(frozen=True)
class Estimate:
    """For the whole recipe."""

    num_parameters: int
    steps: int
    tokens: int
    hours: float
    seconds_per_step: float  # of the first stage
    memory_bytes: int  # the most that the measured steps held
    disk_bytes: int  # checkpoints kept, and the one that is being written
    device: str


class RandomFeed:
    """One random batch in a stage's shape, for ever."""

    def __init__(self, stage: Stage, vocab_size: int) -> None:
        lengths = [stage.max_length] * (stage.tokens_per_batch // stage.max_length)
        draw = torch.Generator().manual_seed(0)
        low = min(FIRST_ID, vocab_size - 1)
        inputs = pack([torch.randint(low, vocab_size, (n,), generator=draw).tolist() for n in lengths])
        positions = torch.arange(0, inputs.num_tokens, max(1, round(1 / stage.masking.rate)))
        self.batch = PretrainingBatch(
            inputs, positions, inputs.token_ids[positions], torch.randint(0, 2, (len(lengths),), generator=draw)
        )

    def micro_batch(self, index: int) -> PretrainingBatch:
        """The batch."""
        return self.batch

    def counts(self, index: int) -> StepCounts:
        """Its counts."""
        return StepCounts(len(self.batch.masked_positions), len(self.batch.inputs), self.batch.inputs.num_tokens)


def estimate(recipe: Recipe, vocab_size: int) -> Estimate:
    """Measure a few steps of every stage and multiply."""
    device = choose_device(recipe.device)
    resolved = recipe.resolve(device)
    config = recipe.model.config(vocab_size, next_sentence=recipe.data.next_sentence)
    model = BertModel(config).to(device)
    seconds = [time_stage(resolved, stage, model) for stage in recipe.stages]
    mean = sum(each * stage.share for each, stage in zip(seconds, recipe.stages, strict=True))
    steps = recipe.steps or max(1, round(60 * (recipe.minutes or 0) / mean))
    tokens = sum(steps * stage.share * stage.tokens_per_batch * stage.micro_batches for stage in recipe.stages)
    state = 4 * num_parameters(config) * (1 + NUM_MOMENTS)
    return Estimate(
        num_parameters=num_parameters(config),
        steps=steps,
        tokens=round(tokens),
        hours=steps * mean / 3600,
        seconds_per_step=seconds[0],
        memory_bytes=memory_bytes(),
        disk_bytes=state * (recipe.checkpoints.keep + POINTED + 1) + 4 * num_parameters(config),
        device=str(device),
    )


def time_stage(recipe: Recipe, stage: Stage, model: BertModel) -> float:
    """Seconds of one global step on one process."""
    options = LoopOptions(bf16=recipe.precision == "bfloat16", compile=recipe.compile, log_every=1)
    single = Stage(stage.max_length, stage.tokens_per_batch, 1, stage.masking)
    optimizers = build_optimizers(model, recipe.optimizer)
    feed = RandomFeed(stage, model.config.vocab_size)
    progress = Progress(NUM_WARM)
    Trainer(model, [feed], StepPlan((single,)), optimizers, recipe.schedule, options, progress).run(
        lambda records: None
    )
    progress = Progress(NUM_TIMED)
    started = time.perf_counter()
    Trainer(model, [feed], StepPlan((single,)), optimizers, recipe.schedule, options, progress).run(
        lambda records: None
    )
    return (time.perf_counter() - started) / NUM_TIMED * stage.micro_batches
