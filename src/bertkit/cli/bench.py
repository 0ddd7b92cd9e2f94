"""`bertkit bench`: this model on this machine, by bertkit's engines and by its peers."""

from typing import Annotated

import typer

from bertkit.cli.options import MOST_AT_ONCE, JsonOption, ModelOption
from bertkit.cli.output import console, note, print_json, table


def bench(
    model: ModelOption = "",
    file: Annotated[
        str | None,
        typer.Option(
            "--file", "-f", help="Texts: .txt, .jsonl, .csv, .tsv, .parquet (also .gz, .xz); else sample sentences."
        ),
    ] = None,
    field: Annotated[
        str, typer.Option(help="The field of a .jsonl line or column of a table that holds the text.")
    ] = "text",
    num_texts: Annotated[int, typer.Option("--texts", help="How many texts at most.", min=1)] = 1000,
    rounds: Annotated[int, typer.Option(help="Rounds measured after a first that warms up.", min=1)] = 3,
    max_length: Annotated[int, typer.Option(help="Tokens a text; longer ones are cut.", min=3)] = 256,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_AT_ONCE, help="Threads of every contestant; all cores by default.")
    ] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Also what else is installed.")] = True,
    json: JsonOption = False,
) -> None:
    """Measure sentence vectors: texts a second, milliseconds for one text, and how far from float32 they are.

    Contestants take turns, so that other programs disturb all alike. Peers are measured where they are installed:
    transformers, sentence-transformers, and ONNX Runtime on the graph that PyTorch exports.

    Example: bertkit bench -m small-en
    """
    import warnings
    from itertools import islice

    import torch

    from bertkit.errors import BertkitError, LongTextWarning
    from bertkit.inference.engines.bench import BenchOptions, bench, sample_texts
    from bertkit.tasks.reading.chosen import chosen_texts

    if not model:
        raise BertkitError("no checkpoint is named: give --model or set BERTKIT_MODEL (`bertkit info` lists some)")
    if threads:
        torch.set_num_threads(threads)
    warnings.simplefilter("ignore", LongTextWarning)  # --max-length says that texts are cut
    texts = list(islice(chosen_texts(None, file, field), num_texts)) if file else sample_texts(num_texts)
    options = BenchOptions(rounds=rounds, max_length=max_length, threads=threads, peers=peers)
    result = bench(model, texts, options, progress=note)
    if json:
        print_json(result.to_json())
        return
    shown = table("", "texts/s", "ms for one", "95 %", "lowest cosine", title=f"{result.num_texts} texts")
    for row in result.rows:
        numbers = (f"{row.texts_per_second:,.0f}", f"{row.milliseconds:.1f}", f"{row.milliseconds_p95:.1f}")
        shown.add_row(row.name, *numbers, f"{row.lowest_cosine:.4f}")
    console().print(shown)
    for line in result.notes:
        note(line)
