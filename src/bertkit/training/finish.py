"""The end of a run: a model folder that the ecosystem loads, its card, and a page about how it was trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertkit.model.bert import BertModel
from bertkit.model.config import num_parameters
from bertkit.model.formats import save_model
from bertkit.pages.frame import save
from bertkit.pages.training import TrainingPoint, TrainingReport, training_page
from bertkit.text.counted import counted
from bertkit.training.curves import thin
from bertkit.training.data import RunData, unigram_loss
from bertkit.training.evaluation import evaluation_indices
from bertkit.training.journal import read_journal
from bertkit.training.loop import Progress
from bertkit.training.recipe import NAME, Recipe


def finish_run(recipe: Recipe, out: Path, model: BertModel, data: RunData, progress: Progress) -> TrainingReport:
    """Write model/, model/README.md and report.html."""
    folder = out / "model"
    save_model(model, folder)
    data.tokenizer.save(folder, max_length=model.config.max_positions)
    (folder / NAME).write_text(recipe.to_toml(), encoding="utf-8")
    guess = None
    if data.held_out:
        guess = unigram_loss(data, data.held_out, evaluation_indices(data.held_out, recipe.evaluation))
    report = make_report(recipe, model, read_journal(out), progress, guess)
    (folder / "README.md").write_text(model_card(recipe, report, data), encoding="utf-8")
    save(out / "report.html", training_page(report))
    return report


def make_report(
    recipe: Recipe, model: BertModel, journal: list[dict[str, Any]], progress: Progress, guess: float | None
) -> TrainingReport:
    """Everything that the page shows, from the journal."""
    steps = thin([line for line in journal if line["kind"] == "step"])
    config = model.config
    return TrainingReport(
        name=recipe.model.init or recipe.model.size,
        num_parameters=num_parameters(config),
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        vocab_size=config.vocab_size,
        num_steps=progress.step,
        num_tokens=progress.tokens,
        seconds=progress.seconds,
        device=f"{recipe.device}, {recipe.precision}",
        unigram_loss=guess,
        steps=[TrainingPoint(**{name: line[name] for name in TrainingPoint.__dataclass_fields__}) for line in steps],
        evaluations=[
            {k: v for k, v in line.items() if k != "kind"} for line in journal if line["kind"] == "evaluation"
        ],
        recipe=recipe.to_toml(),
    )


def model_card(recipe: Recipe, report: TrainingReport, data: RunData) -> str:
    """README.md of the model: what it is, how it was trained, how it does, what it is not."""
    last = report.evaluations[-1] if report.evaluations else None
    casing = "uncased" if data.tokenizer.lowercase else "cased"
    is_causal = recipe.objective == "ltr"
    task = "left-to-right language modelling (it is causal: no BERT)" if is_causal else "masked language modelling"
    tasks = f"{task} and next sentence prediction" if recipe.data.next_sentence else task
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {'feature-extraction' if is_causal else 'fill-mask'}",
        "tags: [bert, bertkit]",
        "---",
        "",
        f"# BERT {report.name}, {casing}",
        "",
        f"A BERT of {report.num_parameters:,} parameters ({report.num_layers} layers, width {report.hidden_size}, "
        f"{report.num_heads} heads, vocabulary {report.vocab_size:,}), pre-trained by bertkit with "
        f"{tasks}.",
        "",
        "## Training",
        "",
        f"{counted(report.num_steps, 'step')}, {report.num_tokens:,} tokens, {report.seconds / 60:.1f} minutes on {report.device}, "
        f"optimizer {recipe.optimizer.name}, seed {recipe.seed}. The whole recipe is in `{NAME}`.",
        f"Text: `{Path(recipe.data.store).name or 'given in memory'}`. Its licence holds for this model too: name it here.",
        "",
        "## On held-out text",
        "",
        *(_table(last, report.unigram_loss) if last else ["Not measured."]),
        "",
        "## Limits",
        "",
        "It repeats what its text says and how its text says it, errors and prejudices included. Texts longer than the "
        "model's positions must be cut or split into windows.",
    ]
    return "\n".join(lines) + "\n"


def _table(last: Mapping[str, Any], guess: float | None) -> list[str]:
    rows = [
        ("MLM loss (nats)", f"{last['mlm_loss']:.3f}"),
        ("MLM accuracy", f"{last['mlm_accuracy']:.1%}"),
        ("perplexity of masked tokens", f"{last['perplexity']:.1f}"),
        ("NSP accuracy", f"{last['nsp_accuracy']:.1%}"),
    ]
    rows += [("guessing by frequency (nats)", f"{guess:.3f}")] if guess is not None else []
    rows += [("MLM loss on the former text", f"{last['old_mlm_loss']:.3f}")] if "old_mlm_loss" in last else []
    return ["| measure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
