"""`bertkit words`: a word's fixed vector beside its contextual ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli.options import DeviceOption, HtmlOption, JsonOption, ModelOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_file

if TYPE_CHECKING:
    from rich.table import Table

    from bertkit.inference.words import Space, Use


def words(
    model: ModelOption = "",
    uses: Annotated[
        list[str] | None,
        typer.Option(
            "--in", help='A word in a sentence, as "word=sentence"; repeat it. By default three uses of "fair".'
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", help="From 1 (0: embeddings, -1: last); by default the upper third, averaged."),
    ] = None,
    word2vec: Annotated[
        Path | None, typer.Option("--word2vec", help="Fixed vectors from this word2vec file, text or binary.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the maps as a picture here.")] = None,
    html: HtmlOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Compare one vector a word with one vector a use.

    Example: bertkit words -m small-en --in "bank=He sat on the bank" --in "bank=The bank lent us money"
    """
    from bertkit.inference.loading import load
    from bertkit.inference.words import EXAMPLES, compare_words, parse_occurrence

    check_file(png, html)
    occurrences = [parse_occurrence(use) for use in uses] if uses else EXAMPLES
    result = compare_words(load(model, device=device), occurrences, layer=layer, word2vec=word2vec)
    if png is not None:
        from bertkit.inference.plots import plot_words

        plot_words(result, png)
        note(f"wrote {png}")
    if html is not None:
        from bertkit.pages import save, words_page

        save(html, words_page(result.to_json(), model=model))
        note(f"wrote {html}")
    if json:
        print_json({"model": model, **result.to_json()})
        return
    for number, use in enumerate(result.uses, 1):
        console().print(f"{number}  {use.word}: {use.sentence}")
    for title, space in (("Fixed", result.fixed), ("Contextual", result.contextual)):
        console().print(_cosines(f"{title} vectors, cosines: {space.name}", space, result.uses))
    for line in result.notes:
        console().print(line)


def _cosines(title: str, space: "Space", uses: "list[Use]") -> "Table":
    rows = table("", *(f"{number} {use.word}" for number, use in enumerate(uses, 1)), title=title)
    for number, (use, cosines) in enumerate(zip(uses, space.cosines, strict=True), 1):
        rows.add_row(f"{number} {use.word}", *(f"{cosine:.3f}" for cosine in cosines))
    return rows
