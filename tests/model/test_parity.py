"""Numbers equal to the reference implementation on the same weights, for every preset shape and backend."""

import pytest
import torch
from torch import Tensor

from bertkit.model import PackedBatch, preset
from bertkit.model.attention import Backend
from bertkit.model.config import PRESETS
from bertkit.tasks.pretraining import pretraining_losses
from tests.model.reference import assert_gradients_equal, make_batch, make_pair, padded, reference_labels

OUTPUT_TOLERANCE = 1e-5


def unpad(padded_output: Tensor, batch: PackedBatch) -> Tensor:
    lengths = batch.cu_seqlens.diff().tolist()
    return torch.cat([row[:length] for row, length in zip(padded_output, lengths, strict=True)])


@pytest.mark.parametrize("backend", ["sdpa", "plain"])
@pytest.mark.parametrize("size", PRESETS)
def test_outputs_and_gradients_equal_the_reference(size: str, backend: Backend) -> None:
    config = preset(size)
    model, reference = make_pair(config)
    batch = make_batch(config)
    theirs = reference(
        **padded(batch.inputs),
        labels=reference_labels(batch),
        next_sentence_label=batch.next_labels,
        output_hidden_states=True,
    )

    losses = pretraining_losses(model, batch, backend)
    total = losses.total(len(batch.masked_token_ids), len(batch.inputs))
    hidden = model.encoder(batch.inputs, backend=backend)

    expected_hidden = unpad(theirs.hidden_states[-1], batch.inputs)
    expected_mlm = unpad(theirs.prediction_logits, batch.inputs)[batch.masked_positions]
    assert (hidden - expected_hidden).abs().max() <= OUTPUT_TOLERANCE
    assert (losses.mlm_logits - expected_mlm).abs().max() <= OUTPUT_TOLERANCE
    assert (losses.nsp_logits - theirs.seq_relationship_logits).abs().max() <= OUTPUT_TOLERANCE
    assert abs(total.item() - theirs.loss.item()) <= OUTPUT_TOLERANCE

    total.backward()
    theirs.loss.backward()
    assert_gradients_equal(model, reference)


def test_every_layer_equals_the_reference() -> None:
    config = preset("mini", vocab_size=500)
    model, reference = make_pair(config)
    batch = make_batch(config).inputs
    expected = reference(**padded(batch), output_hidden_states=True).hidden_states
    states = model.encoder.all_layers(batch)
    assert len(states) == config.num_layers + 1
    for ours, theirs in zip(states, expected, strict=True):
        assert (ours - unpad(theirs, batch)).abs().max() <= OUTPUT_TOLERANCE


@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_bf16_is_as_close_as_the_references_own_bf16(backend: Backend) -> None:
    config = preset("small", vocab_size=500)
    model, reference = make_pair(config)
    batch = make_batch(config).inputs
    with torch.no_grad():
        exact = unpad(reference(**padded(batch), output_hidden_states=True).hidden_states[-1], batch)
        half = reference.bfloat16()(**padded(batch), output_hidden_states=True).hidden_states[-1]
        ours = model.bfloat16().encoder(batch, backend=backend).float()
    their_error = (unpad(half.float(), batch) - exact).norm() / exact.norm()
    our_error = (ours - exact).norm() / exact.norm()
    assert our_error <= 1.5 * their_error
    assert our_error <= 0.02
