"""The whole table of speeds on one GPU, peers beside bertkit in the same run, as markdown and JSON.

    python -m bench.gpu --store FOLDER --tokenizer FOLDER -o results [--rows base-128 base-512 ...] [--minutes 9]

Rows that no time is left for are named, never guessed. Every row: median of groups of steady steps, its range, model
FLOP/s of the products really computed. The peers' models are compiled first, all at once, into torch's cache on disk: a
process that compiles gets too little memory to compute, and ends there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.gpu_embedding import encoder_speeds, text_speeds
from bench.gpu_training import Data, Work, bertkit_rate, transformers_rate
from bench.versions import versions
from bertkit.corpus.store import TokenStore
from bertkit.tokenizer import Tokenizer

WORKS = {
    "base-128": Work("base, length 128, full", "base", 128, 131072),
    "base-512": Work("base, length 512, full", "base", 512, 131072),
    "base-512-real": Work("base, length 512, real pairs, 10 % short", "base", 512, 131072, short_share=0.1),
    "large-512": Work("large, length 512, full", "large", 512, 65536),
    "small-128": Work("small, length 128, full", "small", 128, 131072),
}
PEERS = [(False, 0.1), (True, 0.1), (True, 0.0)]  # compiled or eager, and the dropout
COMPILED_ALONE = ("large", "small")  # sizes whose peer is not measured eager
WITHOUT_DROPOUT_TOO = ("base-128",)  # rows whose peer is also measured without
BF16_TOO = ("base-128", "base-512", "small-128")
FEWER = 25  # steps of the way that is not the row's own
COMPILED_AT_ONCE, COMPILING_MEMORY = 6, 0.14  # processes, and the share of the GPU's memory that each has
PEER_TOKENS = {"large": 32768}  # a batch that fits, and 65,536 elsewhere


FIRST_STEP = """
steps = 2
log_every = 1
device = "cuda"
eight_bits = true
tensorboard = false
[model]
size = "base"
changes = {{hidden_dropout = 0.0, attention_dropout = 0.0}}
[data]
store = "{store}"
tokenizer = "{tokenizer}"
workers = 8
[[stages]]
max_length = 128
tokens_per_batch = 131072
[checkpoints]
every_steps = 0
"""


def training_row(name: str, data: Data, peers: list[tuple[bool, float]]) -> list[dict[str, Any]]:
    """bertkit in eight bits and in bf16, then the peer's ways: compiled or not, with this dropout."""
    work = WORKS[name]
    found = [bertkit_rate(work, data, way="bertkit, eight bits", eight_bits=True)]
    if name in BF16_TOO:
        found.append(bertkit_rate(work, data, FEWER, way="bertkit, bf16"))
    for compiled, dropout in peers_of(name, peers):
        way = f"transformers {'compiled' if compiled else 'eager'}, dropout {dropout:g}"
        found.append(transformers_rate(peer_work(work), data, compiled=compiled, dropout=dropout, way=way))
    return [asdict(rate) for rate in found]


def peers_of(name: str, peers: list[tuple[bool, float]]) -> list[tuple[bool, float]]:
    """Those that a row is measured with."""
    eager, without = WORKS[name].size not in COMPILED_ALONE, name in WITHOUT_DROPOUT_TOO
    return [(compiled, dropout) for compiled, dropout in peers if (compiled or eager) and (dropout or without)]


def peer_work(work: Work) -> Work:
    """The same with a batch that the peer has memory for."""
    return replace(work, tokens_per_batch=PEER_TOKENS.get(work.size, 65536))


def compile_peers(names: list[str], peers: list[tuple[bool, float]], given: argparse.Namespace) -> None:
    """Fill torch's cache, a process each; what fails here is compiled when it is measured."""
    command = [sys.executable, "-m", "bench.gpu", "--store", given.store, "--tokenizer", given.tokenizer]
    command += ["-o", str(given.out), "--compile"]
    asked = [
        [*command, name, str(dropout)]
        for name in names
        if name in WORKS
        for compiled, dropout in peers_of(name, peers)
        if compiled
    ]
    with ThreadPoolExecutor(COMPILED_AT_ONCE) as pool:
        list(pool.map(partial(subprocess.run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), asked))


