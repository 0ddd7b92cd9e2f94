"""Embedding the SST-2 development set with MiniLM on this machine's CPU: bertkit beside its peers.

    python -m bench.embed_cpu [--repeats 5] [--json out.json]

Every contender embeds all texts in every round; rounds alternate, so that a busy moment hits all alike. Peers run as
their users run them: transformers padded in batches of 32 in the given order (and, as its best, sorted by length),
sentence-transformers with its defaults.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
import transformers
from numpy.typing import NDArray

import bertkit
from bench.data import MINILM, sst2_dev
from bench.versions import versions

BATCH = 32
Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Result:
    """One contender's rounds."""

    name: str
    seconds: list[float]
    texts_per_second: float  # at the median
    ratio: float  # to transformers in batches of 32 in the given order
    min_cosine: float  # to the same


def transformers_embedder(texts: list[str], order: list[int]) -> Callable[[], Vectors]:
    """Masked mean over padded batches, in this order."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    model = transformers.AutoModel.from_pretrained(MINILM).eval()

    def embed() -> Vectors:
        vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, return_tensors="pt")
                hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
                vectors[rows] = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
        return vectors

    return embed


def make_contenders(texts: list[str]) -> dict[str, Callable[[], Vectors]]:
    """Name to a function that embeds all texts."""
    given = list(range(len(texts)))
    by_length = sorted(given, key=lambda i: len(texts[i]))
    ours = bertkit.load(MINILM, device="cpu")
    sentence = sentence_transformers.SentenceTransformer(str(MINILM), device="cpu")
    return {
        "transformers, batches of 32, given order": transformers_embedder(texts, given),
        "transformers, sorted by length": transformers_embedder(texts, by_length),
        "sentence-transformers": lambda: np.asarray(sentence.encode(texts, batch_size=BATCH)),
        "bertkit": lambda: ours.embed(texts),
    }


def measure(contenders: dict[str, Callable[[], Vectors]], repeats: int) -> list[Result]:
    """Alternate rounds after one to warm up."""
    vectors = {name: embed() for name, embed in contenders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, embed in contenders.items():
            start = time.perf_counter()
            embed()
            seconds[name].append(time.perf_counter() - start)
    first = next(iter(contenders))
    results = []
    for name in contenders:
        median, base = statistics.median(seconds[name]), statistics.median(seconds[first])
        cosine = min_cosine(vectors[name], vectors[first])
        results.append(Result(name, seconds[name], len(vectors[name]) / median, base / median, cosine))
    return results


def min_cosine(a: Vectors, b: Vectors) -> float:
    """The least similar pair of rows."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / norms).min())


def main() -> None:
    """Measure and print a table; also JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    texts = sst2_dev()
    results = measure(make_contenders(texts), arguments.repeats)
    about = {**versions("transformers", "sentence-transformers"), "threads": str(torch.get_num_threads())}
    print(
        f"MiniLM, {len(texts)} texts of SST-2 dev, {arguments.repeats} rounds; "
        + ", ".join(map(" ".join, about.items()))
    )
    print(
        "\n| contender | texts/s (median) | seconds, fastest to slowest | ratio | least cosine |\n|---|---|---|---|---|"
    )
    for row in results:
        spread = f"{min(row.seconds):.2f} to {max(row.seconds):.2f}"
        print(f"| {row.name} | {row.texts_per_second:.0f} | {spread} | {row.ratio:.2f} | {row.min_cosine:.6f} |")
    if arguments.json:
        record = {"versions": about, "results": [asdict(row) for row in results]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
