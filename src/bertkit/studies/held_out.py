"""Held-out text: MLM perplexity and accuracy, NSP accuracy, with the masks and pairs that evaluation always has."""

from collections.abc import Callable
from typing import Any

from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.studies.suite_config import HeldOutConfig
from bertkit.tasks.feed.epochs import FeedConfig, ObjectiveName
from bertkit.tasks.feed.pretraining import held_out_feed
from bertkit.training.evaluation import evaluate
from bertkit.training.objective import Objective
from bertkit.training.world import World


def measure_held_out(
    bert: Bert,
    store: TokenStore,
    config: HeldOutConfig,
    limit: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """The figures of every length that the model has positions for; with a limit, of so many batches."""
    if bert.model.mlm is None:
        raise BertkitError("this checkpoint has no MLM head, so held-out text cannot be measured; load one that has")
    positions = bert.config.max_positions
    lengths = [length for length in config.lengths if length <= positions] or [positions]
    found = []
    for number, length in enumerate(lengths):
        found.append(_measure(bert, store, config, length, limit))
        progress((number + 1) / len(lengths))
    return {**found[0], "lengths": found}


def _measure(bert: Bert, store: TokenStore, config: HeldOutConfig, length: int, limit: int | None) -> dict[str, Any]:
    has_nsp = bert.model.nsp is not None
    objective: ObjectiveName = "ltr" if bert.config.is_causal else "mlm"
    tokens = max(length, config.tokens_per_batch)
    shape = FeedConfig(max_length=length, tokens_per_batch=tokens, objective=objective)
    feed = held_out_feed(store, bert.tokenizer, shape)
    indices = range(min(limit or feed.epoch_size, feed.epoch_size))
    measured = Objective(bert.model).eval()  # left as it was found: a new module would be in training mode
    figures = evaluate(measured, feed, indices, World(device=bert.device)).to_json()
    if not has_nsp:  # the pairs are there all the same, so that all models see the same masks
        figures = {name: value for name, value in figures.items() if not name.startswith("nsp")}
    return {"length": length, "num_batches": len(indices), **figures}