def make_rows(data: Data, peers: list[tuple[bool, float]]) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """Name to what measures it."""
    rows: dict[str, Callable[[], list[dict[str, Any]]]] = {
        name: partial(training_row, name, data, peers) for name in WORKS
    }
    rows["embed-full"] = lambda: [asdict(speed) for speed in encoder_speeds(data)]
    rows["embed-texts"] = lambda: [asdict(speed) for speed in text_speeds(data)]
    rows["first-step"] = lambda: first_step(data)
    return rows


def first_step(data: Data) -> list[dict[str, Any]]:
    """Seconds from the start of `bertkit pretrain` to its first step in the journal; rows before have filled its caches."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, out = Path(folder) / "recipe.toml", Path(folder) / "run"
        recipe.write_text(FIRST_STEP.format(store=data.store.folder, tokenizer=data.folder), encoding="utf-8")
        began = time.monotonic()
        command = [sys.executable, "-m", "bertkit.cli.main", "pretrain", str(recipe), "--out", str(out)]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while run.poll() is None and not has_step(out / "journal.jsonl"):
            time.sleep(0.05)
        seconds = time.monotonic() - began
        if run.wait():
            raise RuntimeError(f"`{' '.join(command)}` failed")
    return [{"way": "bertkit pretrain", "seconds": seconds}]


def has_step(journal: Path) -> bool:
    """Whether a step is written there."""
    return journal.is_file() and '"kind": "step"' in journal.read_text(encoding="utf-8")


def to_markdown(results: dict[str, list[dict[str, Any]]], about: dict[str, str]) -> str:
    """One table."""
    lines = [", ".join(f"{key} {value}" for key, value in about.items()), ""]
    lines += ["| work | way | k/s (range) | TFLOP/s | GiB | min cosine |", "|---|---|---|---|---|---|"]
    for name, found in results.items():
        for one in found:
            if "seconds" in one:
                lines.append(f"| {name} | {one['way']} | {one['seconds']:.1f} s | | | |")
                continue
            rate = one.get("tokens_per_second", one.get("per_second", 0.0))
            low, high = one["spread"]
            flops = f"{one['model_flops'] / 1e12:.0f}" if one.get("model_flops") else ""
            memory = f"{one['memory_gib']:.0f}" if one.get("memory_gib") else ""
            cosine = f"{one['min_cosine']:.5f}" if "min_cosine" in one else ""
            lines.append(
                f"| {name} | {one['way']} | {rate / 1e3:,.1f} ({low / 1e3:,.1f} to {high / 1e3:,.1f}) | {flops} "
                f"| {memory} | {cosine} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure row after row and write after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--no-peers", action="store_true", help="bertkit's ways of training alone")
    parser.add_argument("--compile", nargs=2, metavar=("ROW", "DROPOUT"), help="only compile the peer of a row")
    given = parser.parse_args()
    tokenizer = Tokenizer.load(given.tokenizer)
    data = Data(TokenStore.open(given.store, tokenizer), tokenizer, given.tokenizer, given.workers)
    if given.compile:
        work = peer_work(WORKS[given.compile[0]])
        torch.cuda.set_per_process_memory_fraction(COMPILING_MEMORY)
        with suppress(torch.OutOfMemoryError):
            transformers_rate(work, data, compiled=True, dropout=float(given.compile[1]), steps=1, warm=0)
        return
    about = {"device": torch.cuda.get_device_name(), **versions("transformers")}
    began, results = time.monotonic(), {}
    peers = [] if given.no_peers else PEERS
    rows = make_rows(data, peers)
    given.out.mkdir(parents=True, exist_ok=True)
    names = given.rows or list(rows)
    compile_peers(names, peers, given)
    print(f"peers compiled [{time.monotonic() - began:.0f} s]", flush=True)
    for name in names:
        if time.monotonic() - began > 60 * given.minutes:
            print(f"no time left for {name}", flush=True)
            continue
        results[name] = rows[name]()
        text = to_markdown(results, about)
        (given.out / "gpu.md").write_text(text, encoding="utf-8")
        (given.out / "gpu.json").write_text(json.dumps({"about": about, "rows": results}, indent=1), encoding="utf-8")
        print(to_markdown({name: results[name]}, about), f"[{time.monotonic() - began:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
