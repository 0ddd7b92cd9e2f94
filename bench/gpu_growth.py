"""What growth costs on one GPU: tokens a second of pre-training by sequence length, tokens a step and size of model.

    python -m bench.gpu_growth --store FOLDER --tokenizer FOLDER --json growth.json
    python -m bench.gpu_growth --plot growth.json docs/growth.svg       # anywhere

bertkit's own loop in bf16, as in bench.gpu, but with fewer steps. What does not fit into memory is said, not guessed.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from bench.gpu_plot import OWN
from bench.gpu_training import GROUP, Data, Rate, Work, bertkit_rate, clean
from bertkit.corpus.store import TokenStore
from bertkit.tokenizer import Tokenizer

STEPS = 2 * GROUP
LENGTHS = (64, 128, 256, 512)
TOKENS = (4096, 16384, 65536, 131072)
SIZES = ("tiny", "mini", "small", "medium", "base", "large")
WORKS: dict[str, list[tuple[int | str, Work]]] = {
    "size": [(size, Work("", size, 128, 65536)) for size in SIZES],
    "length of a sequence": [(length, Work("", "base", length, 65536)) for length in LENGTHS],
    "tokens a step": [(tokens, Work("", "base", 128, tokens)) for tokens in TOKENS],
}


def measure(data: Data, path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every point of the three series, written as it is found; those found before are kept."""
    found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    rates: dict[Work, Rate | None] = {}  # some works stand in several series
    for series, points in WORKS.items():
        done = {point["value"] for point in found.setdefault(series, [])}
        for value, work in points:
            if value in done:
                continue
            if work not in rates:
                rates[work] = rate_or_none(work, data)
            rate = rates[work]
            if rate is None:
                print(f"{series} {value}: does not fit into memory", flush=True)
                continue
            point = {"value": value, "tokens_per_second": rate.tokens_per_second, "spread": rate.spread}
            found[series].append({**point, "model_flops": rate.model_flops, "memory_gib": rate.memory_gib})
            path.write_text(json.dumps(found, indent=1), encoding="utf-8")
            print(f"{series} {value}: {rate.tokens_per_second / 1e3:,.0f} k tokens/s", flush=True)
    return found


def rate_or_none(work: Work, data: Data) -> Rate | None:
    """What bertkit reaches; None where memory is too small."""
    try:
        return bertkit_rate(work, data, STEPS)
    except torch.OutOfMemoryError:
        pass
    clean()  # only now: the error held all that was computed with
    return None


def to_markdown(found: dict[str, list[dict[str, Any]]]) -> str:
    """One table a series."""
    tables = []
    for series, points in found.items():
        lines = [f"| {series} | k tokens/s | TFLOP/s | GiB |", "|---|---|---|---|"]
        for point in points:
            value = f"{point['value']:,}" if isinstance(point["value"], int) else point["value"]
            lines.append(
                f"| {value} | {point['tokens_per_second'] / 1e3:,.0f} | {point['model_flops'] / 1e12:.0f} "
                f"| {point['memory_gib']:.1f} |"
            )
        tables.append("\n".join(lines))
    return "\n\n".join(tables) + "\n"


def plot(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """A panel a series, a bar a point."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.8), layout="constrained")
    FigureCanvasSVG(figure)
    widths = [len(points) for points in found.values()]
    for axes, (series, points) in zip(figure.subplots(1, len(found), width_ratios=widths), found.items(), strict=True):
        names = [f"{point['value']:,}" if isinstance(point["value"], int) else point["value"] for point in points]
        bars = axes.bar(names, [point["tokens_per_second"] / 1e3 for point in points], color=OWN)
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=9)
        axes.margins(y=0.15)
        axes.set(xlabel=series, ylabel="thousand tokens a second")
        axes.spines[["top", "right"]].set_visible(False)
    with matplotlib.rc_context({"svg.hashsalt": "growth"}):  # the same picture from the same figures
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store")
    parser.add_argument("--tokenizer")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", nargs=2, type=Path, metavar=("JSON", "SVG"))
    given = parser.parse_args()
    if not given.plot and None in (given.store, given.tokenizer, given.json):
        parser.error("give --store, --tokenizer and --json to measure, or --plot to draw")
    if given.plot:
        found = json.loads(given.plot[0].read_text(encoding="utf-8"))
        plot(found, given.plot[1])
    else:
        tokenizer = Tokenizer.load(given.tokenizer)
        found = measure(Data(TokenStore.open(given.store, tokenizer), tokenizer, given.tokenizer), given.json)
    print(to_markdown(found))


if __name__ == "__main__":
    main()
