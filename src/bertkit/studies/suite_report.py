"""The suite's results for people: report.md and report.html beside results.json."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertkit.pages.frame import save
from bertkit.pages.markdown import markdown_table
from bertkit.pages.suite import SuiteReport, suite_page
from bertkit.studies.published import BLIMP as PUBLISHED_BLIMP
from bertkit.studies.published import FIVE, GOOGLE
from bertkit.studies.suite_config import BLIMP, HELD_OUT, WORD_IN_CONTEXT
from bertkit.studies.suite_parts import write_json
from bertkit.studies.suite_results import SuiteResults
from bertkit.training.toml_text import to_plain, write_toml

RESULTS, MARKDOWN, PAGE = "results.json", "report.md", "report.html"
TEST_SETS = "Google's figures are of GLUE's test sets, fully trained models; ours are of the development sets."
SQUAD_NOTE = (
    "SQuAD: trained on part of its training set and QAMR; the Wikipedia text of the data folder overlaps its passages."
)


def write_reports(folder: Path, results: SuiteResults) -> None:
    """All three files."""
    write_json(folder / RESULTS, results.to_json())
    save(folder / MARKDOWN, markdown(results))
    save(folder / PAGE, suite_page(make_page(results)))


def markdown(results: SuiteResults) -> str:
    """The report as text."""
    name = results.model["name"]
    parts = [f"# {name}, measured", _model_line(results), "\n".join(f"- {note}" for note in results.notes())]
    if any(task.name in FIVE for task in results.tasks):
        parts += ["## Five tasks beside Google's models", markdown_table(*five_rows(results)), TEST_SETS]
    if results.tasks:
        parts += ["## Fine-tuning", markdown_table(*task_rows(results))]
        parts += [SQUAD_NOTE] if any(task.name == "SQuAD" for task in results.tasks) else []
    parts += _untrained(results)
    parts += ["## Settings", f"```toml\n{settings_text(results)}```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _model_line(results: SuiteResults) -> str:
    model = results.model
    casing = "uncased" if model["lowercase"] else "cased"
    return (
        f"{model['num_parameters']:,} parameters, {model['num_layers']} layers, {model['hidden_size']} wide, "
        f"{model['vocab_size']:,} tokens, {casing}."
    )


def five_rows(results: SuiteResults) -> tuple[list[str], list[list[str]]]:
    """Our medians over Google's figures, times 100."""
    medians = {task.name: task.median for task in results.tasks}
    own = [f"{100 * medians[name]:.1f}" if name in medians else "" for name in FIVE]
    average = "" if results.average is None else f"{results.average:.1f}"
    rows = [[f"**{results.model['name']}**", *own, average]]
    for row in GOOGLE:
        rows.append([f"{row.name} ({row.shape})", *(f"{row.scores[name]:.1f}" for name in FIVE), f"{row.average:.1f}"])
    return ["model", *FIVE, "average"], rows


def task_rows(results: SuiteResults) -> tuple[list[str], list[list[str]]]:
    """Every task with its spread and every seed, times 100."""
    rows = []
    for task in results.tasks:
        seeds = ", ".join(f"{100 * score:.1f}" for score in task.scores)
        spread = f"{100 * min(task.scores):.1f} to {100 * max(task.scores):.1f}"
        others = ", ".join(
            f"{name.replace('_', ' ')} {100 * value:.1f}" for name, value in task.others.items() if name != "mse"
        )
        score = f"{100 * task.median:.1f}"
        metric = task.metric.replace("_", " ")
        rows.append(
            [task.name, f"{metric}, {task.scored_on}", score, f"± {100 * task.deviation:.1f}", spread, seeds, others]
        )
    return ["task", "score", "median", "deviation", "lowest to highest", "seeds", "other scores (median)"], rows


def _untrained(results: SuiteResults) -> Iterable[str]:
    parts = {name: part for name, part in results.untrained.items() if "skipped" not in part}
    if held := parts.get(HELD_OUT):
        yield "## Held-out text"
        yield markdown_table(
            ["length", "perplexity", "MLM accuracy", "NSP accuracy", "masked tokens"], held_out_rows(held)
        )
    if blimp := parts.get(BLIMP):
        yield "## BLiMP"
        beside = ", ".join(f"{name} {score}" for name, score in PUBLISHED_BLIMP.items())
        yield (
            f"{100 * blimp['accuracy']:.1f} over {blimp['num_sets']} sets, {blimp['num_pairs']:,} pairs "
            f"(published: {beside})."
        )
        yield markdown_table(
            ["phenomenon", "accuracy"], [[t.replace("_", " "), f"{100 * a:.1f}"] for t, a in blimp["terms"].items()]
        )
    if senses := parts.get(WORD_IN_CONTEXT):
        yield "## Word in context"
        yield (
            f"Test accuracy {100 * senses['accuracy']:.1f} with layer {senses['best_layer']}, chosen with its threshold "
            f"on {senses['num_train']:,} training pairs (always one answer: {100 * senses['majority']:.1f})."
        )
        yield markdown_table(["layer", "training", "dev", "test"], [_layer_row(layer) for layer in senses["layers"]])


def held_out_rows(held: dict[str, Any]) -> list[list[str]]:
    """One row a length."""
    rows = []
    for one in held["lengths"]:
        nsp = f"{100 * one['nsp_accuracy']:.1f}" if "nsp_accuracy" in one else "no NSP head"
        accuracy = f"{100 * one['mlm_accuracy']:.1f}"
        rows.append([str(one["length"]), f"{one['perplexity']:.2f}", accuracy, nsp, f"{one['num_masked']:,}"])
    return rows


def _layer_row(layer: dict[str, Any]) -> list[str]:
    return [str(layer["layer"]), *(f"{100 * layer[f'{split}_accuracy']:.1f}" for split in ("train", "dev", "test"))]


def settings_text(results: SuiteResults) -> str:
    """The suite that was run, as TOML."""
    return write_toml(to_plain(results.suite))


def make_page(results: SuiteResults) -> SuiteReport:
    """Plain figures for the page."""
    return SuiteReport(
        model=dict(results.model),
        average=results.average,
        five=FIVE,
        published=[
            {"name": row.name, "shape": row.shape, "scores": dict(row.scores), "average": row.average} for row in GOOGLE
        ],
        published_blimp=PUBLISHED_BLIMP,
        tasks=[task.to_json() for task in results.tasks],
        held_out=results.untrained.get(HELD_OUT),
        blimp=results.untrained.get(BLIMP),
        word_in_context=results.untrained.get(WORD_IN_CONTEXT),
        notes=[*results.notes(), TEST_SETS, *([SQUAD_NOTE] if any(t.name == "SQuAD" for t in results.tasks) else [])],
        settings=settings_text(results),
    )
