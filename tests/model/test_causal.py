"""A causal model: nothing sees what comes after it, by every backend, with transformers' numbers for is_decoder."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForPreTraining

from bertkit.errors import BertkitError
from bertkit.inference.prediction import fill_masks
from bertkit.model import BertModel, pack, preset
from bertkit.model.attention import Backend, PlainAttention, prepare
from bertkit.model.formats import load_model, save_model
from bertkit.model.packed import PackedBatch
from bertkit.tasks.classification.task import ClassificationTask
from bertkit.tasks.pretraining import pretraining_losses
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.task import collate
from bertkit.tokenizer.fitting import Limit
from bertkit.training.fast_objective import why_not_fast
from tests.model.reference import LENGTHS, make_batch, padded
from tests.training.tiny import tokenizer

CONFIG = preset("tiny", vocab_size=200, num_layers=3, max_positions=64, is_causal=True)
LIMIT = Limit(32, "error")
SEQUENCES = [[1, 7, 8, 9, 2], [1, 2], [1, 5, 6, 7, 8, 9, 10, 2]]


def make_model(seed: int = 0) -> BertModel:
    torch.manual_seed(seed)
    return BertModel(replace(CONFIG, initializer_range=0.1)).eval()


@pytest.mark.parametrize("lengths", [(5, 1, 9, 2), (4, 4, 4)])
@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_backends_equal_float64(backend: Backend, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, 2, 8)
    parts = []
    for part in qkv.double().split(lengths):
        query, key, value = part.permute(1, 2, 0, 3)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        parts.append((scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value).transpose(0, 1))
    batch = pack([[7] * length for length in lengths])
    for trains in (True, False):
        with torch.set_grad_enabled(trains):
            mixed = prepare(batch, qkv.dtype, backend, is_causal=True)(qkv, 0.0)
        assert (mixed - torch.cat(parts)).abs().max() < 1e-6


@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_a_token_does_not_see_what_comes_after_it(backend: Backend) -> None:
    model = make_model()
    changed = [[*sequence[:-1], 99] for sequence in SEQUENCES]
    before, after = (model.encoder(pack(ids), backend=backend) for ids in (SEQUENCES, changed))
    last = pack(SEQUENCES).cu_seqlens[1:].long() - 1
    differs = (before != after).any(-1).nonzero().flatten()
    assert differs.tolist() == last.tolist()


@pytest.mark.parametrize("backend", ["sdpa", "plain"])
def test_a_sequence_does_not_see_its_neighbours(backend: Backend) -> None:
    torch.manual_seed(0)
    lengths = (5, 1, 9, 2)
    qkv = torch.randn(sum(lengths), 3, 2, 8)
    changed = qkv.clone()
    changed[6:] *= 1e3  # of the sequences that stand in the padding of the first two
    attend = prepare(pack([[7] * length for length in lengths]), qkv.dtype, backend, is_causal=True)
    assert torch.equal(attend(qkv, 0.0)[:6], attend(changed, 0.0)[:6])


def test_equal_to_transformers_from_its_own_folder(tmp_path: Path) -> None:
    save_model(make_model(), tmp_path)
    batch = make_batch(CONFIG)
    reference = AutoModelForPreTraining.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert reference.config.is_decoder
    theirs = reference(**padded(batch.inputs), output_hidden_states=True)
    model, _ = load_model(tmp_path)
    assert model.config == replace(CONFIG, initializer_range=0.1)
    hidden = model.eval().encoder(batch.inputs)
    states = model.encoder.all_layers(batch.inputs)
    for number, length in enumerate(LENGTHS):
        start = int(batch.inputs.cu_seqlens[number])
        for ours, expected in zip((*states, hidden), (*theirs.hidden_states, theirs.hidden_states[-1]), strict=True):
            assert (ours[start : start + length] - expected[number, :length]).abs().max() <= 1e-5
    found = pretraining_losses(model, batch)
    flat = torch.cat([row[:length] for row, length in zip(theirs.prediction_logits, LENGTHS, strict=True)])
    assert (found.mlm_logits - flat[batch.masked_positions]).abs().max() <= 1e-5


def test_the_last_token_speaks_for_a_causal_sequence() -> None:
    batch, model = pack(SEQUENCES), make_model()
    assert model.summary_rows(batch).tolist() == [4, 6, 14]
    assert model.summary_rows(batch, torch.tensor([7, 0, 7])).tolist() == [14, 4, 14]
    plain = BertModel(replace(CONFIG, is_causal=False))
    assert plain.summary_rows(batch).tolist() == [0, 5, 7]


def test_a_classifier_of_a_causal_model_reads_the_whole_text() -> None:
    task = ClassificationTask(("no", "yes"))
    torch.manual_seed(0)
    model = BertModel(task.configure(replace(CONFIG, heads=(), initializer_range=0.2))).eval()
    items = task.encode([TextExample("w1 w2 w3", None, "no"), TextExample("w1 w2 w4", None, "no")], tokenizer(), LIMIT)
    first, second = task.logits(model, collate(items))
    assert not torch.allclose(first, second)


def test_slots_without_tokens_have_rows_that_exist() -> None:
    full = pack(SEQUENCES)
    bounds = torch.cat([torch.zeros(2, dtype=torch.int32), full.cu_seqlens])
    batch = PackedBatch(full.token_ids, full.segment_ids, full.position_ids, bounds, full.max_seqlen)
    assert make_model().summary_rows(batch).tolist() == [4, 4, 4, 6, 14]


def test_attention_weights_lie_below_the_diagonal() -> None:
    batch = pack(SEQUENCES)
    attention = PlainAttention(batch, is_causal=True)
    make_model().encoder.all_layers(batch, attention)
    for weights in attention.weights:
        assert not weights.triu(1).any()
        assert torch.allclose(weights[2].sum(-1), torch.ones(2, 8), atol=1e-5)


def test_what_causal_models_cannot_do_is_told(tmp_path: Path) -> None:
    model = make_model()
    with pytest.raises(BertkitError, match="left to right"):
        fill_masks(model, tokenizer(), ["w1 [MASK]"])
    with pytest.raises(BertkitError, match="left to right"):
        save_model(model, tmp_path, layout="tf1")
    assert why_not_fast(model) is not None
