"""`bertkit tune-vectors`: sentence vectors that are good, by tuning on pairs."""

from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.options import MOST_SEED, JsonOption, ModelOption
from bertkit.cli.output import note, print_json
from bertkit.cli.places import check_folder


def tune_vectors(
    train: Annotated[Path, typer.Option("--train", help="Pairs: .csv, .tsv, .jsonl or .parquet (also packed).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write the model to.")],
    model: ModelOption = "",
    dev: Annotated[Path | None, typer.Option("--dev", help="Other pairs; else a tenth of --train is held out.")] = None,
    loss: Annotated[
        str, typer.Option(help="auto, contrastive (pairs mean the same), cosent or mse (pairs have a score).")
    ] = "auto",
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls or max; by default the model's own, else mean.")
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Scale vectors to length 1.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Times through all pairs.")] = 4,
    batch_size: Annotated[int, typer.Option(help="Pairs a step; contrastive learns from the others in it.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="The peak rate.")] = 2e-5,
    max_length: Annotated[int | None, typer.Option(min=3, help="Tokens a text; by default the model's own.")] = None,
    first: Annotated[str | None, typer.Option("--first", help="The column of the first text.")] = None,
    second: Annotated[str | None, typer.Option("--second", help="The column of the second text.")] = None,
    score: Annotated[str | None, typer.Option("--score", help="The column of the score.")] = None,
    negative: Annotated[str | None, typer.Option("--negative", help="The column of a hard negative.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="The seed of order and dropout.")] = 0,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    json: JsonOption = False,
) -> None:
    """Tune an encoder so that the cosine of two texts' vectors tells how alike they are.

    The folder is one that sentence-transformers loads as it is, and `bertkit embed` knows its pooling. It has a card and
    report.html. A killed run goes on from its last epoch when the same command is given again.

    Example: bertkit tune-vectors -m small-en --train sts-train.tsv --dev sts-dev.tsv -o my-vectors
    """
    from bertkit.tasks.sentence_pairs import PairColumns
    from bertkit.training.vectors.config import VectorTraining
    from bertkit.training.vectors.tune import tune_vectors as tune

    config = VectorTraining(
        loss=loss,  # type: ignore[arg-type]
        pooling=pooling,  # type: ignore[arg-type]
        normalize=normalize,
        learning_rate=learning_rate,
        batch_size=batch_size,
        epochs=epochs,
        max_length=max_length,
        seed=seed,
        device=device,
        columns=PairColumns(first, second, score, negative),
    )
    check_folder(output)
    tuned = tune(model, train, dev, config, say=note, out=output)
    tuned.save(output)
    if json:
        print_json({"output": str(output), **tuned.to_json()})
    else:
        note(f"{tuned.metric} on dev: {tuned.before:.4f} before, {tuned.score:.4f} after")
        note(f"wrote {output}, and {output / 'report.html'}")
