"""`bertkit train-head`: a head on the features of a frozen encoder, for the paper's other way of using BERT."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.options import MOST_SEED, JsonOption
from bertkit.cli.output import console, note, print_json, table
from bertkit.cli.places import check_folder


def train_head(
    train: Annotated[Path, typer.Argument(help="A .parquet file that `bertkit features` wrote from labelled data.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write the head to.")],
    dev: Annotated[
        Path | None, typer.Option("--dev", help="Features of other data; without them a part is held out.")
    ] = None,
    l2: Annotated[float, typer.Option(help="Texts: weight of the L2 penalty.")] = 1.0,
    epochs: Annotated[int, typer.Option(help="Words: epochs.")] = 15,
    batch_size: Annotated[int, typer.Option(help="Words: sentences a step.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Words: the peak rate.")] = 1e-3,
    width: Annotated[int, typer.Option(help="Words: the BiLSTM's width, each way.")] = 768,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of what is held out; words: of training too.")] = 0,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    json: JsonOption = False,
) -> None:
    """Train logistic regression (features of texts) or a two-layer BiLSTM (features of words); report.html says how it went.

    Example: bertkit train-head train.parquet --dev dev.parquet -o my-head
    """
    from bertkit.tasks.feature_splits import SplitTable, split_table
    from bertkit.tasks.features import read_features
    from bertkit.training.heads.classifier import LogisticTraining, train_classifier
    from bertkit.training.heads.report import save_head
    from bertkit.training.heads.tagger import TaggerTraining, epoch_line, train_tagger
    from bertkit.training.world import choose_device

    check_folder(output)
    features = read_features(train)
    config: LogisticTraining | TaggerTraining = LogisticTraining(l2)
    if features.recipe.per == "word":
        config = TaggerTraining(epochs, batch_size, learning_rate, width, seed=seed)
    split = split_table(features, seed=seed) if dev is None else SplitTable(features, read_features(dev), "")
    if dev is None:
        note(split.said)
    if isinstance(config, LogisticTraining):
        trained = train_classifier(split.train, split.dev, config)
    else:
        place = str(choose_device(device))
        trained = train_tagger(split.train, split.dev, config, lambda *figures: note(epoch_line(*figures)), place)
    report = save_head(trained, output, split.train, split.dev, (train.name, (dev or train).name), config, split.said)
    if json:
        print_json({"output": str(output), "scores": dict(trained.scores), "layer_weights": trained.layer_weights})
        return
    rows = table("score", "on the held-out part" if dev is None else "on dev")
    for name, score in trained.scores.items():
        rows.add_row(name, f"{score:.4f}")
    console().print(rows)
    if trained.layer_weights is not None:
        note("shares of the layers, lowest first: " + ", ".join(f"{weight:.3f}" for weight in trained.layer_weights))
    note(f"wrote {output}, and {report}")
