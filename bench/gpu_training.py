"""One pre-training configuration on a GPU: tokens a second of bertkit and of transformers, on the same examples.

What counts for bertkit: its own loop, with fresh batches from a token store through the loader, float32 weights,
AdamW, clipping. The peer gets the same examples, padded, built before its clock starts; bf16 autocast, SDPA, fused
AdamW, clipping; eager or compiled. Where sequences are meant to be full, its rows are filled to the last place, and eager
it is given no mask, so that it need not look whether that hides anything; compiled it makes one where none is given, at
some cost, so it is given what its tokenizer would give. Rates are of real tokens.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor

from bertkit.corpus.store import TokenStore
from bertkit.model.bert import BertModel
from bertkit.model.config import preset
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.tokenizer import Tokenizer
from bertkit.training.flops import step_flops
from bertkit.training.loop import LoopOptions, Progress, StepRecord, Trainer
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import Stage, StepPlan
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.world import World

DEVICE = torch.device("cuda")
GROUP = 25  # steps timed together
WARM = 1  # groups that do not count
PEER_GROUP, PEER_WARM, PEER_STEPS = 8, 8, 24  # batches
ADAMW = OptimizerConfig(learning_rate=1e-4)
Ways = dict[str, Callable[[], dict[str, Any]]]  # a row of the table: each way's name, and what measures it


@dataclass(frozen=True)
class Work:
    """What is trained."""

    name: str
    size: str
    max_length: int
    tokens_per_batch: int
    short_share: float = 0.0
    micro_batches: int = 1

    @property
    def is_full(self) -> bool:
        """Whether every sequence is meant to reach the full length."""
        return self.short_share == 0.0


@dataclass(frozen=True)
class Data:
    """Where text comes from."""

    store: TokenStore
    tokenizer: Tokenizer
    folder: str  # the tokenizer's
    workers: int = 4

    def feed(self, work: Work) -> PretrainingFeed:
        """The work's micro-batches."""
        config = FeedConfig(
            max_length=work.max_length, tokens_per_batch=work.tokens_per_batch, short_share=work.short_share
        )
        return PretrainingFeed(self.store, self.tokenizer, config)


@dataclass(frozen=True)
class Rate:
    """Real tokens a second of one way of computing."""

    way: str
    tokens_per_second: float
    spread: tuple[float, float]
    steps: int
    model_flops: float = 0.0
    memory_gib: float = 0.0
    groups: list[float] = field(default_factory=list)


def bertkit_rate(
    work: Work,
    data: Data,
    steps: int = 200,
    *,
    way: str = "bertkit",
    dropout: float = 0.0,
    optimizer: OptimizerConfig = ADAMW,
    **options: Any,
) -> Rate:
    """Steady steps of the product's own loop."""
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    config = preset(work.size, vocab_size=data.tokenizer.vocab_size, hidden_dropout=dropout, attention_dropout=dropout)
    with DEVICE:
        model = BertModel(config)
    stage = Stage(work.max_length, work.tokens_per_batch, work.micro_batches)
    trainer = Trainer(
        model,
        [data.feed(work)],
        StepPlan((stage,)),
        build_optimizers(model, optimizer),
        ScheduleConfig(),
        LoopOptions(log_every=GROUP, dtype=torch.bfloat16, workers=data.workers, **{"kernels": "auto", **options}),
        Progress(steps + WARM * GROUP),
        World(device=DEVICE),
    )
    groups: list[list[StepRecord]] = []
    trainer.run(lambda records: groups.append(records) if len(records) == GROUP else None)
    steady = groups[WARM:]
    rates = [sum(r.counts.num_tokens for r in group) / sum(r.seconds for r in group) for group in steady]
    flops = [step_flops(config, r.counts, work.max_length) / r.seconds for group in steady for r in group]
    result = make_rate(way, rates, GROUP * len(steady), median(flops))
    del trainer, model
    clean()
    return result


