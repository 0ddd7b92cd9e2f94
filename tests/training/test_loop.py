"""The loop: the schedule, what decays, and repeatability."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.training.loop import TrainingConfig, make_optimizer, pretrain
from tests.model.reference import make_batch

CONFIG = preset("tiny", vocab_size=60)


def test_the_rate_rises_and_falls_linearly() -> None:
    config = TrainingConfig(num_steps=100, learning_rate=1.0, warmup_share=0.1)
    rates = [config.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)


def test_biases_and_norms_do_not_decay() -> None:
    model = BertModel(CONFIG)
    decayed, spared = make_optimizer(model, TrainingConfig(num_steps=1)).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    assert all(names[id(p)].endswith("bias") or "norm" in names[id(p)] for p in spared["params"])
    assert not any(names[id(p)].endswith("bias") or "norm" in names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_the_same_seed_gives_the_same_weights() -> None:
    def train(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        model = BertModel(CONFIG)
        pretrain(model, iter(lambda: make_batch(CONFIG), None), TrainingConfig(num_steps=3))
        return model.encoder.embeddings.token.weight.detach()

    assert torch.equal(train(1), train(1))
    assert not torch.equal(train(1), train(2))


def test_a_loss_that_is_not_a_number_stops_with_its_step() -> None:
    model = BertModel(CONFIG)
    model.encoder.embeddings.norm.weight.data.fill_(float("nan"))
    with pytest.raises(BertkitError, match="at step 0"):
        pretrain(model, iter(lambda: make_batch(CONFIG), None), TrainingConfig(num_steps=3))
