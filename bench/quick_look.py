"""What a model is worth beyond its loss, in less than a minute of a GPU: trials with the same loss may differ in all of this.

    python -m bench.quick_look MODEL ... --data DATA [--store STORE] [--limit 50] [--tasks CoLA,RTE]

Of DATA the first examples alone (--limit): BLiMP by so many pairs of each set, senses of words by ten times as many pairs.
"fair" is the cosine of the just one with "unbiased" less that with a fun fair. With --store held-out loss without dropout and
with it (bench.with_dropout); with --tasks one seed of these, by the suite's settings and on all of their text.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.with_dropout import RATE, mlm_loss
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load
from bertkit.inference.words import compare_words
from bertkit.model.dropout import set_dropout
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite_config import BLIMP, WORD_IN_CONTEXT, read_suite
from bertkit.studies.suite_parts import SuiteSpec, run_part

COLUMNS = {  # of a table of models: what each is called there, and its form
    "blimp": ("BLiMP", ".1%"),
    "senses": ("senses", ".1%"),
    "fair": ("fair", "+.2f"),
    "with_dropout": ("loss with dropout", ".2f"),
}


def look_at(
    model: Path, data: DataFolder, store: Path | None = None, limit: int = 50, tasks: Sequence[str] = ()
) -> dict[str, float]:
    """Its figures by name, in 0 to 1 but for losses and the margin of "fair"."""
    with tempfile.TemporaryDirectory() as folder:
        spec = SuiteSpec(str(model), data, read_suite(), Path(folder), limit)
        blimp, senses = (
            run_part(spec, BLIMP, None, _quiet),
            run_part(replace(spec, limit=10 * limit), WORD_IN_CONTEXT, None, _quiet),
        )
        scores = {name: run_part(replace(spec, limit=None), name, 0, _quiet)["score"] for name in tasks}
        bert = spec.open()
        found = {"blimp": blimp["accuracy"], "senses": senses["accuracy"], "fair": fair_margin(bert), **scores}
    return found if store is None else {**found, **dropout_losses(model, store)}


def fair_margin(bert: Bert) -> float:
    """Above 0 where meaning counts for more than spelling."""
    just, *_ = compare_words(bert).contextual.cosines  # of fair treatment, with itself, the fun fair and unbiased
    return just[2] - just[1]


def dropout_losses(model: Path, store: Path, num_batches: int = 4) -> dict[str, float]:
    """Held-out MLM loss without dropout and with it."""
    bert = load(model, dtype="float32", engine="torch")
    text = TokenStore.open(store, bert.tokenizer)
    without = mlm_loss(bert, text, 128, num_batches)
    set_dropout(bert.model, RATE)
    bert.model.train()
    torch.manual_seed(0)
    return {"without_dropout": without, "with_dropout": mlm_loss(bert, text, 128, num_batches)}


def _quiet(share: float) -> None:
    """Nothing to say on the way."""


def main() -> None:
    """A line of JSON a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--tasks", default="")
    given = parser.parse_args()
    try:
        for model in given.models:
            tasks = [name for name in given.tasks.split(",") if name]
            found: dict[str, Any] = look_at(model, DataFolder.open(given.data), given.store, given.limit, tasks)
            print(
                json.dumps({"model": str(model), **{name: round(value, 4) for name, value in found.items()}}),
                flush=True,
            )
    except BertkitError as error:
        sys.exit(f"bench.quick_look: {error}")


if __name__ == "__main__":
    main()