def make_rate(way: str, rates: list[float], steps: int, flops: float = 0.0) -> Rate:
    """The median of the groups, with its range."""
    memory = torch.cuda.max_memory_allocated() / 2**30
    return Rate(way, median(rates), (min(rates), max(rates)), steps, flops, memory, rates)


def clean() -> None:
    """Give memory back."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def transformers_rate(
    work: Work,
    data: Data,
    *,
    compiled: bool,
    dropout: float = 0.1,
    steps: int = PEER_STEPS,
    warm: int = PEER_WARM,
    way: str = "",
) -> Rate:
    """The peer: BertForPreTraining, padded batches of the same examples."""
    from transformers import BertConfig, BertForPreTraining

    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    sizes = preset(work.size)
    config = BertConfig(
        vocab_size=-(-data.tokenizer.vocab_size // 64) * 64,  # a width that products like
        hidden_size=sizes.hidden_size,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    config._attn_implementation = "sdpa"
    with DEVICE:
        model = BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    # Backward too before anything is computed: that needs no memory, and what comes out runs as fast (docs/log.md).
    torch._functorch.config.force_non_lazy_backward_lowering = True
    run = torch.compile(model) if compiled else model
    batches = list(padded_batches(data.feed(work), work, warm + steps))
    rates = []
    for first in range(0, len(batches), PEER_GROUP):
        torch.cuda.synchronize()
        began, tokens = time.perf_counter(), 0
        for number, (inputs, real) in enumerate(batches[first : first + PEER_GROUP], 1):
            if work.is_full and not compiled:
                del inputs["attention_mask"]
            moved = {name: tensor.to(DEVICE, non_blocking=True) for name, tensor in inputs.items()}
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(**moved).loss / work.micro_batches
            loss.backward()
            tokens += real
            if number % work.micro_batches == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if first >= warm:
            rates.append(tokens / (time.perf_counter() - began))
    result = make_rate(way or f"transformers {'compiled' if compiled else 'eager'}", rates, steps)
    del model, optimizer, run
    clean()
    return result


def padded_batches(feed: PretrainingFeed, work: Work, num: int) -> Iterator[tuple[dict[str, Tensor], int]]:
    """The feed's examples as the peer takes them, always as many rows, pinned, with their number of real tokens."""
    size = work.tokens_per_batch // work.max_length
    waiting: dict[str, Tensor] = {}
    index = 0
    for _ in range(num):
        while not waiting or len(waiting["labels"]) < size:
            rows = padded_rows(feed.micro_batch(index), work.max_length, repeated=work.is_full)
            waiting = {name: torch.cat([waiting[name], rows[name]]) if waiting else rows[name] for name in rows}
            index += 1
        batch = {name: tensor[:size].pin_memory() for name, tensor in waiting.items()}
        waiting = {name: tensor[size:] for name, tensor in waiting.items()}
        mask = batch["attention_mask"]
        if work.is_full:
            mask.fill_(1)
        yield batch, int(mask.sum())


def padded_rows(batch: PretrainingBatch, length: int, *, repeated: bool = False) -> dict[str, Tensor]:
    """A packed batch as rows of one length; beyond a sequence's end stands 0, or the sequence again, unlabelled."""
    used = batch.next_labels != IGNORED
    starts = batch.inputs.cu_seqlens[:-1].long()[used]
    sizes = batch.inputs.cu_seqlens.diff().long()[used]
    columns = torch.arange(length)
    mask = columns < sizes[:, None]
    rows = starts[:, None] + columns % sizes[:, None]
    labels = torch.full((batch.inputs.num_tokens,), IGNORED)
    masked = batch.masked_token_ids != IGNORED
    labels[batch.masked_positions[masked]] = batch.masked_token_ids[masked]
    return {
        "input_ids": batch.inputs.token_ids[rows] * (mask | repeated),
        "token_type_ids": batch.inputs.segment_ids[rows] * (mask | repeated),
        "attention_mask": mask.long(),
        "labels": torch.where(mask, labels[rows], IGNORED),
        "next_sentence_label": batch.next_labels[used],
    }
