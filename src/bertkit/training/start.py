"""The weights that a run begins with: fresh by the recipe's seed, or those of an existing checkpoint."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig, num_parameters
from bertkit.model.formats import load_model, resolve
from bertkit.tokenizer import Tokenizer
from bertkit.training.estimate.memory import FLOAT, available_memory
from bertkit.training.initialisation import initialise, look_beside
from bertkit.training.recipe import Recipe, pretraining_heads
from bertkit.training.world import is_first_process


def fresh_model(recipe: Recipe, tokenizer: Tokenizer) -> BertModel:
    """The model at step 0."""
    torch.manual_seed(recipe.seed)
    if recipe.model.init:
        model = initial_checkpoint(recipe, tokenizer)
    else:
        config = fresh_config(recipe, tokenizer.vocab_size)
        refuse_giants(config)
        model = BertModel(replace(config, num_layers=recipe.growth.depth(0.0, config.num_layers)))
        initialise(model, recipe.model.start, config.num_layers)
        if recipe.model.positions == "beside":
            look_beside(model)
    check_positions(recipe, model.config)
    return model


def fresh_config(recipe: Recipe, vocab_size: int) -> BertConfig:
    """The shape of a new model, fully grown."""
    heads = {"next_sentence": recipe.data.next_sentence, "is_causal": recipe.objective == "ltr"}
    return recipe.model.config(vocab_size, **heads)


def refuse_giants(config: BertConfig) -> None:
    """A slip of a digit would take all memory of the machine before anything is said."""
    needed, here = FLOAT * num_parameters(config), available_memory(torch.device("cpu"))
    if needed > here:
        raise BertkitError(
            f"this model has {num_parameters(config):,} weights, which take {needed / 2**30:,.0f} GiB, and "
            f"{here / 2**30:,.0f} GiB are free here; choose a smaller model.size, or other model.changes"
        )


def check_positions(recipe: Recipe, config: BertConfig) -> None:
    """Refuse stages that are longer than the model."""
    longest = max(stage.max_length for stage in recipe.stages)
    if longest > config.max_positions:
        raise BertkitError(f"a stage has max_length {longest}, but the model has {config.max_positions} positions")


def initial_checkpoint(recipe: Recipe, tokenizer: Tokenizer) -> BertModel:
    """An existing checkpoint with the heads of pre-training; those that it lacks are new."""
    if recipe.model.changes:
        raise BertkitError("model.changes and an initial checkpoint exclude each other: its config counts; remove one")
    path = resolve(recipe.model.init)
    model, report = load_model(path, heads=pretraining_heads(recipe.data.next_sentence))
    if report.broken:
        raise BertkitError(f"{recipe.model.init} has values that are not finite: {report.broken[0]}; choose another")
    if model.config.is_causal != (recipe.objective == "ltr"):
        found = "left to right (ltr)" if model.config.is_causal else "in both directions (mlm)"
        raise BertkitError(f"{recipe.model.init} was trained {found}; set the recipe's objective accordingly")
    refuse_other_tokens(recipe.model.init, path if path.is_dir() else path.parent, model.config, tokenizer)
    if report.new and is_first_process():
        new = " and no ".join(name.upper() for name in report.new)
        warnings.warn(f"{recipe.model.init} has no {new} head: new, so its loss begins as a guess's", stacklevel=2)
    return model


def refuse_other_text(found: str | None, given: str, out: Path) -> None:
    """A resumed run sees what the uninterrupted one would have seen, wherever its store lies now."""
    if found and given and found != given:
        raise BertkitError(
            f"the run in {out} began with other text than this data.store holds: resume with that store, "
            "or begin a new run from its weights with --init"
        )


def warn_of_other_figures(found: Sequence[str] | None, given: Sequence[str], out: Path) -> None:
    """The weights do not depend on it, so that a run may go on; but its figures speak of two texts."""
    for key, before, now in zip(("held_out", "old_held_out"), found or (), given, strict=False):
        if before and now and before != now and is_first_process():
            warnings.warn(
                f"data.{key} holds other text than the run in {out} was measured on so far: its figures before and "
                "after this point cannot be compared",
                stacklevel=2,
            )


def refuse_other_tokens(name: str, folder: Path, config: BertConfig, tokenizer: Tokenizer) -> None:
    """A row of a checkpoint is one token's: with another vocabulary every word would begin with another word's row."""
    if config.vocab_size < tokenizer.vocab_size:
        sizes = f"{tokenizer.vocab_size} tokens, but {name} has {config.vocab_size}"
        raise BertkitError(f"the tokenizer has {sizes}; prepare the text with that checkpoint's tokenizer")
    if not any((folder / file).is_file() for file in ("vocab.txt", "tokenizer.json")):
        return  # weights alone: nothing to compare with
    pairs = zip(Tokenizer.load(folder).tokens, tokenizer.tokens, strict=False)
    for index, (theirs, ours) in enumerate(pairs):
        if theirs != ours:
            raise BertkitError(
                f"token {index} is {ours!r} here and {theirs!r} in {name}; prepare the text with that checkpoint's tokenizer"
            )
