"""What a size costs: counts worked out by hand, and real steps at toy size that are positive and say what they were."""

from collections.abc import Callable

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig, preset
from bertkit.studies.findings.cost import UseConfig, counted, measure_use, paper_recipe, sample_texts
from bertkit.training.doctor.batches import RandomFeed
from bertkit.training.estimate import recipe as estimating
from bertkit.training.estimate import timing
from bertkit.training.estimate.material import Material
from bertkit.training.recipe import Recipe


def test_counts_by_hand() -> None:
    found = counted(preset("base"))
    assert found["parameters"] == 110_106_428
    assert found["encoder_parameters"] == 109_482_240
    layer = 4 * 768 * 768 + 2 * 768 * 3072  # weights of one layer's products
    assert found["inference_flops_per_token"] == 2 * 12 * (layer + 2 * 768 * 128)
    # Forward and backward are six products a weight; the last layer's end runs on the masked and [CLS] rows alone.
    inside = 6 * (11 * layer + 3 * 768 * 768)
    assert inside < found["training_flops_per_token"] < 6 * (12 * layer + 0.16 * 768 * 31_000 + 24 * 768 * 512)
    assert found["weights_bytes"] == 4 * 109_482_240


def test_the_paper_s_run_has_256_sequences_a_step() -> None:
    for size in ("tiny", "large"):
        recipe = paper_recipe(preset(size), size, "cpu")
        assert recipe.steps == 1_000_000
        assert [stage.tokens_per_batch * stage.micro_batches for stage in recipe.stages] == [256 * 128, 256 * 512]
        assert [stage.share for stage in recipe.stages] == [0.9, 0.1]


def test_a_few_steps_are_really_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertkit.studies.findings import cost

    monkeypatch.setattr(timing, "STAGE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(timing, "MOST_TIMED", 2)
    small = preset("tiny", num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, vocab_size=3000)
    monkeypatch.setattr(cost, "preset", lambda size: small)
    monkeypatch.setattr(estimating, "gather_material", _material(small))
    shares: list[float] = []
    found = cost.measure_cost(
        "tiny", UseConfig(num_texts=2, text_words=8, num_single=1, rounds=1), "cpu", shares.append
    )
    assert shares == [0.7]
    for name in ("hours", "tokens_per_second", "texts_per_second", "milliseconds", "memory_bytes", "total_flops"):
        assert found[name] > 0
    assert found["measured_memory_bytes"] is None  # of a GPU alone
    assert any("scaled by FLOPs" in note for note in found["notes"])


def _material(config: BertConfig) -> Callable[[Recipe], Material]:
    return lambda recipe: Material(config, [RandomFeed(stage, config.vocab_size) for stage in recipe.stages])


def test_speed_in_use() -> None:
    torch.set_num_threads(1)
    config = preset("tiny", num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, vocab_size=3000)
    found = measure_use(config, UseConfig(num_texts=3, text_words=20, num_single=2, rounds=1), "cpu")
    assert found["tokens_per_text"] > 20
    assert found["inference_tokens_per_second"] == pytest.approx(found["texts_per_second"] * found["tokens_per_text"])


def test_texts_have_one_length() -> None:
    texts = sample_texts(UseConfig(num_texts=5, text_words=7))
    assert {len(text.split()) for text in texts} == {7}
    assert len(texts) == 5
    with pytest.raises(BertkitError, match="at least 1"):
        UseConfig(rounds=0)
