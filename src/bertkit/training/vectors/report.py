"""The page of tuned sentence vectors: curves, the score before and after, and the pairs that are still judged worst."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertkit.model.bert import BertModel
from bertkit.model.config import num_parameters
from bertkit.pages.finetuning import DataFile, DevPoint, FinetuningReport, LossPoint, Mistake
from bertkit.tasks.metrics.numbers import ranks
from bertkit.tasks.sentence_pairs import PairExample
from bertkit.training.curves import thin
from bertkit.training.finetuning.start import Base
from bertkit.training.toml_text import write_toml
from bertkit.training.vectors.config import VectorTraining
from bertkit.training.vectors.data import MOST_RANKED, PairData
from bertkit.training.vectors.loop import VectorHistory

MOST_PAIRS = 30


def make_report(
    base: Base,
    config: VectorTraining,
    model: BertModel,
    history: VectorHistory,
    splits: Sequence[DataFile],
    notes: Sequence[str],
    mistakes: Sequence[Mistake],
) -> FinetuningReport:
    """Figures of a run that is over; its name is added by those who save it."""
    metric = "spearman" if "spearman" in history.rows[0] else "retrieval"
    every = len(history.losses) // max(1, len(history.rows) - 1)
    settings = {name: value for name, value in asdict(config).items() if value is not None and name != "columns"}
    return FinetuningReport(
        name="sentence vectors",
        task="sentence vectors",
        base=Path(base.source).name,
        num_parameters=num_parameters(model.config),
        metric=metric,
        data=splits,
        scores={metric: max(row[metric] for row in history.rows[1:])},
        baseline="the model before tuning",
        baseline_scores={metric: history.rows[0][metric]},
        losses=thin([LossPoint(step, loss) for step, loss in enumerate(history.losses, start=1)]),
        evaluations=[DevPoint(round(row["epoch"]) * every, {metric: row[metric]}) for row in history.rows],
        notes=notes,
        mistakes=mistakes,
        settings=write_toml(settings),
        seconds=history.seconds,
        device=model.device.type,
    )


def worst_pairs(vectors: NDArray[np.float32], data: PairData, examples: Sequence[PairExample]) -> list[Mistake]:
    """Pairs whose cosine ranks them far from where their score does; without scores, those that others came before."""
    if data.scores is None:
        return _not_nearest(vectors, data, examples)
    cosines = np.einsum("nd,nd->n", vectors[data.first], vectors[data.second])
    off = np.abs(ranks(data.scores) - ranks(cosines)) / max(1, len(examples))
    return [
        Mistake(
            text=examples[n].text,
            pair=examples[n].pair or "",
            gold=f"score {examples[n].score:g}",
            predicted=f"cosine {cosines[n]:.3f}",
            place=_place(examples[n]),
            loss=float(off[n]),
        )
        for n in np.argsort(-off, kind="stable")[:MOST_PAIRS]
    ]


def _not_nearest(vectors: NDArray[np.float32], data: PairData, examples: Sequence[PairExample]) -> list[Mistake]:
    first, second = data.first[:MOST_RANKED], data.second[:MOST_RANKED]
    cosines = vectors[first] @ vectors[second].T
    nearest = cosines.argmax(1)
    rows = np.arange(len(first))
    lead = cosines[rows, nearest] - cosines[rows, rows]
    wrong = [n for n in np.argsort(-lead, kind="stable") if second[nearest[n]] != second[n]][:MOST_PAIRS]
    return [
        Mistake(
            text=examples[n].text,
            gold=examples[n].pair or "",
            predicted=examples[nearest[n]].pair or "",
            place=_place(examples[n]),
            loss=float(lead[n]),
        )
        for n in wrong
    ]


def _place(example: PairExample) -> str:
    return "" if example.line is None else f"line {example.line}"
