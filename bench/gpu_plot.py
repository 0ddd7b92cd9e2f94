"""The table of bench.gpu as a picture: a panel a row, a bar a way.

python -m bench.gpu_plot results/gpu.json [more.json ...] docs/gpu-speed.svg
"""

import json
import sys
from pathlib import Path
from typing import Any

OURS = "bertkit"
OWN, PEERS = "#2f6fb0", "#b9b4ab"


def rate(one: dict[str, Any]) -> float:
    """Thousands a second."""
    return float(one.get("tokens_per_second", one.get("per_second", 0.0))) / 1e3


def plot(rows: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Panels from the top left, in the order of the table; what failed, and what is no rate, is left out."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    shown = {name: [one for one in found if rate(one)] for name, found in rows.items()}
    shown = {name: sorted(found, key=lambda one: one["way"][:7] != OURS) for name, found in shown.items() if found}
    figure = Figure(figsize=(11, 2.0 * -(-len(shown) // 2)), layout="constrained")
    FigureCanvasSVG(figure)
    panels = figure.subplots(-(-len(shown) // 2), 2, squeeze=False).flatten()
    for axes, (name, found) in zip(panels, shown.items(), strict=False):
        ways = [one["way"] for one in found][::-1]
        bars = axes.barh(
            ways,
            [rate(one) for one in found][::-1],
            color=[OWN if way[:7] == OURS else PEERS for way in ways],
        )
        axes.bar_label(bars, fmt="{:,.0f}" if rate(found[0]) > 100 else "{:,.1f}", padding=3)
        axes.margins(x=0.15)
        unit = "texts" if name == "embed-texts" else "tokens"
        axes.set_title(f"{name}: thousand {unit} a second", fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw the rows of all files together."""
    *sources, target = map(Path, sys.argv[1:])
    if not sources:
        sys.exit("bench.gpu_plot: give the table's JSON and the picture to draw")
    rows: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        rows.update(json.loads(source.read_text(encoding="utf-8"))["rows"])
    plot(rows, target)


if __name__ == "__main__":
    main()
