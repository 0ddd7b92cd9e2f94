"""Pictures of a study for docs/findings.md: its scores with every seed, and its curves, as SVG by matplotlib.

In: a result. Out: files that are the same for the same result: no date, no random names, no display.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bertkit.errors import BertkitError
from bertkit.studies.study.result import Curve, Measure, StudyResult

COLOURS = ("#1f6f8b", "#b4530a", "#6b4fa0", "#2c7a4b", "#b03a5b", "#7a6a00", "#3f5fc4", "#5b616e")
DASHES = ("-", "--", ":", "-.")
MOST_PANELS, ACROSS = 9, 3
STYLE: Any = {  # the same bytes for the same figures; a dollar sign is no formula
    "svg.hashsalt": "bertkit",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.parse_math": False,
}
FAR = 30.0  # a way along that grows this many times is drawn logarithmically


def plot_study(result: StudyResult, folder: Path) -> list[Path]:
    """Write NAME-scores.svg and NAME-curves.svg, as far as there is something to draw."""
    measured = [one for one in result.measures if any(result.values(arm.name, one.name) for arm in result.arms)]
    names = list(dict.fromkeys(curve.measure for curve in result.curves if curve.points))
    written = []
    with matplotlib.rc_context(STYLE):
        if measured:
            written.append(_write(_scores(result, measured[:MOST_PANELS]), folder / f"{result.name}-scores.svg"))
        if names:
            written.append(_write(_curves(result, names[:MOST_PANELS]), folder / f"{result.name}-curves.svg"))
    return written


def _panels(number: int, height: float) -> tuple[Figure, list[Axes]]:
    across = min(number, ACROSS)
    down = -(-number // across)
    figure = Figure(figsize=(1.6 + 3.5 * across, height * down), layout="constrained", facecolor="white")
    FigureCanvasSVG(figure)
    grid = figure.subplots(down, across, squeeze=False)
    panels: list[Axes] = list(grid.flat)
    for unused in panels[number:]:
        unused.set_visible(False)
    return figure, panels[:number]


def _scores(result: StudyResult, measures: Sequence[Measure]) -> Figure:
    """A panel a measure: a row an arm, a dot a seed, a line at the mean; the shade is the baseline's spread.

    Where examples were drawn again, a thin line across is the 95 % interval.
    """
    figure, panels = _panels(len(measures), 1.2 + 0.3 * len(result.arms))
    for place, (axes, measure) in enumerate(zip(panels, measures, strict=True)):
        base = result.summary(result.baseline, measure.name)
        if base is not None:
            axes.axvspan(base.mean - base.spread, base.mean + base.spread, color="#e9eef6", zorder=0)
        for row, arm in enumerate(result.arms):
            values = result.values(arm.name, measure.name)
            axes.scatter(values, [row] * len(values), s=28, alpha=0.7, color=COLOURS[row % len(COLOURS)], zorder=2)
            found = result.summary(arm.name, measure.name)
            if found is not None and found.interval is not None:
                axes.plot(found.interval, [row, row], color=COLOURS[row % len(COLOURS)], lw=1.5, zorder=1.8)
            if values:
                axes.plot([sum(values) / len(values)] * 2, [row - 0.3, row + 0.3], color="#1b1e25", lw=2, zorder=3)
        names = [arm.label for arm in result.arms] if place % ACROSS == 0 else []
        axes.set_yticks(range(len(result.arms)), names or [""] * len(result.arms))
        axes.set_ylim(len(result.arms) - 0.5, -0.5)
        axes.set_title(measure.name + (f" ({measure.unit})" if measure.unit else ""), fontsize=10)
        axes.grid(axis="x", color="#e5e5e5")
    return figure


def _curves(result: StudyResult, names: Sequence[str]) -> Figure:
    """A panel a measure: the mean of the seeds, shaded from the lowest to the highest."""
    figure, panels = _panels(len(names), 3.2)
    lines: dict[str, Any] = {}
    for axes, name in zip(panels, names, strict=True):
        curves = [curve for curve in result.curves if curve.measure == name and curve.points]
        for number, arm in enumerate(result.arms):
            for curve in curves:
                if curve.arm == arm.name:
                    lines[arm.label] = _draw_curve(axes, curve, number)
        places = [point.x for curve in curves for point in curve.points]
        if min(places) > 0 and max(places) / min(places) > FAR:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:g}"))
        axes.set_title(name + (f" ({curves[0].unit})" if curves[0].unit else ""), fontsize=10)
        axes.set_xlabel(curves[0].x_name)
        axes.grid(color="#e5e5e5")
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=min(4, len(lines)), fontsize=9)
    return figure


def _draw_curve(axes: Axes, curve: Curve, number: int) -> Any:
    places = [point.x for point in curve.points]
    colour = COLOURS[number % len(COLOURS)]
    lows, highs = ([choose(point.values.values()) for point in curve.points] for choose in (min, max))
    axes.fill_between(places, lows, highs, color=colour, alpha=0.15, lw=0)
    style = DASHES[number % len(DASHES)]
    (line,) = axes.plot(places, [point.mean for point in curve.points], style, color=colour, marker="o", ms=3)
    return line


def _write(figure: Figure, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    except OSError as error:
        raise BertkitError(f"cannot write {path}: {error.strerror}; choose another place") from error
    return path
