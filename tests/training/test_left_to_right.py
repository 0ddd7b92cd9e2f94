"""`objective = "ltr"`: a run that learns, resumes bit for bit, says that it is causal, and is fine-tuned as such."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.corpus.masking import MaskingConfig
from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.tasks.feed.next_tokens import EVERY_TOKEN
from bertkit.training.evaluation import EvaluationConfig
from bertkit.training.journal import read_journal
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage
from bertkit.training.recipe import DataRecipe, ModelRecipe, Recipe, read_recipe
from bertkit.training.run import run_pretraining
from tests.training.tiny import SIZES, prepare_sample

pytestmark = pytest.mark.filterwarnings("ignore:.* stand in the training text")  # there is but one sample


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    prepare_sample(folder, 300)
    return folder


def make_recipe(sample: Path, **changes: Any) -> Recipe:
    store, tokenizer = str(sample / "store"), str(sample / "vocab")
    return replace(
        Recipe(
            steps=30,
            objective="ltr",
            device="cpu",
            log_every=5,
            model=ModelRecipe("tiny", changes={**SIZES, "hidden_dropout": 0.0, "attention_dropout": 0.0}),
            data=DataRecipe(store, tokenizer, store, workers=0),
            stages=(Stage(max_length=32, tokens_per_batch=512),),
            optimizer=OptimizerConfig(learning_rate=1e-2),
            evaluation=EvaluationConfig(every_steps=10, num_batches=2),
        ),
        **changes,
    )


def test_a_run_learns_and_its_model_is_causal(sample: Path, tmp_path: Path) -> None:
    result = run_pretraining(make_recipe(sample), tmp_path)
    looks = [line["mlm_loss"] for line in read_journal(tmp_path) if line["kind"] == "evaluation"]
    assert looks[-1] < looks[0] - 0.5
    assert result.evaluation is not None
    assert result.evaluation["num_masked"] > 500  # every token, not 15 % of them
    bert = load(tmp_path / "model", device="cpu")
    assert bert.config.is_causal
    assert "left-to-right" in (tmp_path / "model" / "README.md").read_text()
    assert 0.0 < bert.next_sentence("The dog sleeps.", "It is old.") < 1.0
    assert read_recipe(tmp_path / "bertkit.toml").objective == "ltr"


def test_a_resumed_run_is_the_run_never_stopped(sample: Path, tmp_path: Path) -> None:
    whole = run_pretraining(make_recipe(sample, steps=8), tmp_path / "whole")
    checkpoints = replace(make_recipe(sample).checkpoints, every_steps=4)
    part = make_recipe(sample, steps=8, checkpoints=checkpoints)

    class Stop:
        def on_step(self, values: dict[str, Any], progress: Any) -> None:
            if progress.step >= 5:
                raise KeyboardInterrupt

        def on_evaluation(self, values: dict[str, Any]) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        run_pretraining(replace(part, log_every=1), tmp_path / "part", observer=Stop())
    again = run_pretraining(replace(part, log_every=1), tmp_path / "part", resume=True)
    assert again.weights_sha256 == whole.weights_sha256


def test_nothing_is_masked() -> None:
    assert Recipe(steps=1, objective="ltr").stages[0].masking == EVERY_TOKEN
    assert Recipe(steps=1).stages[0].masking == MaskingConfig()
    with pytest.raises(BertkitError, match="masks nothing"):
        Recipe(steps=1, objective="ltr", stages=(Stage(masking=MaskingConfig(rate=0.3)),))
    with pytest.raises(BertkitError, match="choose one of mlm, ltr"):
        Recipe(steps=1, objective="rtl")  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="is_causal"):
        ModelRecipe(changes={"is_causal": True})


def test_the_start_must_be_of_the_same_kind(sample: Path, tmp_path: Path) -> None:
    run_pretraining(make_recipe(sample, steps=1), tmp_path / "ltr")
    mlm = make_recipe(sample, steps=1, objective="mlm", model=ModelRecipe(init=str(tmp_path / "ltr" / "model")))
    mlm = replace(mlm, stages=(Stage(max_length=32, tokens_per_batch=512),))
    with pytest.raises(BertkitError, match="left to right"):
        run_pretraining(mlm, tmp_path / "mlm")
