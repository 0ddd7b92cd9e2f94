"""The whole table of speeds on one GPU, peers beside bertkit in the same run, as markdown and JSON.

    python -m bench.gpu --store FOLDER --tokenizer FOLDER -o results [--rows base-128 base-512 ...] [--minutes 9]
    python -m bench.gpu_plot results/gpu.json docs/gpu-speed.svg

Both files are written anew after every figure, so that a run that is killed leaves all that it found. What fails, and what
no time is left for, stands there by name with the reason, and is never guessed. Every row: median of groups of steady
steps, its range, model FLOP/s of the products really computed. The peers' models are compiled first, all at once, into
torch's cache on disk: a process that compiles gets too little memory to compute, and ends there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bench.gpu_embedding import encoder_ways, text_ways
from bench.gpu_training import Data, Rate, Ways, Work, bertkit_rate, clean, transformers_rate
from bench.versions import versions
from bertkit.corpus.store import TokenStore
from bertkit.model.trial import WARNING
from bertkit.text.files import written_aside
from bertkit.tokenizer import Tokenizer

WORKS = {
    "base-128": Work("base, length 128, full", "base", 128, 131072),
    "base-512": Work("base, length 512, full", "base", 512, 131072),
    "base-512-real": Work("base, length 512, real pairs, 10 % short", "base", 512, 131072, short_share=0.1),
    "large-512": Work("large, length 512, full", "large", 512, 65536, micro_batches=2),  # the paper's 256 rows
    "small-128": Work("small, length 128, full", "small", 128, 131072),
}
# What matters most comes first, should time run out.
ROWS = ("base-128", "base-512", "base-512-real", "embed-full", "embed-texts", "small-128", "first-step", "large-512")
EAGER, COMPILED, WITHOUT_DROPOUT = (False, 0.1), (True, 0.1), (True, 0.0)
PEERS = {  # whether it is compiled, and its dropout: as people run it, and as bertkit's own rows are
    "base-128": (EAGER, COMPILED, WITHOUT_DROPOUT),
    "base-512": (EAGER, COMPILED, WITHOUT_DROPOUT),
    "base-512-real": (EAGER, COMPILED),
    "large-512": (COMPILED,),
    "small-128": (COMPILED,),
}
STEPS, FEWER = 200, 25  # counted steps of eight bits, and of bf16
ALSO_BF16 = ("base-128", "base-512")  # elsewhere there is no time for it
COMPILING_GIB = 12  # of the GPU's memory for a process that compiles: enough for its weights
COMPILING_SECONDS, FIRST_STEP_SECONDS = 240, 120  # beyond these something is wrong, and the other rows matter more
PEER_TOKENS = {"large": 32768}  # a batch that fits, four to a step; 65,536 elsewhere
MOST_SHOWN = 200  # characters of an error


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


@dataclass
class Table:
    """What has been found so far, on disk as soon as it is."""

    out: Path
    about: dict[str, str]
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, name: str, one: dict[str, Any]) -> None:
        """One more figure of a row."""
        self.results.setdefault(name, []).append(one)
        whole = json.dumps({"about": self.about, "rows": self.results}, indent=1)
        for file, text in (("gpu.md", to_markdown(self.results, self.about)), ("gpu.json", whole)):
            with written_aside(self.out / file) as aside:
                aside.write_text(text, encoding="utf-8")


def training_ways(name: str, data: Data, *, peers: bool = True) -> Ways:
    """bertkit in eight bits, the peer's ways, and bertkit in bf16."""
    work = WORKS[name]
    rates: dict[str, Callable[..., Rate]] = {
        "bertkit, eight bits": partial(bertkit_rate, work, data, STEPS, eight_bits=True)
    }
    for compiled, dropout in PEERS[name] if peers else ():
        way = f"transformers {'compiled' if compiled else 'eager'}, dropout {dropout:g}"
        rates[way] = partial(transformers_rate, peer_work(work), data, compiled=compiled, dropout=dropout)
    if name in ALSO_BF16:
        rates["bertkit, bf16"] = partial(bertkit_rate, work, data, FEWER)
    return {way: partial(_as_dictionary, rate, way) for way, rate in rates.items()}


def _as_dictionary(rate: Callable[..., Rate], way: str) -> dict[str, Any]:
    return asdict(rate(way=way))


def peer_work(work: Work) -> Work:
    """The same with a batch that the peer has memory for; its steps are of as many tokens, where they are several batches."""
    tokens = PEER_TOKENS.get(work.size, 65536)
    together = work.tokens_per_batch * work.micro_batches // tokens if work.micro_batches > 1 else 1
    return replace(work, tokens_per_batch=tokens, micro_batches=together)


def compile_peers(names: Sequence[str], given: argparse.Namespace) -> None:
    """Fill torch's cache, a process each; what fails here is compiled when it is measured."""
    command = [sys.executable, "-m", "bench.gpu", "--store", given.store, "--tokenizer", given.tokenizer]
    command += ["-o", str(given.out), "--compile"]
    asked: dict[tuple[object, ...], list[str]] = {}  # rows of the same shapes share what is compiled
    for name in names:
        for dropout in [dropout for compiled, dropout in PEERS.get(name, ()) if compiled]:
            work = peer_work(WORKS[name])
            shapes = (work.size, work.max_length, work.tokens_per_batch, dropout)
            asked.setdefault(shapes, [*command, name, str(dropout)])
    with ThreadPoolExecutor(len(asked) or 1) as pool:
        list(pool.map(_run_quietly, asked.values()))


def _run_quietly(command: list[str]) -> None:
    quiet = subprocess.DEVNULL
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, stdout=quiet, stderr=quiet, timeout=COMPILING_SECONDS, check=False)


