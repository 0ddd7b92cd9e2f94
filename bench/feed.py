"""The loader alone: tokens a second with worker processes, and how long an epoch takes to plan.

    python -m bench.feed [--store FOLDER] [--workers 2] [--seconds 5] [--needed 8e6] [--json out.json]

Without a token store, a made-up corpus of `--tokens` tokens with the sentence and document lengths of the real one
(encyclopedia articles, and books as single documents). `--needed` is the rate that a model consumes, to compare with.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import numpy as np

from bertkit.corpus.masking import MaskingConfig
from bertkit.corpus.pairs import MemoryShard
from bertkit.corpus.plan.layout import TokenShard
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed
from bertkit.tasks.feed.sources import FeedVocabulary
from bertkit.tasks.feed.workers import prefetch

VOCAB_SIZE = 30_522
TOKENS_PER_BATCH = 8192


@dataclass(frozen=True)
class Store:
    """Anything with shards."""

    shards: list[TokenShard]


@dataclass(frozen=True)
class Result:
    """One setting."""

    max_length: int
    whole_word: bool
    corpus_tokens: int
    plan_seconds: float  # one core: layout not included, packing included
    bytes_per_example: float
    fill: float
    counts_per_second: float
    one_process_tokens_per_second: float
    workers: int
    tokens_per_second: float  # of real tokens, from the workers, at the consumer


@contextmanager
def open_store(folder: Path | None, num_tokens: int) -> Iterator[Store]:
    """A prepared store, or one made up in a temporary folder, memory-mapped all the same."""
    if folder is not None:
        from bertkit.corpus.store import TokenStore

        yield Store(list(TokenStore.open(folder).shards))
        return
    with tempfile.TemporaryDirectory(prefix="bertkit-bench-") as name:
        yield Store([make_shard(Path(name) / "tokens", num_tokens)])


def make_shard(path: Path, num_tokens: int) -> MemoryShard:
    """Articles of about 70 sentences, one document in 250 a book of 4,000, sentences of about 23 tokens."""
    random = np.random.default_rng(0)
    num_documents = max(4, num_tokens // 2_000)
    documents = random.lognormal(4.0, 0.8, num_documents).astype(np.int64) + 2
    documents[::250] = 4000
    sentences = random.lognormal(2.9, 0.7, int(documents.sum())).astype(np.int64) + 1
    offsets = np.concatenate([[0], np.cumsum(sentences)])
    documents = np.concatenate([[0], np.cumsum(documents)])
    documents = documents[: max(3, int(np.searchsorted(offsets[documents], num_tokens)) + 1)]
    offsets = offsets[: documents[-1] + 1]
    random.integers(5, VOCAB_SIZE, offsets[-1], dtype=np.uint16).tofile(path)
    return MemoryShard(np.asarray(np.memmap(path, np.uint16, mode="r")), offsets, documents)


def measure(store: Store, config: FeedConfig, workers: int, seconds: float) -> Result:
    """Plan an epoch, build batches here, then in workers."""
    ids = np.arange(VOCAB_SIZE)
    vocabulary = FeedVocabulary(1, 2, 3, 0, ids < 5, ids % 4 == 0, ids[5:])
    feed = PretrainingFeed(store, vocabulary, config)
    start = time.perf_counter()
    epoch = feed.arrays.build_epoch(1)
    plan_seconds = time.perf_counter() - start
    num_bytes = epoch.plan.num_bytes + epoch.packing.order.nbytes + epoch.packing.lengths.nbytes
    return Result(
        max_length=config.max_length,
        whole_word=config.masking.whole_word,
        corpus_tokens=int(feed.arrays.layout.unit_offsets[-1]),
        plan_seconds=plan_seconds,
        bytes_per_example=num_bytes / len(epoch.plan),
        fill=epoch.packing.fill(config.tokens_per_batch),
        counts_per_second=_rate(map(feed.counts, count()), seconds / 5),
        one_process_tokens_per_second=_rate(map(feed.micro_batch, count()), seconds / 2) * _real_tokens(feed),
        workers=workers,
        tokens_per_second=_rate(prefetch(feed, count(), workers), seconds, warm_up=50) * _real_tokens(feed),
    )


def _real_tokens(feed: PretrainingFeed) -> float:
    return float(np.mean([feed.counts(index).num_tokens for index in range(50)]))


def _rate(items: Iterator[object], seconds: float, warm_up: int = 3) -> float:
    """Items a second, once things are going."""
    for _ in range(warm_up):
        next(items)
    start, number = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        next(items)
        number += 1
    if close := getattr(items, "close", None):
        close()
    return number / elapsed


def print_table(results: list[Result], needed: float | None) -> None:
    """For people."""
    print("| length | whole words | corpus | plan | bytes/example | fill | one process | workers | loader |", end="")
    print(" of needed |" if needed else "")
    print("|---|---|---|---|---|---|---|---|---|" + ("---|" if needed else ""))
    for row in results:
        print(
            f"| {row.max_length} | {'yes' if row.whole_word else 'no'} | {row.corpus_tokens / 1e6:.0f} M "
            f"| {row.plan_seconds:.1f} s | {row.bytes_per_example:.0f} | {row.fill:.2%} "
            f"| {row.one_process_tokens_per_second / 1e6:.1f} M/s | {row.workers} "
            f"| {row.tokens_per_second / 1e6:.1f} M/s |",
            f"{row.tokens_per_second / needed:.1f} x |" if needed else "",
        )


def main() -> None:
    """Measure and print a table; also JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--tokens", type=lambda text: int(float(text)), default=135_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--needed", type=float, help="tokens a second that the model consumes, such as tiny's")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = [(length, whole) for length in (128, 512) for whole in (False, True)]
    with open_store(arguments.store, arguments.tokens) as store:
        results = [
            measure(
                store,
                FeedConfig(length, TOKENS_PER_BATCH, MaskingConfig(whole_word=whole)),
                arguments.workers,
                arguments.seconds,
            )
            for length, whole in settings
        ]
    print(f"micro-batches of {TOKENS_PER_BATCH} tokens; numpy {np.__version__}, python {platform.python_version()}\n")
    print_table(results, arguments.needed)
    if arguments.json:
        record = {"needed": arguments.needed, "results": [asdict(row) for row in results]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
