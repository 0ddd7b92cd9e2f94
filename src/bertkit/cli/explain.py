"""`bertkit explain`: one text or pair through embeddings, masking, both predictions and the loss."""

from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli.options import MOST_SEED, DeviceOption, HtmlOption, JsonOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_file
from bertkit.errors import BertkitError

if TYPE_CHECKING:
    from rich.table import Table

    from bertkit.inference.bert import Bert
    from bertkit.inference.explanation import Choice, Explanation, InputEmbeddings, Losses


def explain(
    a: Annotated[str, typer.Argument(help="The text, or the first text of a pair.")],
    b: Annotated[str | None, typer.Argument(help="The second text.")] = None,
    mask: Annotated[bool, typer.Option("--mask", help="Choose tokens for MLM and hide them, as in training.")] = False,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MOST_SEED, help="Which tokens are chosen, and how they are replaced.")
    ] = 1,
    not_next: Annotated[bool, typer.Option("--not-next", help="Take B as a sentence from elsewhere.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", envvar="BERTKIT_MODEL", help="A checkpoint; without one, a tiny model that is untrained."
        ),
    ] = None,
    device: DeviceOption = "auto",
    html: HtmlOption = None,
    json: JsonOption = False,
) -> None:
    """Show how BERT reads a text or pair, step by step.

    Example: bertkit explain -m small-en 'my dog is cute' 'he likes playing' --mask --html page.html
    """
    if not_next and b is None:
        raise BertkitError("--not-next is about a pair; give a second text")
    check_file(html)
    from bertkit.inference.explain import explain as explain_text
    from bertkit.pages import explain_page, save

    bert, name = _open(model, device)
    result = explain_text(bert.model, bert.tokenizer, a, b, mask=mask, seed=seed, is_next=not not_next)
    plain = result.to_json()
    if html is not None:
        save(html, explain_page(plain, model=name, untrained=model is None))
        note(f"wrote {html}")
    if json:
        print_json({"model": name, "untrained": model is None, **plain})
    else:
        _print(result, name, untrained=model is None)


def _open(model: str | None, device: str) -> "tuple[Bert, str]":
    if model is not None:
        from bertkit.inference.loading import load

        return load(model, device=device), model
    from bertkit.inference.fresh import untrained

    return untrained(0), "tiny, untrained: random weights, a vocabulary learned from the sample text"


def _print(result: "Explanation", name: str, *, untrained: bool) -> None:
    terminal = console()
    terminal.print(f"Model: {name}")
    terminal.print(_pieces_table(result))
    for choice in result.masking.choices if result.masking else []:
        _print_choice(choice, result.vocab_size)
    if pair := result.next_sentence:
        label = "IsNext" if pair.is_next else "NotNext"
        terminal.print(f"Next sentence: IsNext {pair.p_next:.4f}, NotNext {pair.p_not_next:.4f}; taken as {label}.")
    _print_losses(result)
    for line in result.notes:
        terminal.print(line)
    if untrained:
        terminal.print(
            "This model is untrained: its probabilities are near uniform. Give -m small-en to see one that is not."
        )


def _pieces_table(result: "Explanation") -> "Table":
    """Figure 2 of the paper, a token a row; the first dimension stands for all."""
    title = f"Input embeddings, dimension 0 of {result.hidden_size} (all of them: --html, --json)"
    made = table("at", "piece", "seen as", "id", "seg", "token", "+ segment", "+ position", "= sum", title=title)
    for piece in result.pieces:
        changed = piece.seen if piece.seen_id != piece.token_id else ""
        row = (str(piece.position), piece.token, changed, str(piece.seen_id), "AB"[piece.segment])
        made.add_row(*row, *_first_dimension(result.embeddings, piece.position, piece.segment))
    return made


def _first_dimension(embeddings: "InputEmbeddings", position: int, segment: int) -> list[str]:
    added = (embeddings.token[position], embeddings.segment[segment], embeddings.position[position])
    return [f"{row[0]:+.4f}" for row in (*added, embeddings.sum[position])]


def _print_choice(choice: "Choice", vocab_size: int) -> None:
    terminal = console()
    how = {"mask": "hidden by [MASK]", "random": f"replaced by the random {choice.seen}", "same": "left as it is"}
    terminal.print(
        f"Position {choice.position}: {choice.token} was chosen and {how[choice.replacement]} (draw {choice.draw:.4f}).",
    )
    if choice.probability is None:
        return
    made = table("rank", "guess", "probability")
    for rank, guess in enumerate(choice.top, 1):
        made.add_row(str(rank), guess.token, f"{guess.probability:.5f}")
    if choice.token not in {guess.token for guess in choice.top}:
        made.add_row(f"{choice.rank} of {vocab_size}", choice.token, f"{choice.probability:.5f}")
    terminal.print(made)


def _print_losses(result: "Explanation") -> None:
    losses, made = result.losses, table("loss", "arithmetic", "value", "by guessing")
    if losses.mlm is not None and result.masking is not None:
        each = " + ".join(f"{choice.loss:.4f}" for choice in result.masking.choices)
        made.add_row(
            "MLM", f"({each}) / {len(result.masking.choices)}", f"{losses.mlm:.4f}", f"{losses.uniform_mlm:.4f}"
        )
    if losses.nsp is not None and (pair := result.next_sentence):
        p = pair.p_next if pair.is_next else pair.p_not_next
        made.add_row("NSP", f"-ln {p:.4f}", f"{losses.nsp:.4f}", f"{losses.uniform_nsp:.4f}")
    if losses.total is not None:
        parts = [(mean, guess) for mean, guess in _parts(losses) if mean is not None]
        sums = " + ".join(f"{mean:.4f}" for mean, _ in parts)
        made.add_row("total", sums, f"{losses.total:.4f}", f"{sum(guess for _, guess in parts):.4f}")
        console().print(made)


def _parts(losses: "Losses") -> list[tuple[float | None, float]]:
    return [(losses.mlm, losses.uniform_mlm), (losses.nsp, losses.uniform_nsp)]
