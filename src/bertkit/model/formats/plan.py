"""Which model a checkpoint becomes: the heads that it holds, those that are asked for, labels, tied or untied decoder.

In: the stored config and tensors, and the caller's wishes. Out: a BertConfig, the heads to initialise afresh, notes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from bertkit.errors import BertkitError
from bertkit.model.config import HEADS, LABELLED_HEADS, BertConfig, Head, Problem
from bertkit.model.formats.config import ARCHITECTURES, StoredConfig
from bertkit.model.formats.names import CLASSIFIER, DECODER, DECODER_BIAS, HEAD_NAMES, TOKEN_EMBEDDINGS
from bertkit.model.formats.stored import Stored


@dataclass(frozen=True)
class Plan:
    """The model to build, and which of its heads are new."""

    config: BertConfig
    fresh: tuple[Head, ...]
    notes: tuple[str, ...]


def plan_model(
    stored: Stored, said: StoredConfig, heads: Iterable[Head] | None = None, labels: Sequence[str] | None = None
) -> Plan:
    """Decide what to build: exactly the stored heads, or the asked ones."""
    notes: list[str] = []
    tied = _settle_decoder(stored, said, notes)
    found = _find_heads(stored, said)
    if heads is None:
        _refuse_without_pooler(stored, found)
    wanted = found if heads is None else _checked(heads)
    fresh = {head for head in wanted if head not in found}
    labelled = next((head for head in wanted if head in LABELLED_HEADS), None)
    if labelled is None:
        config = said.encoder.with_heads(wanted, tied_decoder=tied)
    else:
        known = _stored_labels(stored, said) if labelled in found else said.labels
        names = known if labels is None else tuple(labels)
        if labelled in found and not _fits(stored, known, names, notes):
            fresh.add(labelled)
        guess: Problem = "regression" if labelled == "classifier" and len(names) == 1 else "single_label"
        # A number was learned by the stored head; a new one for several labels is no longer about numbers.
        is_outdated = labelled in fresh and said.problem == "regression" and len(names) > 1
        problem = guess if is_outdated else said.problem or guess
        config = said.encoder.with_heads(wanted, tied_decoder=tied, labels=names, problem=problem)
    _note_heads(found, said, notes)
    return Plan(config, tuple(head for head in config.heads if head in fresh), tuple(notes))


def _checked(heads: Iterable[Head]) -> tuple[Head, ...]:
    wanted = tuple(heads)
    for head in wanted:
        if head not in HEADS:
            raise BertkitError(f"unknown head {head!r}; choose from {', '.join(HEADS)}")
    return wanted


def _refuse_without_pooler(stored: Stored, found: tuple[Head, ...]) -> None:
    for head in ("nsp", "classifier"):
        if head in found and "pooler" not in found:
            raise BertkitError(
                f"{stored.location.weights}: the {head} head is there, but not the pooler that it reads; "
                "name the heads to load, such as heads=[] for the encoder alone"
            )


def _settle_decoder(stored: Stored, said: StoredConfig, notes: list[str]) -> bool:
    """Whether the MLM decoder is the token embeddings; duplicates of tied tensors are dropped."""
    tensors = stored.tensors
    if DECODER_BIAS in tensors:
        # Where both are stored, this is the one that transformers adds to the logits.
        tensors["cls.predictions.bias"] = tensors.pop(DECODER_BIAS)
    decoder, embeddings = tensors.get(DECODER), tensors.get(TOKEN_EMBEDDINGS)
    if decoder is None or embeddings is None:
        return said.tied_decoder
    if not said.tied_decoder:
        notes.append("the MLM decoder is untied from the token embeddings")
        return False
    if decoder.shape == embeddings.shape and torch.equal(decoder, embeddings):
        del tensors[DECODER]
        notes.append("the MLM decoder is stored and equal to the token embeddings: tied")
        return True
    notes.append("the stored MLM decoder differs from the token embeddings: kept untied, whatever the config says")
    return False


def _find_heads(stored: Stored, said: StoredConfig) -> tuple[Head, ...]:
    present = stored.tensors.keys()
    found: set[Head] = set()
    for head, names in HEAD_NAMES.items():
        if head not in LABELLED_HEADS and any(name.huggingface in present for name in names):
            found.add(head)
    if CLASSIFIER in present:
        labelled = set(ARCHITECTURES.get(said.architecture or "", ())) & set(LABELLED_HEADS)
        if labelled:
            found |= labelled
        elif said.architecture in (None, *ARCHITECTURES):
            # Nothing says whether texts or tokens are classified, but only texts need the pooler.
            found.add("classifier" if "pooler" in found else "tagger")
    return tuple(head for head in HEAD_NAMES if head in found)


def _stored_labels(stored: Stored, said: StoredConfig) -> tuple[str, ...]:
    """The names of the stored head's outputs: the config's, or LABEL_0 and so on."""
    weight = stored.tensors[CLASSIFIER]
    num_labels = len(weight) if weight.dim() else 0
    if said.labels and len(said.labels) != num_labels:
        raise BertkitError(
            f"{stored.location.config} names {len(said.labels)} labels, but {CLASSIFIER} in "
            f"{stored.location.weights.name} has {num_labels} rows"
        )
    return said.labels or _unnamed(num_labels)


def _unnamed(num_labels: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{index}" for index in range(num_labels))


def _fits(stored: Stored, known: tuple[str, ...], asked: tuple[str, ...], notes: list[str]) -> bool:
    """Whether the stored head serves these labels; the same ones in another order would be silently wrong."""
    is_unnamed = known == _unnamed(len(known))
    if asked == known:
        if is_unnamed:
            notes.append(f"the {len(known)} labels have no names in this checkpoint: LABEL_0 and so on")
        return True
    if len(asked) == len(known) and is_unnamed:
        notes.append("the stored labels have no names: they take the given ones in the given order")
        return True
    if set(asked) == set(known):
        raise BertkitError(
            f"{stored.location.config} has the labels in the order {', '.join(known)}, not {', '.join(asked)}; "
            "give them in that order or not at all"
        )
    notes.append(f"the stored classifier knows other labels ({', '.join(known[:8])}): it is left out")
    return False


def _note_heads(found: tuple[Head, ...], said: StoredConfig, notes: list[str]) -> None:
    promised = ARCHITECTURES.get(said.architecture or "", ())
    if "pooler" not in found:
        notes.append("no pooler in this checkpoint")
    if missing := [head for head in promised if head not in found and head != "pooler"]:
        notes.append(f"the config says {said.architecture}, but there is no {' or '.join(missing)} head in the file")
