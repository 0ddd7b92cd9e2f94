"""The loop: gradients that add up, the schedule, what decays, repeatability, and what stops it."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.training.determinism import dropout_seed
from bertkit.training.feeds import Feed, StepCounts, sum_counts
from bertkit.training.loop import (
    LoopOptions,
    Progress,
    StepRecord,
    Trainer,
    TrainingConfig,
    make_optimizer,
    pretrain,
)
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import Place, Stage, StepPlan
from bertkit.training.prefetching import Prefetcher
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.watch import DivergedError, Guard
from tests.model.reference import make_batch
from tests.training.tiny import MemoryFeed, WholeFeed, tokenizer

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
    groups = make_optimizer(model, TrainingConfig(num_steps=1)).param_groups
    decay = {p: group["weight_decay"] for group in groups for p in group["params"]}
    for name, p in model.named_parameters():
        assert decay.pop(p) == (0.0 if name.endswith("bias") or "norm" in name else 0.01)
    assert not decay


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


def gradients(feed: Feed, micro_batches: int) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the accumulated gradients of one global step, without dropout."""
    torch.manual_seed(0)
    changes = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "num_layers": 2}
    model = BertModel(preset("tiny", vocab_size=tokenizer().vocab_size, **changes))
    plan = StepPlan((Stage(max_length=16, tokens_per_batch=64, micro_batches=micro_batches),))
    options = LoopOptions(clip_norm=0.0)
    records: list[StepRecord] = []
    optimizers = build_optimizers(model, OptimizerConfig())
    trainer = Trainer(model, [feed], plan, optimizers, ScheduleConfig(), options, Progress(1))
    kept: dict[str, torch.Tensor] = {}

    def keep(*_: object) -> None:
        kept.update({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})

    optimizers[0].register_step_pre_hook(keep)
    trainer.run(records.extend)
    return records[0].loss, kept


@pytest.mark.parametrize(("num", "size"), [(8, 8), (64, 1)])
def test_accumulated_micro_batches_equal_one_large_batch(num: int, size: int) -> None:
    small = MemoryFeed(5, size=size)
    assert len({small.counts(index).num_masked for index in range(num)}) > 1  # otherwise any mean would do
    loss, parts = gradients(small, num)
    whole_loss, whole = gradients(WholeFeed(small, num), 1)
    assert loss == pytest.approx(whole_loss, abs=1e-6)
    everything = torch.stack([g.norm() for g in whole.values()]).norm()
    for name, expected in whole.items():
        # The key's bias has no gradient but rounding: the second part is for it.
        assert (parts[name] - expected).norm() <= 1e-5 * expected.norm() + 1e-7 * everything, name


def test_unused_slots_change_nothing() -> None:
    class Padded:
        """Two more masked slots that count nowhere."""

        def micro_batch(self, index: int) -> PretrainingBatch:
            batch = MemoryFeed(5).micro_batch(index)
            masked = torch.cat([batch.masked_positions, torch.tensor([0, 0])])
            targets = torch.cat([batch.masked_token_ids, torch.tensor([IGNORED, IGNORED])])
            return PretrainingBatch(batch.inputs, masked, targets, batch.next_labels)

        def counts(self, index: int) -> StepCounts:
            return MemoryFeed(5).counts(index)

    loss, plain = gradients(MemoryFeed(5), 2)
    padded_loss, padded = gradients(Padded(), 2)
    assert padded_loss == pytest.approx(loss, abs=1e-6)
    for name, expected in plain.items():
        torch.testing.assert_close(padded[name], expected, rtol=1e-5, atol=1e-7)


def test_dropout_is_keyed_by_the_micro_batch() -> None:
    assert dropout_seed(1, 0, 5) == dropout_seed(1, 0, 5)
    assert len({dropout_seed(s, t, i) for s in range(3) for t in range(2) for i in range(50)}) == 300


def test_batches_built_ahead_are_the_same() -> None:
    feed = MemoryFeed(1)
    source = Prefetcher([feed], workers=2)
    place = Place(0, 0, 2)
    source.announce(place, [(0, 0), (0, 1)])
    assert source.take_counts(place) == sum_counts([feed.counts(0), feed.counts(1)])
    for index in (1, 0, 2):
        assert torch.equal(source.take((0, index)).inputs.token_ids, feed.micro_batch(index).inputs.token_ids)
    source.close()


def test_a_climbing_loss_is_a_divergence_and_noise_is_not() -> None:
    guard = Guard()
    for step in range(200):
        guard.check(step, 5.0 + (step % 7) * 0.3, 1.0)
    kept = Guard.from_json(guard.to_json())
    for step in range(200, 220):
        kept.check(step, 9.0, 1.0)
    kept.smoothed = 9.0
    with pytest.raises(DivergedError, match=r"diverges: .* by step 220"):
        kept.check(220, 9.0, 1.0)
    with pytest.raises(DivergedError, match="at step 7"):
        guard.check(7, 1.0, float("inf"))
