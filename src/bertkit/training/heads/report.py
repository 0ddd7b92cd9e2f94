"""The page of a trained head: how it learned on the features of a frozen encoder, and how good it is beside guessing."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertkit.pages.finetuning import DataFile, DevPoint, FinetuningReport, LossPoint, finetuning_page
from bertkit.pages.frame import save
from bertkit.tasks.feature_heads import TrainedHead
from bertkit.tasks.features import FeatureTable
from bertkit.tasks.metrics import ClassMetrics
from bertkit.tasks.metrics.entities import EntityMetrics
from bertkit.tasks.reading.splits import count_classes
from bertkit.training.toml_text import write_toml

REPORT = "report.html"


def save_head(
    trained: TrainedHead,
    folder: Path,
    train: FeatureTable,
    dev: FeatureTable | None,
    files: tuple[str, str],
    config: Any,
    said: str = "",
) -> Path:
    """The head's folder with report.html.

    `files` are the names of both tables, `config` is what it was trained with, `said` how dev was split off, if it was.
    """
    report = head_report(trained, train, dev, files, config, said)
    trained.save(folder)
    save(folder / REPORT, finetuning_page(report))
    return folder / REPORT


def head_report(
    trained: TrainedHead,
    train: FeatureTable,
    dev: FeatureTable | None,
    files: tuple[str, str],
    config: Any,
    said: str = "",
) -> FinetuningReport:
    """Everything that the page shows."""
    recipe, is_words = trained.recipe, trained.recipe.per == "word"
    splits = [_data_file("train", files[0], train), *([] if dev is None else [_data_file("dev", files[1], dev)])]
    shown = [row for row in trained.history if "f1" in row]
    weights = trained.layer_weights
    shares = "" if weights is None else ", ".join(f"{weight:.3f}" for weight in weights)
    return FinetuningReport(
        name="tagger on frozen features" if is_words else "classifier on frozen features",
        task=f"{'a BiLSTM on words' if is_words else 'logistic regression on texts'}, layer {recipe.layer}",
        base=Path(recipe.model).name,
        num_parameters=sum(p.numel() for p in trained.head.parameters()),
        metric="f1" if is_words else "accuracy",
        data=splits,
        scores=trained.scores,
        labels=trained.config.labels,
        majority_scores={} if dev is None else _guessing(train, dev, trained),
        losses=[LossPoint(round(row["step"]), row["loss"]) for row in trained.history],
        evaluations=[DevPoint(round(row["step"]), {"f1": row["f1"]}) for row in shown],
        notes=[
            "the encoder stayed as it was",
            *([said] if said else []),
            *([f"shares of the layers, lowest first: {shares}"] if shares else []),
        ],
        settings=write_toml(asdict(config)),
    )


def _data_file(name: str, file: str, table: FeatureTable) -> DataFile:
    return DataFile(name, file, len(table.groups()), classes=count_classes(table.labels))


def _guessing(train: FeatureTable, dev: FeatureTable, trained: TrainedHead) -> dict[str, float]:
    """Always the most frequent class or tag of training."""
    most = Counter(train.known_labels()).most_common(1)[0][0]
    if trained.recipe.per == "word":
        entities, tags = EntityMetrics(), dev.known_labels()
        for first, end in dev.groups():
            entities.add(tags[first:end], [most] * (end - first))
        return entities.scores()
    classes = ClassMetrics(trained.config.labels)
    for label in dev.known_labels():
        classes.add(label, most)
    return classes.scores()
