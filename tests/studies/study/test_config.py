"""The studies that come with bertkit: readable, whole, beside the paper's own figures, and sharing their runs."""

from pathlib import Path

import pytest

from bertkit.corpus.masking import MaskingConfig
from bertkit.errors import BertkitError
from bertkit.studies.study.config import LOOKS, SCALES, pretraining_recipe, read_study, study_names
from bertkit.studies.study.registry import PRETRAINING, STUDIES
from bertkit.studies.suite_config import read_suite
from bertkit.training.recipe import Recipe

RECIPES = Path(__file__).parents[3] / "recipes" / "studies"
TRAINED = [name for name, function in STUDIES.items() if function == PRETRAINING]
DATA = {"store": "store", "tokenizer": "vocab", "held_out": "held-out"}


def recipe_of(name: str, scale: str, arm: str, seed: int = 0) -> Recipe:
    study = read_study(name)
    found = next(one for one in study.arms_at(scale) if one.name == arm)
    return pretraining_recipe(study.at(scale), found, seed, DATA)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", TRAINED)
def test_every_arm_is_a_run(name: str, scale: str) -> None:
    study, suite = read_study(name), read_suite()
    assert study.at(scale).seeds >= 3
    assert study.at(scale).notes
    assert study.paper
    for arm in study.arms_at(scale):
        recipe = pretraining_recipe(study.at(scale), arm, 2, DATA)
        assert recipe.seed == 2
        assert recipe.data.store == "store"
        assert recipe.steps is not None
        assert all((recipe.steps * look).is_integer() for look in LOOKS)
        assert recipe.steps * LOOKS[0] == recipe.checkpoints.every_steps
        assert recipe.checkpoints.keep > 1 / LOOKS[0]
        assert recipe.evaluation.every_steps == recipe.checkpoints.every_steps  # the best are saved too
    for use in study.at(scale).tasks:
        assert use.of(suite).name == use.name


@pytest.mark.parametrize("name", TRAINED)
def test_the_baseline_and_the_papers_arms_exist(name: str) -> None:
    study = read_study(name)
    moments = {"1/8", "1/4", "1/2", "all"}
    known = moments if study.looks_are_arms else {arm.name for arm in study.arms}
    assert study.baseline in known
    for table in study.paper:
        for row in table.rows:
            assert not row.arm or row.arm in known
            assert set(row.values) == set(table.columns)


def test_recipes_lie_where_people_look() -> None:
    assert set(study_names()) >= set(TRAINED)
    for name in study_names():
        assert (RECIPES / f"{name}.toml").resolve().is_file(), name


def test_the_masks_of_each_mix() -> None:
    def shares(arm: str) -> MaskingConfig:
        return recipe_of("masking", "gpu", arm).stages[0].masking

    assert shares("80/10/10") == MaskingConfig(0.15, 0.8, 0.1)
    assert shares("100/0/0") == MaskingConfig(0.15, 1.0, 0.0)
    assert shares("80/0/20") == MaskingConfig(0.15, 0.8, 0.2)
    assert shares("80/20/0") == MaskingConfig(0.15, 0.8, 0.0)
    assert shares("0/20/80") == MaskingConfig(0.15, 0.0, 0.8)
    assert shares("0/0/100") == MaskingConfig(0.15, 0.0, 1.0)


def test_studies_share_the_plain_run() -> None:
    same = [("direction", "mlm"), ("masking", "80/10/10"), ("size", "mini"), ("nsp", "nsp")]
    assert len({recipe_of(name, "gpu", arm).to_toml() for name, arm in same}) == 1
    assert recipe_of("direction", "gpu", "ltr").objective == "ltr"
    assert not recipe_of("nsp", "gpu", "no-nsp").data.next_sentence
    assert recipe_of("nsp", "gpu", "rate-40").stages[0].masking.rate == 0.4


@pytest.mark.parametrize("name", TRAINED)
def test_models_of_the_gpu_scale_can_be_fine_tuned(name: str) -> None:
    """docs/log.md: without decay of the matrices models fall apart under dropout; a fast pooler loses its gradients."""
    study = read_study(name)
    for arm in study.arms_at("gpu"):
        found = pretraining_recipe(study.at("gpu"), arm, 0, DATA).optimizer
        assert found.matrix_learning_rate is not None
        assert found.matrix_weight_decay is not None
        assert found.matrix_learning_rate * found.matrix_weight_decay == pytest.approx(0.002)  # a step, at the peak
        assert found.pooler_learning_rate == 1e-4


def test_changes_and_seeds() -> None:
    study = read_study("direction", ["scale.minutes.pretrain.steps=16", 'scale.minutes.tasks=["MRPC"]'], seeds=5)
    assert study.at("minutes").pretrain["steps"] == 16
    assert study.at("minutes").pretrain["optimizer"]["name"] == "muon"
    assert [use.name for use in study.at("minutes").tasks] == ["MRPC"]
    assert study.at("gpu").seeds == 5


@pytest.mark.parametrize("name", ["features", "context"])
def test_a_finished_model_in_the_place_of_runs(name: str) -> None:
    """What a model of a few hundred steps would show is nothing; on a GPU the study pre-trains its own."""
    study = read_study(name)
    assert study.at("minutes").models == ("small-en",)
    assert study.at("minutes").remark
    assert study.at("gpu").models == ()
    assert read_study("direction").at("minutes").models == ()
    other = read_study(name, ['scale.minutes.models=["elsewhere"]']).at("minutes")
    assert (other.models, other.notes, other.remark) == (("elsewhere",), (), "")  # they were written for small-en
    same = read_study(name, ["scale.minutes.seeds=5"]).at("minutes")
    assert same.notes == study.at("minutes").notes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("scale.minutes.pretrain.stepss=8", "stepss"),
        ("scale.minutes.looks=[0.3]", "looks are some of"),
        ('scale.minutes.tasks=["SST2"]', "did you mean 'SST-2'"),
        ('scale.minutes.arms=["mln"]', "did you mean 'mlm'"),
        ("scale.minutes.seeds=0", "at least 1"),
        ('scale.minutes.tasks=["SST-2", {name = "SST-2", limit = 9}]', "SST-2 is named twice"),
        ("arms.0.nmae=x", "did you mean 'name'"),
    ],
)
def test_mistakes_are_named(change: str, said: str) -> None:
    def read() -> None:
        study = read_study("direction", [change])
        pretraining_recipe(study.at("minutes"), study.arms[0], 0, DATA)

    with pytest.raises(BertkitError, match=said):
        read()


def test_an_unknown_study_is_refused() -> None:
    with pytest.raises(BertkitError, match="did you mean 'masking'"):
        read_study("maskin")
