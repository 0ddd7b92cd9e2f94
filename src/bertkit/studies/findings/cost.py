"""What a size of BERT costs: parameters, FLOPs, memory, hours of the paper's own training, and speed in use.

In: a preset. Out: plain figures. Training is timed by the product's own estimate (a few real steps, random tokens in the
paper's shapes: 900,000 steps of 256 x 128 tokens and 100,000 of 256 x 512), inference by `embed` on texts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import choose_device, choose_dtype
from bertkit.model import BertModel
from bertkit.model.config import BertConfig, num_parameters, preset
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer, train_vocabulary
from bertkit.training.estimate.memory import available_memory, fitting_tokens
from bertkit.training.estimate.recipe import PUBLISHED_SEQUENCES, PUBLISHED_STEPS, Estimate, estimate_recipe
from bertkit.training.feeds import StepCounts
from bertkit.training.flops import step_flops
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage
from bertkit.training.recipe import DataRecipe, ModelRecipe, Recipe

LENGTHS = ((128, 0.9), (512, 0.1))  # tokens a sequence and share of the steps: section A.2
MEMORY_SHARE = 0.7
VOCABULARY = 2000  # of the sample text; the model's own stays 30,522


@dataclass(frozen=True)
class UseConfig:
    """How inference is measured."""

    num_texts: int = 256
    text_words: int = 90  # about 128 tokens each
    num_single: int = 10
    rounds: int = 2

    def __post_init__(self) -> None:
        if min(self.num_texts, self.text_words, self.num_single, self.rounds) < 1:
            raise BertkitError("compute: texts, words, single texts and rounds are at least 1")


def measure_cost(
    size: str, use: UseConfig, device: str = "auto", progress: Callable[[float], None] = lambda share: None
) -> dict[str, Any]:
    """All figures of one size."""
    config = preset(size)
    estimate = estimate_recipe(paper_recipe(config, size, device))
    progress(0.7)
    used = measure_use(config, use, device)
    return {"size": size, **counted(config), **trained(estimate), **used}


def paper_recipe(config: BertConfig, size: str, device: str) -> Recipe:
    """The paper's run of this size; micro-batches are as large as memory allows, a step always 256 sequences."""
    place = choose_device(device)
    half = choose_dtype(place, None) is not torch.float32
    stages = tuple(_fit(config, length, share, place, half=half) for length, share in LENGTHS)
    return Recipe(
        steps=PUBLISHED_STEPS,
        model=ModelRecipe(size),
        data=DataRecipe(workers=0),
        stages=stages,
        device="cuda" if place.type == "cuda" else "cpu",
    )


def _fit(config: BertConfig, length: int, share: float, device: torch.device, *, half: bool) -> Stage:
    whole = Stage(length, PUBLISHED_SEQUENCES * length, 1, share=share)
    room = int(MEMORY_SHARE * available_memory(device))
    tokens = fitting_tokens(config, OptimizerConfig(), whole, device, room, half=half) or length
    return Stage(length, tokens, whole.tokens_per_batch // tokens, share=share)


def counted(config: BertConfig) -> dict[str, float]:
    """What the shape alone decides; FLOPs are those of the matrix products, per token of the paper's mixture."""
    training, forward = 0.0, 0.0
    tokens = sum(share * length for length, share in LENGTHS)
    for length, share in LENGTHS:
        counts = StepCounts(
            round(0.15 * length * PUBLISHED_SEQUENCES), PUBLISHED_SEQUENCES, length * PUBLISHED_SEQUENCES
        )
        training += share * step_flops(config, counts, length) / PUBLISHED_SEQUENCES
    length = LENGTHS[0][0]
    hidden, inter = config.hidden_size, config.intermediate_size
    products = 4 * hidden * hidden + 2 * hidden * inter + 2 * hidden * length
    forward = 2.0 * config.num_layers * products
    encoder = num_parameters(config.with_heads(("pooler",)))
    return {
        "parameters": num_parameters(config),
        "encoder_parameters": encoder,
        "training_flops_per_token": training / tokens,
        "inference_flops_per_token": forward,
        "weights_bytes": 4 * encoder,
    }


def trained(estimate: Estimate) -> dict[str, Any]:
    """From the product's estimate."""
    seconds = 3600 * estimate.training_hours
    return {
        "device": estimate.device,
        "precision": estimate.precision,
        "hours": estimate.training_hours,
        "hours_low": estimate.hours_low,
        "hours_high": estimate.hours_high,
        "tokens_per_second": estimate.tokens / seconds,
        "flops_per_second": estimate.flops / seconds,
        "total_flops": estimate.flops,
        "memory_bytes": estimate.memory_bytes,
        "measured_memory_bytes": estimate.measured_memory_bytes,
        "notes": estimate.notes,
    }


@torch.inference_mode()
def measure_use(config: BertConfig, use: UseConfig, device: str = "auto") -> dict[str, Any]:
    """Texts and tokens a second offline, and milliseconds for one text at a time; random weights are as fast as any."""
    bert = fresh_bert(config, device)
    texts = sample_texts(use)
    num_tokens = sum(len(bert.tokenizer.encode(text)) for text in texts)
    bert.embed(texts[: max(1, len(texts) // 4)])  # warms up
    seconds = [_timed(bert, texts) for _ in range(use.rounds)]
    single = [_timed(bert, [text]) for text in (texts * use.num_single)[: use.num_single + 1]][1:]
    taken = median(seconds)
    return {
        "texts_per_second": len(texts) / taken,
        "inference_tokens_per_second": num_tokens / taken,
        "tokens_per_text": num_tokens / len(texts),
        "milliseconds": 1000 * median(single),
    }


def _timed(bert: Bert, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    bert.embed(list(texts))
    return time.perf_counter() - started


def fresh_bert(config: BertConfig, device: str) -> Bert:
    """An untrained model of this shape, in the precision that `load` would choose."""
    place = choose_device(device)
    torch.manual_seed(0)
    model = BertModel(config.with_heads(("pooler",))).eval().to(place, choose_dtype(place, None))
    return Bert(model, sample_tokenizer())


@cache
def sample_tokenizer() -> Tokenizer:
    """Learned from the sample text."""
    return train_vocabulary(
        [line for document in sample_documents() for line in document], size=VOCABULARY, lowercase=True
    )


def sample_texts(use: UseConfig) -> list[str]:
    """Stretches of the sample text, all of one length in words."""
    words = [word for document in sample_documents() for line in document for word in line.split()]
    starts = [(number * use.text_words) % len(words) for number in range(use.num_texts)]
    return [" ".join((words * 2)[start : start + use.text_words]) for start in starts]
