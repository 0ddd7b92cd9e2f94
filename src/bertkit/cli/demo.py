"""`bertkit demo`: the bundled models at work; or a tiny BERT from raw text, before your eyes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertkit.cli.options import MOST_SEED, JsonOption
from bertkit.cli.output import console, note, print_json, progress_bar, table
from bertkit.cli.places import check_folder

if TYPE_CHECKING:
    from bertkit.pages.demo import DemoReport
    from bertkit.pages.demo_tour import TaughtModel, UsedModels


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the page.")] = Path("bertkit-demo"),
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train a tiny BERT from raw text instead, in half a minute.")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, help="Training steps, from scratch.")] = 1200,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed of weights, pairs and masks, from scratch.")
    ] = 1,
    json: JsonOption = False,
) -> None:
    """The models that come with bertkit at work, one of them fine-tuned as you watch, and a page about all of it.

    Example: bertkit demo --out bertkit-demo
    """
    from bertkit.bundled import MODELS, is_here

    check_folder(out)
    missing = [name for name in MODELS if not is_here(name)]
    if missing and not from_scratch:
        note(f"not in this copy of bertkit: {', '.join(missing)}; training a tiny BERT from scratch instead")
    if missing or from_scratch:
        _from_scratch(out, steps, seed, json)
    else:
        _tour(out, json)


def _tour(out: Path, json: bool) -> None:
    from bertkit.demo.tour import TourConfig, teach, use_models, write_tour
    from bertkit.training.finetuning.live import TaskLine

    config = TourConfig()
    used = use_models(config)
    if not json:
        _show_used(used)
        console().print(f"Now {config.encoder} learns to tell good news from bad, on sentences that come with bertkit.")
    with TaskLine(shown=not json) as live:
        taught = teach(config, out, live)
    report = write_tour(out, used, taught)
    if json:
        print_json(report.to_json())
        return
    _show_taught(taught)
    console().print(
        f"Model: {out / 'sentiment'}    Page with curves and attention: {out / 'index.html'}", soft_wrap=True
    )


def _show_used(used: "UsedModels") -> None:
    blanks = table("blank", "small-en says")
    for blank in used.blanks:
        blanks.add_row(blank.text, ", ".join(f"{guess.token} {guess.p:.2f}" for guess in blank.guesses[:3]))
    uses = used.words["uses"]
    words = table("use", *(str(number) for number, _ in enumerate(uses, 1)), title="Cosines of contextual vectors")
    for number, (use, cosines) in enumerate(zip(uses, used.words["contextual"]["cosines"], strict=True), 1):
        words.add_row(f"{number} {use['word']}: {use['sentence']}", *(f"{cosine:.2f}" for cosine in cosines))
    pairs = table("A", "B", "P(IsNext)")
    for pair in used.next_sentence:
        pairs.add_row(pair.a, pair.b, f"{pair.p_next:.2f}")
    answers = table("question about a paragraph", "answer", "confidence")
    for one in used.answers:
        answers.add_row(one.question, one.text, f"{one.confidence:.2f}")
    names = table("text", "names in it")
    for text in used.entities:
        names.add_row(text.text, ", ".join(f"{text.text[mark.start : mark.end]} {mark.label}" for mark in text.marks))
    for shown in (blanks, words, pairs, answers, names):
        console().print(shown)


def _show_taught(taught: "TaughtModel") -> None:
    shown = table(f"{len(taught.judged)} held-out sentences", "rightly judged")
    shown.add_row(f"{taught.base}, fine-tuned now in {taught.seconds:.0f} s", f"{taught.accuracy:.0%}")
    for name, share in taught.others.items():
        shown.add_row(name, f"{share:.0%}")
    console().print(shown)


def _from_scratch(out: Path, steps: int, seed: int, json: bool) -> None:
    from bertkit.demo.scratch import DemoConfig, run_demo

    with progress_bar("training", steps) as advance:
        report = run_demo(
            out,
            DemoConfig(steps, seed),
            lambda step: advance(f"MLM loss {step.mlm_loss:.2f}, NSP loss {step.nsp_loss:.2f}"),
        )
    if json:
        print_json(report.to_json())
    else:
        _show_scratch(report, out)


def _show_scratch(report: "DemoReport", out: Path) -> None:
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