def make_rows(data: Data, *, peers: bool = True) -> dict[str, Callable[[], Ways]]:
    """Name to what makes its ways ready."""
    rows: dict[str, Callable[[], Ways]] = {name: partial(training_ways, name, data, peers=peers) for name in WORKS}
    rows["embed-full"] = partial(encoder_ways, data)
    rows["embed-texts"] = partial(text_ways, data)
    starts = ("bertkit pretrain, the first start", "bertkit pretrain, the second")
    rows["first-step"] = lambda: {way: partial(first_step, data, way) for way in starts}
    return rows


def first_step(data: Data, way: str) -> dict[str, Any]:
    """Seconds from the start of `bertkit pretrain` to its first step in the journal; a first start fills caches for the next."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, out = Path(folder) / "recipe.toml", Path(folder) / "run"
        recipe.write_text(FIRST_STEP.format(store=data.store.folder, tokenizer=data.folder), encoding="utf-8")
        began = time.monotonic()
        command = [sys.executable, "-m", "bertkit.cli.main", "pretrain", str(recipe), "--out", str(out)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
            try:
                while run.poll() is None and not has_step(out / "journal.jsonl"):
                    if time.monotonic() - began > FIRST_STEP_SECONDS:
                        raise RuntimeError(f"no step within {FIRST_STEP_SECONDS} s")
                    time.sleep(0.05)
                seconds = time.monotonic() - began
                status = run.wait(FIRST_STEP_SECONDS)
            finally:
                run.kill()
        if status or not has_step(out / "journal.jsonl"):
            raise RuntimeError(f"`bertkit pretrain` ended with status {status}")
    return {"way": way, "seconds": seconds}


def has_step(journal: Path) -> bool:
    """Whether a step is written there."""
    return journal.is_file() and '"kind": "step"' in journal.read_text(encoding="utf-8")


def measure_row(name: str, make: Callable[[], Ways], table: Table, ends: float) -> None:
    """Every way of a row while there is time; one that fails is noted, and the next is measured."""
    if time.monotonic() > ends:
        table.add(name, {"way": "all", "error": "no time was left"})
        return
    try:
        ways = make()
    except Exception as error:
        table.add(name, {"way": "all", "error": reason(error)})
        return
    for way, measured in ways.items():
        began = time.monotonic()
        found = attempt(way, measured) if began < ends else {"way": way, "error": "no time was left"}
        table.add(name, {**found, "took": round(time.monotonic() - began, 1)})


def attempt(way: str, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it finds, or why it found nothing; kernels that fail are no figure of their plain twins."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=WARNING)
            return measured()
    except Exception as error:
        failed = {"way": way, "error": reason(error)}
    clean()  # only now: the error held all that was computed with
    return failed


def reason(error: Exception) -> str:
    """An error in one line."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}"[:MOST_SHOWN].replace("|", "/")


def to_markdown(results: dict[str, list[dict[str, Any]]], about: dict[str, str]) -> str:
    """One table."""
    lines = [", ".join(f"{key} {value}" for key, value in about.items()), ""]
    lines += ["| work | way | k/s (range) | TFLOP/s | GiB | min cosine |", "|---|---|---|---|---|---|"]
    for name, found in results.items():
        lines += [f"| {name} | {one['way']} | {_figures(one)} |" for one in found]
    return "\n".join(lines) + "\n"


def _figures(one: dict[str, Any]) -> str:
    """The last four cells of a line."""
    if "error" in one:
        return f"{one['error']} | | |"
    if "seconds" in one:
        return f"{one['seconds']:.1f} s | | |"
    rate = one.get("tokens_per_second", one.get("per_second", 0.0))
    low, high = one["spread"]
    flops = f"{one['model_flops'] / 1e12:.0f}" if one.get("model_flops") else ""
    memory = f"{one['memory_gib']:.0f}" if one.get("memory_gib") else ""
    cosine = f"{one['min_cosine']:.5f}" if "min_cosine" in one else ""
    return f"{rate / 1e3:,.1f} ({low / 1e3:,.1f} to {high / 1e3:,.1f}) | {flops} | {memory} | {cosine}"


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--minutes", type=float, default=9.0, help="after which nothing new is begun")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--no-peers", action="store_true", help="bertkit's ways of training alone")
    parser.add_argument("--compile", nargs=2, metavar=("ROW", "DROPOUT"), help="only compile the peer of a row")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("it measures a CUDA device, and there is none")
    return given


def main() -> None:
    """Measure row after row and write after each figure."""
    began, given = time.monotonic(), read_arguments()
    tokenizer = Tokenizer.load(given.tokenizer)
    data = Data(TokenStore.open(given.store, tokenizer), tokenizer, given.tokenizer, given.workers)
    if given.compile:
        work = peer_work(WORKS[given.compile[0]])
        torch.cuda.set_per_process_memory_fraction(
            COMPILING_GIB * 2**30 / torch.cuda.get_device_properties(0).total_memory
        )
        with suppress(torch.OutOfMemoryError):
            transformers_rate(work, data, compiled=True, dropout=float(given.compile[1]), steps=1, warm=0)
        return
    libraries = [name for name in ("transformers", "sentence_transformers") if find_spec(name)]
    given.out.mkdir(parents=True, exist_ok=True)
    table = Table(given.out, {"device": torch.cuda.get_device_name(), **versions(*libraries)})
    if not given.no_peers:
        compile_peers(given.rows, given)
        print(f"peers compiled [{time.monotonic() - began:.0f} s]", flush=True)
    rows = make_rows(data, peers=not given.no_peers)
    for name in given.rows:
        measure_row(name, rows[name], table, began + 60 * given.minutes)
        clean()
        found = to_markdown({name: table.results[name]}, table.about)
        print(found, f"[{time.monotonic() - began:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
