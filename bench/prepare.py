"""`bertkit prepare` beside `tokenizers` alone, and the original data script for scale, on one file of real text.

    python -m bench.prepare --tokenizer build/vocab-en

`tokenizers` alone gets the sentences (or paragraphs) ready in memory and only encodes, on all cores. bertkit reads the
packed file, cleans, splits, encodes, compares all paragraphs and writes the store, on the same cores in the same run.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from bench.data import ROOT
from bench.prepare_original import make_examples
from bertkit.cores import num_cores
from bertkit.corpus.prepare.run import prepare
from bertkit.text.documents import Document, read_documents
from bertkit.text.sentences import document_sentences
from bertkit.tokenizer import Tokenizer

BATCH = 10_000
ORIGINAL_CHARACTERS = 1_000_000
COPIES = 10


@dataclass(frozen=True)
class Row:
    """One contender: the seconds and CPU seconds of each round for the whole text, and what is on disk afterwards."""

    name: str
    seconds: list[float]
    cpu_seconds: list[float]  # of all processes; they tell more where others use the machine too
    disk_bytes: int | None


def corpus_file(name: str) -> Path:
    """A file of the corpus in the data folder."""
    path = Path(os.environ.get("BERTKIT_DATA", ROOT.parent / "shared" / "data")) / "corpus" / name
    if not path.is_file():
        raise SystemExit(f"{path} is not there; name the data folder in BERTKIT_DATA")
    return path


def encode_alone(backend: tokenizers.Tokenizer, texts: list[str]) -> None:
    """The yardstick: nothing but encoding, and the results are thrown away."""
    for start in range(0, len(texts), BATCH):
        backend.encode_batch_fast(texts[start : start + BATCH], add_special_tokens=False)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of computing in this process and those that it started and waited for."""
    start, before = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - start, sum(os.times()[:4]) - before


def measure(path: Path, vocabulary: Path, rounds: int) -> tuple[list[Row], int]:
    """All contenders, one after the other in each round; also the number of characters."""
    documents = list(read_documents(path))
    sentences = [sentence for doc in documents for paragraph in document_sentences(doc) for sentence in paragraph]
    paragraphs = [paragraph for document in documents for paragraph in document.paragraphs]
    tokenizer = Tokenizer.load(vocabulary)
    backend = tokenizers.Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    backend.no_truncation()
    with tempfile.TemporaryDirectory() as folder:
        stores = (Path(folder) / f"store-{number}" for number in itertools.count())
        contenders: dict[str, Callable[[], object]] = {
            "`tokenizers` alone, sentences in memory": lambda: encode_alone(backend, sentences),
            "`tokenizers` alone, paragraphs in memory": lambda: encode_alone(backend, paragraphs),
            "`bertkit prepare`, packed file to store": lambda: prepare([path], tokenizer, next(stores)),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, work in contenders.items():
                times[name].append(timed(work))
        disk = sum(file.stat().st_size for file in (Path(folder) / "store-0").iterdir())
        rows = [
            Row(name, [wall for wall, _ in pairs], [cpu for _, cpu in pairs], disk if "bertkit" in name else None)
            for name, pairs in times.items()
        ]
        return [*rows, original(documents, tokenizer, Path(folder))], sum(map(len, paragraphs))


def original(documents: list[Document], tokenizer: Tokenizer, folder: Path) -> Row:
    """The original script on a slice, extrapolated to the whole text."""
    total = sum(len(paragraph) for document in documents for paragraph in document.paragraphs)
    chosen, size = [], 0
    for document in documents:
        chosen.append([sentence for paragraph in document_sentences(document) for sentence in paragraph])
        size += sum(map(len, document.paragraphs))
        if size >= ORIGINAL_CHARACTERS:
            break
    vocab = {token: index for index, token in enumerate(tokenizer.tokens)}
    seconds, cpu_seconds = timed(lambda: make_examples(chosen, vocab, folder / "examples", copies=COPIES))
    scale = total / size
    name = f"original script, one core, {COPIES} masked copies (extrapolated from {size / total:.1%} of the text)"
    return Row(name, [seconds * scale], [cpu_seconds * scale], round((folder / "examples").stat().st_size * scale))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "build" / "vocab-en")
    parser.add_argument("--file", default="wikipedia-simple.txt.xz")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, characters = measure(corpus_file(arguments.file), arguments.tokenizer, arguments.rounds)
    base = statistics.median(rows[0].seconds)
    print(
        f"{arguments.file}, {characters / 1e6:.1f} million characters, {num_cores()} cores, {arguments.rounds} rounds; "
        f"tokenizers {tokenizers.__version__}\n"
    )
    heading = (
        "contender",
        "M characters/s (median)",
        "seconds, fastest to slowest",
        "CPU seconds",
        "ratio",
        "MB on disk",
    )
    print(f"| {' | '.join(heading)} |\n{'|---' * len(heading)}|")
    for row in rows:
        median = statistics.median(row.seconds)
        disk = "" if row.disk_bytes is None else f"{row.disk_bytes / 1e6:,.0f}"
        spread = " to ".join(f"{value:,.1f}" for value in sorted({min(row.seconds), max(row.seconds)}))
        print(
            f"| {row.name} | {characters / median / 1e6:.2f} | {spread} | {statistics.median(row.cpu_seconds):,.1f} | {base / median:.2f} | {disk} |"
        )


if __name__ == "__main__":
    main()
