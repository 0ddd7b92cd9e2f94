"""Held-out text: every length that the model has, each masked token counted once, the same figures every time."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.studies.held_out import measure_held_out
from bertkit.studies.suite_config import HeldOutConfig
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import held_out_feed
from tests.studies.toy_data import open_data

CONFIG = HeldOutConfig(lengths=(16, 32, 64), tokens_per_batch=64)


@torch.inference_mode()
def test_figures_are_means_over_all_masked_tokens(data: Path, model: str) -> None:
    bert = load(model, device="cpu")
    store = open_data(data).store("validation.txt", bert.tokenizer)
    found = measure_held_out(bert, store, CONFIG)
    feed = held_out_feed(store, bert.tokenizer, FeedConfig(max_length=16, tokens_per_batch=64))
    loss, right, count = 0.0, 0, 0
    for index in range(feed.epoch_size):
        batch = feed.micro_batch(index)
        logits = bert.model.mlm_logits(bert.model.encoder(batch.inputs)[batch.masked_positions])
        loss += float(F.cross_entropy(logits, batch.masked_token_ids, reduction="sum"))
        right += int((logits.argmax(-1) == batch.masked_token_ids).sum())
        count += int((batch.masked_token_ids != -100).sum())
    assert count > 20
    assert found["num_masked"] == count
    assert found["perplexity"] == pytest.approx(math.exp(loss / count), rel=1e-4)
    assert found["mlm_accuracy"] == pytest.approx(right / count)
    assert [one["length"] for one in found["lengths"]] == [16, 32]  # the model has 32 positions
    assert measure_held_out(bert, store, CONFIG) == found
    assert measure_held_out(bert, store, CONFIG, limit=1)["num_batches"] == 1


def test_heads_that_are_not_there(data: Path, model: str) -> None:
    bert = load(model, device="cpu", heads=("mlm",))
    store = open_data(data).store("validation.txt", bert.tokenizer)
    assert not [name for name in measure_held_out(bert, store, CONFIG) if name.startswith("nsp")]
    with pytest.raises(BertkitError, match="no MLM head"):
        measure_held_out(load(model, device="cpu", heads=("pooler",)), store, CONFIG)
