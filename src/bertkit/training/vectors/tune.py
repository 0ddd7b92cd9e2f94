"""Sentence vectors that are good: an encoder tuned on pairs, so that cosines tell how alike two texts are.

In: a checkpoint and a file of pairs, scored or not. Out: the same encoder with the weights of its best epoch on dev,
and a folder that sentence-transformers loads as it is. Pooled are the real tokens alone.
"""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.formats import load_model
from bertkit.model.formats.sentence_transformers import SentenceStyle, read_style
from bertkit.pages.finetuning import DataFile
from bertkit.tasks.reading.splits import find_duplicates, split_examples
from bertkit.tasks.sentence_pairs import Loss, PairExample, choose_loss, positives, read_pairs, score_range
from bertkit.tokenizer.fitting import Limit
from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.finetuning.data import source_name
from bertkit.training.finetuning.start import Base, open_base
from bertkit.training.vectors.config import VectorTraining
from bertkit.training.vectors.data import PairData, encode_pairs, text_vectors
from bertkit.training.vectors.loop import Say, VectorRun
from bertkit.training.vectors.report import make_report, worst_pairs
from bertkit.training.vectors.saving import CHECKPOINTS, TunedVectors
from bertkit.training.watch import catch_signals
from bertkit.training.world import choose_device


def tune_vectors(
    model: str | Path,
    train: str | Path | Sequence[PairExample],
    dev: str | Path | Sequence[PairExample] | None = None,
    config: VectorTraining | None = None,
    *,
    say: Say = lambda line: None,
    out: str | Path | None = None,
    **changes: Any,
) -> TunedVectors:
    """Tune a checkpoint on pairs (files or examples); without dev a tenth is held out. `changes`: see VectorTraining.

    With `out`, a checkpoint of every epoch lies there until the model is saved; a killed run goes on from the last.
    """
    config = replace(config or VectorTraining(), **changes)
    base, notes = open_other(model, out), list[str]()

    def note(line: str) -> None:
        notes.append(line)
        say(line)

    pairs, held = _read_both(train, dev, config, note)
    loss = choose_loss(config.loss, pairs)
    chosen = choose_style(base, config)
    limit = Limit(min(chosen.max_length or base.encoder.max_positions, base.encoder.max_positions), config.long)
    data = encode_pairs(prepare_pairs(pairs, loss, note), base.tokenizer, limit)
    held_data = encode_pairs(held, base.tokenizer, limit)
    note(f"{loss} loss over {len(data):,} pairs, {chosen.pooling} of the real tokens, {config.batch_size} pairs a step")
    encoder = load_encoder(base).to(choose_device(config.device))
    checkpoints = None if out is None else CheckpointFolder(Path(out) / CHECKPOINTS, keep=1)
    identity = identify(base, config, data, held_data)
    run = VectorRun(encoder, data, held_data, loss, chosen.pooling, config, say, checkpoints, identity)
    with catch_signals() if out is not None else nullcontext() as stop:
        history = run.run(stop)
    splits = [
        DataFile("train", source_name(train), len(pairs)),
        DataFile("dev", source_name(train if dev is None else dev), len(held)),
    ]
    mistakes = worst_pairs(text_vectors(encoder, held_data, chosen.pooling), held_data, held)
    report = make_report(base, config, encoder, history, splits, notes, mistakes)
    return TunedVectors(encoder.cpu().eval(), base.tokenizer, chosen, base.source, loss, history.rows, report)


def open_other(model: str | Path, out: str | Path | None) -> Base:
    """The checkpoint to start from; a run into its own folder would overwrite it."""
    base = open_base(model)
    if out is not None and Path(out).resolve() == base.folder.resolve():
        raise BertkitError(f"{out} is the checkpoint itself, which would be overwritten; choose another folder")
    return base


def identify(base: Base, config: VectorTraining, *parts: PairData) -> str:
    """Equal only for the same checkpoint, settings and pairs."""
    settings = {name: value for name, value in asdict(config).items() if name != "device"}
    digest = hashlib.blake2b(f"{base.source} {settings}".encode(), digest_size=8)
    for data in parts:
        digest.update(np.array([token for text in data.texts for token in text], dtype=np.int32).tobytes())
        for column in (data.first, data.second, data.negative, data.scores):
            digest.update(b"" if column is None else column.tobytes())
    return digest.hexdigest()


def _read_both(
    train: str | Path | Sequence[PairExample],
    dev: str | Path | Sequence[PairExample] | None,
    config: VectorTraining,
    say: Say,
) -> tuple[list[PairExample], list[PairExample]]:
    pairs = _read(train, config, say)
    if dev is not None:
        held = _read(dev, config, say)
        for line in find_duplicates({"train": pairs, "dev": held}).lines():
            say(line)
        return pairs, held
    split: Any = split_examples(pairs, seed=config.seed)  # what goes in comes out: pairs are TextExamples with more
    say(split.said)
    return split.train, split.dev


def _read(source: str | Path | Sequence[PairExample], config: VectorTraining, say: Say) -> list[PairExample]:
    if not isinstance(source, str | Path):
        return list(source)
    table = read_pairs(source, config.columns)
    for line in table.lines():
        say(line)
    return table.examples


def prepare_pairs(pairs: Sequence[PairExample], loss: Loss, say: Say) -> list[PairExample]:
    """What the loss takes: positives alone, or scores brought to 0 to 1."""
    if loss == "contrastive":
        kept = positives(pairs)
        if len(kept) < len(pairs):
            say(
                f"{len(kept):,} of {len(pairs):,} pairs have a high score and count as meaning the same; the rest is unused"
            )
        return kept
    low, high = score_range(pairs)
    if loss == "mse":
        say(f"scores from {low:g} to {high:g} become 0 to 1")
    return [replace(pair, label=((pair.score or 0.0) - low) / (high - low)) for pair in pairs]


def choose_style(base: Base, config: VectorTraining) -> SentenceStyle:
    """How vectors are made: as asked, else as the checkpoint says, else by the mean."""
    own, _ = read_style(base.folder)
    asked = {name: getattr(config, name) for name in ("pooling", "normalize", "max_length")}
    return replace(own or SentenceStyle(), **{name: value for name, value in asked.items() if value is not None})


def load_encoder(base: Base) -> BertModel:
    """The encoder in float32, with its pooler if it has one (other libraries look for it), which is left as it is."""
    model, report = load_model(base.path, heads=["pooler"])
    if report.new:
        model, report = load_model(base.path, heads=[])
    if report.broken:
        raise BertkitError(f"{base.source} has values that are not finite: {report.broken[0]}; choose another")
    if model.pooler is not None:
        model.pooler.requires_grad_(False)
    return model
