"""The pre-training loss: from masked positions alone, MLM plus NSP, and the model can learn one batch by heart."""

from dataclasses import replace

import torch

from bertkit.model import BertModel, preset
from bertkit.tasks.pretraining import IGNORED, pretraining_losses
from bertkit.training.loop import TrainingConfig, pretrain
from tests.model.reference import make_batch

CONFIG = preset("tiny", vocab_size=60)


def test_unmasked_positions_get_exactly_no_gradient() -> None:
    model = BertModel(CONFIG).eval()
    batch = make_batch(CONFIG)
    everywhere = torch.full((batch.inputs.num_tokens,), IGNORED)
    everywhere[batch.masked_positions] = batch.masked_token_ids
    all_rows = replace(batch, masked_positions=torch.arange(batch.inputs.num_tokens), masked_token_ids=everywhere)

    losses = pretraining_losses(model, all_rows)
    losses.mlm_logits.retain_grad()
    losses.mlm_sum.backward()

    assert torch.allclose(losses.mlm_sum, pretraining_losses(model, batch).mlm_sum)
    gradient = losses.mlm_logits.grad
    assert gradient is not None
    touched = gradient.ne(0).any(dim=1)
    assert touched.nonzero().flatten().tolist() == batch.masked_positions.tolist()


def test_the_total_is_mean_mlm_plus_mean_nsp() -> None:
    model = BertModel(CONFIG).eval()
    batch = make_batch(CONFIG)
    losses = pretraining_losses(model, batch)
    num_masked, num_pairs = len(batch.masked_token_ids), len(batch.inputs)
    mlm = torch.nn.functional.cross_entropy(losses.mlm_logits, batch.masked_token_ids)
    nsp = torch.nn.functional.cross_entropy(losses.nsp_logits, batch.next_labels)
    assert torch.allclose(losses.total(num_masked, num_pairs), mlm + nsp)


def test_one_batch_is_learned_by_heart() -> None:
    torch.manual_seed(0)
    config = preset("tiny", vocab_size=60, hidden_dropout=0.0, attention_dropout=0.0)
    model, batch = BertModel(config), make_batch(CONFIG)
    journal = pretrain(model, iter(lambda: batch, None), TrainingConfig(num_steps=120, learning_rate=2e-3))
    assert journal[0].mlm_loss > 3.5  # about log 60
    assert journal[-1].mlm_loss < 0.05
    assert journal[-1].nsp_loss < 0.05
