"""bertkit beside its peers on this machine: texts a second offline, and milliseconds for one text at a time.

In: a checkpoint folder and texts. Out: a row a contestant. Rounds alternate, and single texts in blocks, so that whatever
else runs here disturbs all alike; rates are medians over rounds; cosines are to transformers' float32, or PyTorch's without it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.cores import has_bfloat16
from bertkit.errors import BertkitError
from bertkit.inference.embedding import normalized
from bertkit.inference.engines.peers import peers_of
from bertkit.inference.loading import load
from bertkit.model.formats import resolve
from bertkit.text.samples import sample_documents

Vectors = NDArray[np.float32]
Contestant = Callable[[Sequence[str]], Vectors]  # texts -> mean of the last layer's vectors, [N, D]
SINGLE_BLOCK = 10  # texts one at a time, then it is the next contestant's turn
NUM_WARM = 3  # texts before each block, which bring weights into caches
SETTLING = 0.1  # seconds before that: the threads of the contestant before spin on for a while


@dataclass(frozen=True)
class BenchOptions:
    """How long to measure."""

    rounds: int = 3
    num_single: int = 50  # texts asked for one at a time, a round
    max_length: int = 256
    threads: int | None = None
    peers: bool = True

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.num_single < 1 or self.max_length < 3:
            raise BertkitError("rounds and single texts must be at least 1, and the length at least 3")


@dataclass
class Measured:
    """One contestant's figures."""

    name: str
    seconds: list[float] = field(default_factory=list)  # of all texts, a round each
    single: list[float] = field(default_factory=list)  # of one text each
    lowest_cosine: float = 1.0
    mean_cosine: float = 1.0


@dataclass(frozen=True)
class BenchRow:
    """What is shown of it."""

    name: str
    texts_per_second: float
    milliseconds: float  # one text at a time, the median
    milliseconds_p95: float
    lowest_cosine: float
    mean_cosine: float


@dataclass(frozen=True)
class BenchResult:
    """All rows, peers first, and what they were measured on."""

    model: str
    num_texts: int
    rows: list[BenchRow]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def sample_texts(num: int) -> list[str]:
    """Sentences of the sample text, repeated where more are asked for than it has."""
    sentences = [sentence for document in sample_documents() for sentence in document]
    return [sentences[i % len(sentences)] for i in range(num)]


def bench(
    folder: str | Path,
    texts: Sequence[str],
    options: BenchOptions | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Measure bertkit's engines and the peers that are installed, on these texts."""
    options = options or BenchOptions()
    if not texts:
        raise BertkitError("no texts to measure on; give a file with at least one line")
    contestants, notes = gather(folder, options)
    found = [Measured(name) for name in contestants]
    reference = next(iter(contestants.values()))(texts)
    singles = texts[:: max(1, len(texts) // options.num_single)][: options.num_single]
    for number in range(options.rounds + 1):  # the first is for warming up, and for cosines
        for measured, run in zip(found, contestants.values(), strict=True):
            progress(f"round {number} of {options.rounds}: {measured.name}")
            measure(measured, run, texts, reference if number == 0 else None)
        if number == 0:
            continue
        for start in range(0, len(singles), SINGLE_BLOCK):
            progress(f"round {number} of {options.rounds}, one text at a time: {start} of {len(singles)}")
            for measured, run in zip(found, contestants.values(), strict=True):
                measure_single(measured, run, singles[start : start + SINGLE_BLOCK])
    return BenchResult(str(folder), len(texts), [row_of(one, len(texts)) for one in found], notes)


def gather(folder: str | Path, options: BenchOptions) -> tuple[dict[str, Contestant], list[str]]:
    """Who is measured: peers first, the first of all is what cosines are to."""
    contestants: dict[str, Contestant] = {}
    notes: list[str] = []
    if options.peers:
        contestants, notes = peers_of(resolve(str(folder)), options.max_length, options.threads)
    for engine, name in (("torch", "bertkit, PyTorch"), ("onnx", "bertkit float32"), ("int8", "bertkit int8")):
        contestants[name] = own(folder, engine, options)
    if has_bfloat16():
        contestants["bertkit bfloat16"] = own(folder, "torch", options, dtype="bfloat16")
    return contestants, notes


def own(folder: str | Path, engine: str, options: BenchOptions, dtype: str = "float32") -> Contestant:
    """bertkit by one engine, as people call it."""
    bert = load(folder, device="cpu", dtype=dtype, engine=engine, threads=options.threads)
    asked: dict[str, Any] = {"pooling": "mean", "normalize": False, "long": "truncate"}
    length = min(options.max_length, bert.config.max_positions)

    def run(texts: Sequence[str]) -> Vectors:
        return np.asarray(bert.embed(list(texts), max_length=length, **asked), np.float32)

    return run


def measure(measured: Measured, run: Contestant, texts: Sequence[str], reference: Vectors | None) -> None:
    """One round of one contestant; the warming round only compares vectors."""
    start = time.perf_counter()
    vectors = run(texts)
    taken = time.perf_counter() - start
    if reference is not None:
        cosines = (normalized(vectors) * normalized(reference)).sum(axis=1)
        measured.lowest_cosine, measured.mean_cosine = float(cosines.min()), float(cosines.mean())
    else:
        measured.seconds.append(taken)


def measure_single(measured: Measured, run: Contestant, texts: Sequence[str]) -> None:
    """Texts one at a time, as they come to a server that is not busy."""
    time.sleep(SETTLING)
    for text in texts[:NUM_WARM]:
        run([text])
    for text in texts:
        start = time.perf_counter()
        run([text])
        measured.single.append(time.perf_counter() - start)


def row_of(measured: Measured, num_texts: int) -> BenchRow:
    """The medians."""
    return BenchRow(
        name=measured.name,
        texts_per_second=num_texts / float(np.median(measured.seconds)),
        milliseconds=1000 * float(np.median(measured.single)),
        milliseconds_p95=1000 * float(np.quantile(measured.single, 0.95)),
        lowest_cosine=measured.lowest_cosine,
        mean_cosine=measured.mean_cosine,
    )
