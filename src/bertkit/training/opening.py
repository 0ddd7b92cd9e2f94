"""A recipe's folders, opened: tokenizer, token stores and their feeds."""

from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tokenizer import Tokenizer
from bertkit.training.data import RunData
from bertkit.training.recipe import Recipe


def open_data(recipe: Recipe) -> RunData:
    """Everything that the recipe names; a store made with another tokenizer is refused."""
    for key in ("tokenizer", "store"):
        if not getattr(recipe.data, key):
            raise BertkitError(f"the recipe names no data.{key}; give it, or --set data.{key}=FOLDER")
    tokenizer = Tokenizer.load(recipe.data.tokenizer)
    store = TokenStore.open(recipe.data.store, tokenizer)
    train = [PretrainingFeed(store, tokenizer, feed_config(recipe, stage)) for stage in range(len(recipe.stages))]
    return RunData(
        tokenizer,
        train,
        _open_held_out(recipe, recipe.data.held_out, tokenizer),
        _open_held_out(recipe, recipe.data.old_held_out, tokenizer),
    )


def feed_config(recipe: Recipe, number: int) -> FeedConfig:
    """The shape of a stage; each stage draws anew."""
    stage = recipe.stages[number]
    return FeedConfig(
        max_length=stage.max_length,
        tokens_per_batch=stage.tokens_per_batch,
        masking=stage.masking,
        nsp=recipe.data.next_sentence,
        short_share=recipe.data.short_share,
        seed=recipe.seed + number,
        objective=recipe.objective,
    )


def _open_held_out(recipe: Recipe, folder: str, tokenizer: Tokenizer) -> PretrainingFeed | None:
    if not folder:
        return None
    return held_out_feed(TokenStore.open(folder, tokenizer), tokenizer, feed_config(recipe, 0))
