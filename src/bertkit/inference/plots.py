"""Pictures for papers and slides: attention maps and word maps as PNG files, by matplotlib's object interface.

In: an attention map or a word comparison. Out: a file. No global state, no display.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bertkit.inference.words import Space, Use, WordComparison
from bertkit.text.files import written_aside

COLOURS = ("#1f6f8b", "#a8560f", "#6b4fa0", "#2c7a4b", "#b03a5b", "#5b616e")
MOST_LABELS = 150  # more tokens than this leave no room for their names


class Attention(Protocol):
    """What a plot needs of an attention map."""

    @property
    def tokens(self) -> Sequence[str]: ...

    @property
    def weights(self) -> NDArray[np.float32]: ...  # [L, H, T, T]


def plot_head(attention: Attention, path: Path, *, layer: int, head: int | None = None) -> None:
    """One head's weights with the tokens as labels; layer and head count from 1, no head is the layer's mean."""
    weights = attention.weights[layer - 1]
    shown = weights.mean(axis=0) if head is None else weights[head - 1]
    num_tokens = len(attention.tokens)
    side = min(16.0, max(4.5, 2.0 + 0.3 * num_tokens))
    figure, axes = _figure(side, side)
    image = axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=max(float(shown.max()), min(1.0, 5 / num_tokens)))
    if num_tokens <= MOST_LABELS:
        _label_axis(axes, "x", attention.tokens, side)
        _label_axis(axes, "y", attention.tokens, side)
    name = "mean of the heads" if head is None else f"head {head}"
    axes.set_title(f"Layer {layer}, {name}: rows look at columns", fontsize=11)
    figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, label="weight")
    _write(figure, path)


def plot_heads(attention: Attention, path: Path) -> None:
    """Every layer (down) and head (across) in one picture, each scaled to its own largest weight."""
    num_layers, num_heads, _, size = attention.weights.shape
    gap = max(1, size // 12)
    figure, axes = _figure(1.2 + 0.75 * max(4, num_heads), 1.2 + 0.75 * max(3, num_layers))
    axes.imshow(_mosaic(attention.weights, gap), cmap="Blues", vmin=0.0, vmax=1.0)
    step, middle = size + gap, (size - 1) / 2
    axes.set_xticks([head * step + middle for head in range(num_heads)], [str(head + 1) for head in range(num_heads)])
    axes.set_yticks([row * step + middle for row in range(num_layers)], [str(row + 1) for row in range(num_layers)])
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_title("each head scaled to its largest weight", fontsize=9)
    axes.tick_params(length=0)
    axes.set_frame_on(False)
    _write(figure, path)


def plot_words(comparison: WordComparison, path: Path) -> None:
    """Both maps side by side: fixed vectors and contextual ones, and the sentences below."""
    figure = Figure(figsize=(11, 5.2 + 0.25 * len(comparison.uses)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _scatter(left, "Fixed: one vector a word", comparison.fixed, comparison.uses)
    _scatter(right, "Contextual: one vector a use", comparison.contextual, comparison.uses)
    lines = [shorten(f"{number}  {use.word}: {use.sentence}", 150) for number, use in enumerate(comparison.uses, 1)]
    figure.supxlabel("\n".join(lines), fontsize=9, x=0.02, ha="left", parse_math=False)
    _write(figure, path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _label_axis(axes: Axes, axis: str, tokens: Sequence[str], side: float) -> None:
    """Tokens as they are: a dollar sign is no formula."""
    size = min(10.0, 50 * side / max(1, len(tokens)))
    chosen = axes.xaxis if axis == "x" else axes.yaxis
    if axis == "x":
        axes.xaxis.tick_top()
    chosen.set_ticks(range(len(tokens)))
    chosen.set_ticklabels(list(tokens), fontsize=size, parse_math=False, rotation=90 if axis == "x" else 0)


def _mosaic(weights_LHTT: NDArray[np.float32], gap: int) -> NDArray[np.float32]:
    num_layers, num_heads, size, _ = weights_LHTT.shape
    step = size + gap
    picture = np.full((num_layers * step - gap, num_heads * step - gap), np.nan, dtype=np.float32)
    for layer in range(num_layers):
        for head in range(num_heads):
            tile = weights_LHTT[layer, head]
            rows, columns = slice(layer * step, layer * step + size), slice(head * step, head * step + size)
            picture[rows, columns] = np.sqrt(tile / max(float(tile.max()), min(1.0, 5 / size)))
    return picture


def _scatter(axes: Axes, title: str, space: Space, uses: Sequence[Use]) -> None:
    kinds = list(dict.fromkeys(use.word.lower() for use in uses))
    placed: dict[tuple[float, float], list[int]] = {}
    reach = max(1e-9, *(abs(value) for point in space.map.points for value in point))
    for index, (x, y) in enumerate(space.map.points):
        placed.setdefault((round(x / reach, 3), round(y / reach, 3)), []).append(index)
    for members in placed.values():
        x, y = space.map.points[members[0]]
        word = uses[members[0]].word
        axes.scatter(x, y, s=70, color=COLOURS[kinds.index(word.lower()) % len(COLOURS)], zorder=2)
        name = f"{', '.join(str(member + 1) for member in members)}  {word}"
        inward = {"xytext": (-8, 5), "ha": "right"} if x > 0.5 * reach else {"xytext": (8, 5)}
        axes.annotate(name, (x, y), textcoords="offset points", parse_math=False, **inward)
    across, up = (f"{share:.0%}" for share in space.map.shares)
    axes.set_title(f"{title}\n{space.name}", fontsize=10, parse_math=False)
    axes.set_xlabel(f"{across} of the variance")
    axes.set_ylabel(f"{up} of the variance")
    axes.set_xlim(-1.5 * reach, 1.5 * reach)
    axes.set_ylim(-1.2 * reach, 1.2 * reach)
    axes.grid(color="#e5e5e5", zorder=0)


def _write(figure: Figure, path: Path) -> None:
    with warnings.catch_warnings(), written_aside(path) as aside:
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the font has no such letter: a box
        figure.savefig(aside, dpi=130, format="png")
