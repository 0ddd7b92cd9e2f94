"""A run small enough for tests: documents of random words in memory, a feed by number, a recipe.

As a program (`python -m tests.training.tiny OUT STEPS [--resume] [--fsdp] [--sharded] [--grow]`) it is a run that tests
can kill.
"""

import json
import sys
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from bertkit.corpus.masking import generator
from bertkit.corpus.pairs import PairConfig
from bertkit.corpus.prepare.run import prepare
from bertkit.tasks.examples import collate
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.tasks.stream import draw_examples
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer, train_vocabulary
from bertkit.training.data import RunData
from bertkit.training.feeds import StepCounts
from bertkit.training.growth import GrowthConfig
from bertkit.training.recipe import Recipe
from bertkit.training.run import RunResult, run_pretraining
from bertkit.training.toml_text import to_dataclass
from bertkit.training.world import leave_world

WORDS = [f"w{index}" for index in range(40)]
SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_positions": 32}
RECIPE: dict[str, Any] = {
    "steps": 12,
    "seed": 3,
    "device": "cpu",
    "log_every": 1,
    "model": {"size": "tiny", "changes": {**SIZES, "hidden_dropout": 0.1, "attention_dropout": 0.1}},
    "data": {"workers": 0},
    "stages": [{"max_length": 16, "tokens_per_batch": 64, "micro_batches": 2}],
    "optimizer": {"learning_rate": 5e-3},
    "evaluation": {"every_steps": 4, "num_batches": 2},
    "checkpoints": {"every_steps": 3, "keep": 2},
}


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)


@cache
def documents() -> list[list[list[int]]]:
    random = generator(7)
    return [[(5 + random.integers(0, 40, 4)).tolist() for _ in range(5)] for _ in range(12)]


class MemoryFeed:
    """Four pairs a micro-batch, drawn by (seed, index)."""

    def __init__(self, seed: int, size: int = 4) -> None:
        self.seed, self.size = seed, size

    @lru_cache(maxsize=512)  # noqa: B019 - a feed lives as long as its test
    def micro_batch(self, index: int) -> PretrainingBatch:
        drawn = draw_examples(documents(), tokenizer(), PairConfig(max_length=16), generator(self.seed, index))
        return collate(drawn[: self.size])

    def counts(self, index: int) -> StepCounts:
        batch = self.micro_batch(index)
        return StepCounts(len(batch.masked_token_ids), len(batch.inputs), batch.inputs.num_tokens)


class WholeFeed:
    """Every `num` micro-batches of another feed as one."""

    def __init__(self, feed: MemoryFeed, num: int) -> None:
        self.feed, self.num = feed, num

    def micro_batch(self, index: int) -> PretrainingBatch:
        examples = []
        for part in range(index * self.num, (index + 1) * self.num):
            random = generator(self.feed.seed, part)
            examples += draw_examples(documents(), tokenizer(), PairConfig(max_length=16), random)[: self.feed.size]
        return collate(examples)

    def counts(self, index: int) -> StepCounts:
        batch = self.micro_batch(index)
        return StepCounts(len(batch.masked_token_ids), len(batch.inputs), batch.inputs.num_tokens)


def prepare_sample(folder: Path, size: int) -> None:
    """The sample text as folder/vocab and folder/store."""
    text = folder / "text.txt"
    text.write_text("\n\n".join("\n".join(document) for document in sample_documents()), encoding="utf-8")
    made = train_vocabulary((line for document in sample_documents() for line in document), size=size, lowercase=True)
    made.save(folder / "vocab")
    prepare([text], made, folder / "store", workers=1)


def recipe(**changes: Any) -> Recipe:
    return replace(to_dataclass(Recipe, RECIPE), **changes)


def data(num_stages: int = 1) -> RunData:
    return RunData(tokenizer(), [MemoryFeed(100 + stage) for stage in range(num_stages)], MemoryFeed(999))


def run(out: Path, made: Recipe, *, resume: bool = False) -> RunResult:
    return run_pretraining(made, out, resume=resume, data=data(len(made.stages)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = recipe(
        steps=int(sys.argv[2]),
        parallel="fsdp" if "--fsdp" in sys.argv else "ddp",
        checkpoints=replace(recipe().checkpoints, sharded="--sharded" in sys.argv),
        growth=GrowthConfig((1,), (0.5,)) if "--grow" in sys.argv else GrowthConfig(),
    )
    finished = run(Path(sys.argv[1]), made, resume="--resume" in sys.argv)
    print(json.dumps(asdict(finished)))
    leave_world()
