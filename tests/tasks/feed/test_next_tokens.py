"""Left to right: every ordinary token is predicted once, from the place before it, and nothing is masked."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bertkit.model import BertModel, preset
from bertkit.tasks.feed.arrays import ArrayFeed
from bertkit.tasks.feed.next_tokens import next_tokens
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tasks.pretraining import IGNORED, pretraining_losses
from tests.tasks.feed.test_pretraining import CLS, CONFIG, PAD, SEP, STORE, UNK, VOCABULARY

LTR = replace(CONFIG, objective="ltr")


def test_a_worked_case() -> None:
    ids = np.array([CLS, 10, UNK, 11, SEP, 12, SEP, CLS, 13, SEP])
    found = next_tokens(ids, ~VOCABULARY.is_special[ids])
    assert found.positions.tolist() == [0, 2, 4, 7]
    assert found.targets.tolist() == [10, 11, 12, 13]
    assert found.token_ids is ids


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_batch_has_every_next_token_and_the_tokens_of_its_masked_twin(evaluation: bool) -> None:
    feed = PretrainingFeed(STORE, VOCABULARY, LTR, evaluation=evaluation)
    twin = PretrainingFeed(STORE, VOCABULARY, CONFIG, evaluation=evaluation)
    batch, masked = feed.micro_batch(3), twin.micro_batch(3)
    ids, used = batch.inputs.token_ids, batch.masked_token_ids != IGNORED
    assert torch.equal(ids[batch.masked_positions[used] + 1], batch.masked_token_ids[used])
    ordinary = torch.from_numpy(~VOCABULARY.is_special)[ids]
    assert int(used.sum()) == int(ordinary.sum()) == feed.counts(3).num_masked
    restored = masked.inputs.token_ids.clone()
    restored[masked.masked_positions] = torch.where(
        masked.masked_token_ids == IGNORED, restored[0], masked.masked_token_ids
    )
    real = ids != PAD
    assert torch.equal(restored[real][1:], ids[real][1:])
    assert torch.equal(
        batch.inputs.cu_seqlens[batch.inputs.cu_seqlens > 0], masked.inputs.cu_seqlens[masked.inputs.cu_seqlens > 0]
    )


def test_the_capacity_holds_every_token() -> None:
    feed = ArrayFeed(STORE.shards, VOCABULARY, LTR)
    assert feed.capacities.num_masked == LTR.tokens_per_batch


def test_an_untrained_model_guesses_evenly() -> None:
    torch.manual_seed(0)
    model = BertModel(preset("tiny", vocab_size=1000, is_causal=True)).eval()
    feed = held_out_feed(STORE, VOCABULARY, LTR)
    losses = pretraining_losses(model, feed.micro_batch(0))
    assert losses.mlm_sum.item() / feed.counts(0).num_masked == pytest.approx(np.log(1000), rel=0.02)
