"""`pretrain --estimate`: what is counted is exact, what is measured is said, what is scaled is said too."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.config import preset
from bertkit.model.formats import save_model
from bertkit.training.estimate import recipe as estimate
from bertkit.training.estimate import timing as estimate_timing
from bertkit.training.estimate.material import gather_material
from bertkit.training.estimate.recipe import (
    Estimate,
    estimate_recipe,
    num_looks,
    num_saves,
    published_cost,
    stage_extent,
)
from bertkit.training.estimate.timing import Part, choose_part, parts_of, time_stage
from bertkit.training.feeds import sum_counts
from bertkit.training.flops import step_flops
from bertkit.training.growth import GrowthConfig
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage
from bertkit.training.recipe import DataRecipe, Recipe, read_recipe
from bertkit.training.schedule import ScheduleConfig
from tests.training.tiny import SIZES, prepare_sample, recipe, run

CPU = torch.device("cpu")
RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_timing, "MOST_TIMED", 4)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("estimate")
    prepare_sample(folder, 400)
    data = DataRecipe(str(folder / "store"), str(folder / "vocab"), str(folder / "store"), workers=0)
    stages = (Stage(16, 128, 2, share=0.5), Stage(32, 256, 4, share=0.5))
    return recipe(data=data, stages=stages, steps=100)


def test_tokens_epochs_and_flops_are_those_of_the_feed(stored: Recipe, tmp_path: Path) -> None:
    found = estimate_recipe(stored, tmp_path / "run")
    feeds = gather_material(stored).feeds
    per_step = [sum_counts(feed.counts(index) for index in range(8)).num_tokens // 8 for feed in feeds]
    assert [stage.tokens for stage in found.stages] == [50 * 2 * per_step[0], 50 * 4 * per_step[1]]
    assert found.tokens == sum(stage.tokens for stage in found.stages)
    assert found.epochs is not None
    assert found.epochs == pytest.approx(sum(50 * n / f.epoch_size for n, f in zip((2, 4), feeds, strict=True)))  # type: ignore[attr-defined]
    counts = sum_counts(feeds[0].counts(index) for index in range(8))
    config = stored.model.config(gather_material(stored).config.vocab_size, next_sentence=True)
    assert found.stages[0].flops == pytest.approx(100 * step_flops(config, counts, 16) / 8, rel=0.02)
    assert [stage.measured_on for stage in found.stages] == ["", ""]  # so small that whole steps were run
    assert found.notes[0].startswith("checkpoints are assumed")
    assert not (tmp_path / "run").exists()
    json.dumps(found.to_json())


def test_hours_have_a_spread_and_parts(stored: Recipe) -> None:
    found = estimate_recipe(stored)
    assert 0 < found.hours_low <= found.hours <= found.hours_high
    assert found.hours == pytest.approx(found.training_hours + found.evaluation_hours + found.checkpoint_hours)
    assert min(found.evaluation_hours, found.checkpoint_hours) > 0
    no_held_out = replace(stored, data=replace(stored.data, held_out=""))
    assert estimate_recipe(no_held_out).evaluation_hours == 0


def test_a_time_budget_becomes_steps_that_fill_it(stored: Recipe) -> None:
    found = estimate_recipe(replace(stored, steps=None, minutes=2.0))
    assert found.steps > 100
    assert found.hours == pytest.approx(2.0 / 60, rel=0.1)


def test_without_a_store_it_says_so(stored: Recipe) -> None:
    found = estimate_recipe(replace(stored, data=DataRecipe("nowhere", "nothing", workers=0)))
    assert found.epochs is None
    assert found.corpus_tokens is None
    assert "no tokenizer nothing yet" in found.notes[0]
    assert "no store nowhere yet" in found.notes[1]


def test_the_config_of_an_initial_checkpoint_counts(stored: Recipe, tmp_path: Path) -> None:
    material = gather_material(stored)
    config = preset("tiny", vocab_size=material.config.vocab_size, **{**SIZES, "num_layers": 3})
    save_model(BertModel(config), tmp_path / "init")
    going_on = replace(stored, model=replace(stored.model, init=str(tmp_path / "init"), changes={}))
    assert estimate_recipe(going_on).num_parameters > estimate_recipe(stored).num_parameters
    too_long = replace(going_on, stages=(Stage(64, 128),))
    with pytest.raises(BertkitError, match="max_length 64, but the model has 32 positions"):
        estimate_recipe(too_long)


def test_growth_is_said_and_not_counted(stored: Recipe) -> None:
    found = estimate_recipe(replace(stored, growth=GrowthConfig((1,), (0.5,))))
    assert found.notes[0] == "all layers are assumed from the first step on; with growth it takes less"


def test_a_step_too_large_is_cut_and_said(stored: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_timing, "product_rate", lambda *_, **__: 1e5)  # a very slow machine
    monkeypatch.setattr(estimate_timing, "LEAST_TOKENS", 64)
    found = estimate_recipe(stored)
    assert found.stages[1].measured_on == "1 of 2 layers and 64 of 256 tokens a micro-batch, scaled by FLOPs"
    assert any("30% off" in note for note in found.notes)
    assert found.hours_high - found.hours >= 0.29 * found.training_hours


def test_scaling_by_flops_keeps_counts_and_update(stored: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    material, stage = gather_material(stored), stored.stages[1]
    whole = time_stage(stored, material.config, stage, material.feeds[1], CPU)
    monkeypatch.setattr(estimate_timing, "choose_part", lambda *_: Part(1, 64, 1))
    part = time_stage(stored, material.config, stage, material.feeds[1], CPU)
    assert (part.counts, part.flops) == (whole.counts, whole.flops)
    assert (whole.is_scaled, part.is_scaled) == (False, True)
    assert min(part.micro_batch, part.update, part.forward) > 0


def test_parts_get_smaller_and_layers_go_last() -> None:
    config, stage = preset("base"), Stage(128, 4096, 8)
    parts = list(parts_of(config, stage))
    assert parts[0] == Part(12, 4096, 8)
    assert parts[1] == Part(12, 4096, 1)
    assert parts[-1] == Part(1, 512, 1)
    sizes = [part.num_layers * part.num_tokens * part.micro_batches for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert choose_part(recipe().resolve(CPU), preset("tiny", **SIZES, vocab_size=45), Stage(16, 64, 2), CPU) == Part(
        2, 64, 2
    )


def test_looks_and_saves_are_counted_as_the_run_makes_them(tmp_path: Path) -> None:
    made = recipe()  # twelve steps, evaluation every four, checkpoints every three
    run(tmp_path, made)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert num_looks(12, 4) == sum(line["kind"] == "evaluation" for line in lines) == 4
    assert num_saves(made, 12) == 2 + 2 + 3  # both ends; 4 and 8; 3, 6 and 9
    assert num_looks(12, 0) == 2


def test_growing_batches_are_counted_as_they_are() -> None:
    growing = recipe(schedule=ScheduleConfig(batch_warmup_steps=4, batch_warmup_start=1))
    plan = growing.plan
    assert stage_extent(growing, 0, 12) == (12, sum(plan.locate(step, 12).count for step in range(12)))


@pytest.mark.parametrize(("name", "cost"), [("base", "4 Cloud TPUs"), ("large", "16 Cloud TPUs")])
def test_the_papers_recipes_are_the_papers(name: str, cost: str) -> None:
    made = read_recipe(RECIPES / f"paper-{name}.toml")
    assert made.steps == 1_000_000
    assert [stage.share for stage in made.stages] == [0.9, 0.1]
    assert [stage.max_length for stage in made.stages] == [128, 512]
    for stage in made.stages:
        assert stage.tokens_per_batch * stage.micro_batches == 256 * stage.max_length
        assert (stage.masking.rate, stage.masking.whole_word) == (0.15, False)
        assert [stage.micro_batches % size for size in (1, 2, 4, 8)] == [0] * 4  # divides among as many GPUs
    optimizer = made.optimizer
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("adamw", 1e-4, 0.01)
    assert (optimizer.beta1, optimizer.beta2) == (0.9, 0.999)
    assert made.schedule.shape == "linear"
    assert made.schedule.factor(9_999, made.steps) == 1.0
    assert made.schedule.factor(4_999, made.steps) == 0.5
    assert made.schedule.factor(505_000, made.steps) == pytest.approx(0.5)
    config = made.model.config(30_000, next_sentence=made.data.next_sentence)
    assert (config.hidden_dropout, config.attention_dropout, config.activation) == (0.1, 0.1, "gelu")
    assert set(config.heads) == {"pooler", "mlm", "nsp"}
    assert (config.num_layers, config.hidden_size) == {"base": (12, 768), "large": (24, 1024)}[name]
    assert cost in (published_cost(made) or "")
    assert published_cost(replace(made, steps=10)) is None
    assert published_cost(replace(made, stages=(Stage(128, 4096),))) is None


def test_what_was_measured_decides_the_estimate(stored: Recipe) -> None:
    material = gather_material(stored)
    timing = time_stage(stored, material.config, stored.stages[0], material.feeds[0], CPU)
    timing = replace(timing, micro_batch=1.0, update=0.5, forward=0.25, low=0.9, high=1.2, is_scaled=False)
    made = replace(stored, optimizer=OptimizerConfig())
    found: Estimate = estimate.put_together(made, material, [timing, replace(timing, micro_batch=2.0)], CPU, Path("."))
    training = 50 * (2 * 1.0 + 0.5) + 50 * (4 * 2.0 + 0.5)
    assert found.training_hours == pytest.approx(training / 3600)
    assert found.evaluation_hours == pytest.approx(0.25 * 2 * num_looks(100, 4) / 3600)
    assert found.hours_high - found.hours == pytest.approx(0.2 * training / 3600)
    assert found.hours - found.hours_low == pytest.approx(0.1 * training / 3600)
