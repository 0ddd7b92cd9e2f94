"""Sentence vectors on CPUs by bertkit's engines and by its peers: MiniLM and base, SST-2 dev and IMDB reviews.

    python -m bench.cpu [--models minilm base] [--data sst2 imdb] [--texts 872] [--rounds 3] [--threads 2] [--json out]

The same as `bertkit bench`, with ratios. Base has random weights, which run at the same speed; its cosines say nothing
about trained models. Contestants take turns; rates are medians. Run it on a quiet machine: two cores take about 3
minutes for MiniLM on SST-2 and 4 on IMDB, 10 and 16 for base.
"""

import argparse
import json
import lzma
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import torch

from bench.data import MINILM, ROOT, sst2_dev
from bertkit.errors import LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.engines.bench import BenchOptions, BenchResult, bench
from bertkit.model import BertModel, preset
from bertkit.tokenizer import Tokenizer

BASE = ROOT / "build" / "random-base"


def base_folder() -> Path:
    """BERT-base with random weights over MiniLM's vocabulary, made once."""
    if not (BASE / "model.safetensors").is_file():
        torch.manual_seed(0)
        model = BertModel(preset("base", heads=("pooler",)))
        Bert(model, Tokenizer.load(MINILM)).save(BASE)
    return BASE


def imdb(num: int) -> list[str]:
    """Reviews spread over the test set."""
    data = Path(os.environ.get("BERTKIT_DATA", ROOT.parent / "shared" / "data"))
    found = sorted((data / "tasks" / "imdb").glob("test*"))
    if not found:
        raise SystemExit(f"bench: no imdb/test.jsonl.xz under {data / 'tasks'}; set BERTKIT_DATA to the data folder")
    with lzma.open(found[0], "rt", encoding="utf-8") as file:
        reviews = [json.loads(line)["text"] for line in file]
    return reviews[:: max(1, len(reviews) // num)][:num]


def show(title: str, result: BenchResult) -> None:
    """A Markdown table with ratios to the peers that the goal names."""
    rows = {row.name: row for row in result.rows}
    first = result.rows[0].texts_per_second
    int8 = max((row.texts_per_second for name, row in rows.items() if "Runtime" in name and "int8" in name), default=1)
    print(f"\n{title}, {result.num_texts} texts\n")
    print(
        "| | texts/s | x transformers | x best Runtime int8 | ms for one | 95 % | lowest cosine |\n|---|---|---|---|---|---|---|"
    )
    for row in result.rows:
        rates = f"{row.texts_per_second:.1f} | {row.texts_per_second / first:.2f} | {row.texts_per_second / int8:.2f}"
        times = f"{row.milliseconds:.1f} | {row.milliseconds_p95:.1f}"
        print(f"| {row.name} | {rates} | {times} | {row.lowest_cosine:.4f} |")
    print(*result.notes, sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--models", nargs="+", choices=("minilm", "base"), default=["minilm", "base"])
    parser.add_argument("--data", nargs="+", choices=("sst2", "imdb"), default=["sst2", "imdb"])
    parser.add_argument("--texts", type=int, default=872)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--single", type=int, default=50, help="texts asked for one at a time, a round; reviews: a quarter"
    )
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", LongTextWarning)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    found = {}
    for model in asked.models:
        for data in asked.data:
            share = 1 if data == "sst2" else 4
            num = max(1, asked.texts if share == 1 else asked.texts // 8)
            single = max(1, asked.single // share)
            options = BenchOptions(rounds=asked.rounds, num_single=single, threads=asked.threads)
            texts = sst2_dev()[:num] if data == "sst2" else imdb(num)
            folder = MINILM if model == "minilm" else base_folder()
            result = bench(folder, texts, options, progress=lambda line: print(line, file=sys.stderr))
            show(f"{model}, {data}", result)
            found[f"{model}/{data}"] = asdict(result)
    print(f"load: {os.getloadavg()[0]:.1f}")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
