"""`bertkit demo`: train a tiny BERT on the sample text and use it."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.options import JsonOption
from bertkit.cli.output import console, print_json, progress_bar, table


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the page.")] = Path("bertkit-demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of weights, pairs and masks.")] = 1,
    json: JsonOption = False,
) -> None:
    """Raw text to a working BERT in about a minute: vocabulary, training, save, load, fill masks, and a page.

    Example: bertkit demo --out bertkit-demo
    """
    from bertkit.demo import DemoConfig, run_demo

    with progress_bar("training", steps) as advance:
        report = run_demo(
            out,
            DemoConfig(steps, seed),
            lambda step: advance(f"MLM loss {step.mlm_loss:.2f}, NSP loss {step.nsp_loss:.2f}"),
        )
    if json:
        print_json(report.to_json())
        return
    shown = console()
    held_out = report.curve[-1].heldout_mlm_loss
    shown.print(
        f"A {report.config_name} BERT ({report.num_parameters:,} parameters) trained for {report.seconds:.0f} s "
        f"({report.num_steps} steps) on {report.num_words:,} words of sample text."
    )
    shown.print(
        f"Held-out MLM loss: {held_out:.2f} nats; guessing by frequency alone: {report.unigram_loss:.2f}. "
        f"NSP accuracy on held-out pairs: {report.nsp_accuracy:.0%} (chance: 50%). A model to look at, not one to use."
    )
    masks = table("text", "before training", "after training")
    for row in report.fill_mask:
        masks.add_row(
            row.text, *(", ".join(f"{g.token} {g.p:.2f}" for g in side[:3]) for side in (row.before, row.after))
        )
    shown.print(masks)
    pairs = table("A", "B", "P(IsNext)")
    for pair in report.next_sentence:
        pairs.add_row(pair.a, pair.b, f"{pair.p_next:.2f}")
    shown.print(pairs)
    shown.print(f"Model: {out / 'model'}    Page with curves and attention: {out / 'index.html'}", soft_wrap=True)
