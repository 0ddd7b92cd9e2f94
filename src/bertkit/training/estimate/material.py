"""What an estimate or a check-up measures with: the recipe's config and feeds, as far as they are there yet."""

from dataclasses import dataclass, field
from operator import mul
from pathlib import Path

from bertkit.bundled import is_here
from bertkit.corpus.doctor.sample import part_of_store
from bertkit.corpus.store import TokenStore
from bertkit.model.config import BertConfig
from bertkit.model.formats import load_model, resolve
from bertkit.tasks.feed.pretraining import PretrainingFeed
from bertkit.tokenizer import Tokenizer
from bertkit.training.doctor.batches import RandomFeed
from bertkit.training.feeds import Feed
from bertkit.training.opening import feed_config, passes_of
from bertkit.training.recipe import Recipe, pretraining_heads
from bertkit.training.start import check_positions, fresh_config

BERT_VOCABULARY = 30522  # assumed where there is no tokenizer yet
MOST_TOKENS = 20_000_000  # of a store that are planned for measuring


@dataclass
class Material:
    """What there is to measure with."""

    config: BertConfig
    feeds: list[Feed]
    corpus_tokens: int | None = None  # that an epoch reads
    epoch_sizes: list[float] | None = None  # micro-batches of an epoch over the whole store, a stage
    num_held_out: int = 0  # feeds that are evaluated
    notes: list[str] = field(default_factory=list)


def gather_material(recipe: Recipe) -> Material:
    """Tokenizer, config and feeds; what is not there yet is replaced and noted."""
    notes: list[str] = []
    tokenizer = _existing_tokenizer(recipe, notes)
    config = model_config(recipe, tokenizer.vocab_size if tokenizer else BERT_VOCABULARY)
    check_positions(recipe, config)
    held_out = [name for name in (recipe.data.held_out, recipe.data.old_held_out) if name]
    store_folder = recipe.data.store
    if tokenizer is None or not (store_folder and Path(store_folder).exists()):
        notes.append(f"there is no store {store_folder or '(data.store)'} yet: random tokens in the recipe's shapes")
        feeds: list[Feed] = [
            RandomFeed(stage, config.vocab_size, next_sentence=recipe.data.next_sentence) for stage in recipe.stages
        ]
        return Material(config, feeds, num_held_out=len(held_out), notes=notes)
    store = TokenStore.open(store_folder, tokenizer)
    part = part_of_store(store, MOST_TOKENS)
    real = [PretrainingFeed(part, tokenizer, feed_config(recipe, number)) for number in range(len(recipe.stages))]
    shards = [shard.num_tokens for shard in store.manifest.shards]
    read = round(sum(map(mul, shards, passes_of(recipe, store) or [1.0] * len(shards))))
    sizes = [feed.epoch_size * read / part.num_tokens for feed in real]
    return Material(config, list(real), read, sizes, len(held_out), notes)


def model_config(recipe: Recipe, vocab_size: int) -> BertConfig:
    """The config of the model, that of `init` where there is one."""
    if not recipe.model.init:
        return fresh_config(recipe, vocab_size)
    heads = pretraining_heads(recipe.data.next_sentence)
    return load_model(resolve(recipe.model.init), heads=heads)[0].config


def _existing_tokenizer(recipe: Recipe, notes: list[str]) -> Tokenizer | None:
    folder = recipe.data.tokenizer
    if folder and (Path(folder).exists() or is_here(folder)):
        return Tokenizer.load(folder)
    notes.append(f"there is no tokenizer {folder or '(data.tokenizer)'} yet: {BERT_VOCABULARY:,} tokens are assumed")
    return None
