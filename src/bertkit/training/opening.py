"""A recipe's folders, opened: tokenizer, token stores and their feeds."""

import warnings
from dataclasses import replace

from bertkit.corpus.overlap import MOST_SHARED, compare_stores
from bertkit.corpus.plan.passes import passes_by_file
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tokenizer import Tokenizer
from bertkit.training.data import RunData
from bertkit.training.recipe import Recipe
from bertkit.training.world import is_first_process


def open_data(recipe: Recipe) -> RunData:
    """Everything that the recipe names; a store made with another tokenizer is refused."""
    for key in ("tokenizer", "store"):
        if not getattr(recipe.data, key):
            raise BertkitError(f"the recipe names no data.{key}; give it, or --set data.{key}=FOLDER")
    tokenizer = Tokenizer.load(recipe.data.tokenizer)
    store = TokenStore.open(recipe.data.store, tokenizer)
    passes = passes_of(recipe, store)
    configs = (replace(feed_config(recipe, stage), passes=passes) for stage in range(len(recipe.stages)))
    train = [PretrainingFeed(store, tokenizer, config) for config in configs]
    held_out, old = (
        TokenStore.open(folder, tokenizer) if folder else None
        for folder in (recipe.data.held_out, recipe.data.old_held_out)
    )
    if held_out and is_first_process():
        warn_of_overlap(store, held_out)
    shape = feed_config(recipe, 0)
    return RunData(
        tokenizer,
        train,
        held_out_feed(held_out, tokenizer, shape) if held_out else None,
        held_out_feed(old, tokenizer, shape) if old else None,
        store.manifest.content,
        tuple(one.manifest.content if one else "" for one in (held_out, old)),
    )


def passes_of(recipe: Recipe, store: TokenStore) -> tuple[float, ...] | None:
    """How often an epoch reads each file that the store was made of; None: once."""
    return passes_by_file([file.name for file in store.manifest.inputs], recipe.data.passes)


def warn_of_overlap(store: TokenStore, held_out: TokenStore) -> None:
    """Say so where held-out text is trained on; it takes about a second for 200 million tokens."""
    found = compare_stores(store, held_out)
    if found.share > MOST_SHARED:
        warnings.warn(f"{found.line}: figures on {held_out.folder} will look better than they are", stacklevel=2)


def feed_config(recipe: Recipe, number: int) -> FeedConfig:
    """The shape of a stage; each stage draws anew."""
    stage = recipe.stages[number]
    return FeedConfig(
        max_length=stage.max_length,
        tokens_per_batch=stage.tokens_per_batch,
        masking=stage.masking,
        nsp=recipe.data.next_sentence,
        negatives=recipe.data.negatives,
        short_share=recipe.data.short_share,
        shifted_share=recipe.data.shifted_share,
        num_positions=max(other.max_length for other in recipe.stages),
        seed=recipe.seed + number,
        objective=recipe.objective,
    )
