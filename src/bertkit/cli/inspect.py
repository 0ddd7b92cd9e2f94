"""`bertkit inspect`: where the heads of a model look, as a picture and as a page to browse."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertkit.cli.options import DeviceOption, HtmlOption, JsonOption, ModelOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_file

if TYPE_CHECKING:
    from bertkit.inference.encoding import AttentionMap


def inspect(
    a: Annotated[str, typer.Argument(help="The text, or the first text of a pair.")],
    model: ModelOption = "",
    b: Annotated[str | None, typer.Argument(help="The second text.")] = None,
    layer: Annotated[int | None, typer.Option("--layer", help="A layer, from 1; by default all.")] = None,
    head: Annotated[int | None, typer.Option("--head", help="A head of that layer, from 1; else their mean.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write a picture here.")] = None,
    html: HtmlOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Show which tokens each attention head looks at.

    Writes attention.png and attention.html here, unless you name files or ask for JSON.

    Example: bertkit inspect -m small-en "The dog slept because it was tired" --layer 2 --head 1
    """
    from bertkit.inference.links import check_head
    from bertkit.inference.loading import load

    if not (json or png or html):
        png, html = Path("attention.png"), Path("attention.html")
    check_file(png, html)
    bert = load(model, device=device)
    check_head(bert.config.num_layers, bert.config.num_heads, layer, head)
    attention = bert.attention(a, b)
    if png is not None:
        _write_png(attention, png, layer, head)
    if html is not None:
        _write_page(attention, html, model, layer, head)
    if json:
        print_json(_plain(attention, model, layer, head))
    else:
        _print(attention, layer, head)


def _write_png(attention: "AttentionMap", path: Path, layer: int | None, head: int | None) -> None:
    from bertkit.inference.plots import plot_head, plot_heads

    if layer is None:
        plot_heads(attention, path)
    else:
        plot_head(attention, path, layer=layer, head=head)
    note(f"wrote {path}")


def _write_page(attention: "AttentionMap", path: Path, model: str, layer: int | None, head: int | None) -> None:
    from bertkit.pages import attention_page, save

    save(path, attention_page(attention, model=model, layer=layer, head=head))
    note(f"wrote {path}")


def _plain(attention: "AttentionMap", model: str, layer: int | None, head: int | None) -> dict[str, Any]:
    """The weights asked for: [L][H][T][T], [H][T][T] with a layer, [T][T] with a head."""
    chosen = attention.weights
    for number in (layer, head):
        chosen = chosen if number is None else chosen[number - 1]
    about = {"model": model, "tokens": attention.tokens, "segment_ids": attention.segment_ids}
    return {**about, "layer": layer, "head": head, "weights": chosen.tolist()}


def _print(attention: "AttentionMap", layer: int | None, head: int | None) -> None:
    from bertkit.inference.links import strongest_links

    ordinary = [text is not None for text in attention.encoding.text_ids] if layer is None else None
    which = f"layer {layer}, {f'head {head}' if head else 'mean'}"
    what = "the sharpest heads, [CLS] and [SEP] left out" if layer is None else which
    rows = table("layer", "head", "token", "looks at", "weight", title=f"Strongest links: {what}")
    links = strongest_links(attention.tokens, attention.weights, layer=layer, head=head, ordinary=ordinary)
    for link in links:
        ends = (f"{link.source} ({link.from_position})", f"{link.target} ({link.to_position})")
        rows.add_row(str(link.layer), str(link.head or "mean"), *ends, f"{link.weight:.3f}")
    console().print(rows)
