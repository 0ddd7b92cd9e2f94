"""The study of context at toy size: fixed vectors at chance on one form, every layer measured, word2vec an extra."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.studies.findings import context
from bertkit.studies.findings.word2vec import has_gensim
from bertkit.studies.study.request import StudyOutcome
from bertkit.studies.study.result import Score
from tests.studies.findings.toy import run_toy
from tests.training.tiny_tasks import make_base

QUICK = (
    "scale.minutes.options.word2vec={dimensions = 4, epochs = 1, least_count = 1}",
    "scale.minutes.options.pairs=12",
)
LAYERS = ["layer-0", "layer-1", "layer-2"]


@pytest.fixture(scope="module")
def outcome(data: Path, tmp_path_factory: pytest.TempPathFactory) -> StudyOutcome:
    folder = tmp_path_factory.mktemp("context")
    models = [folder / f"model-{spread}" for spread in (0.1, 0.2, 0.3)]
    for spread, path in zip((0.1, 0.2, 0.3), models, strict=True):
        make_base(path, initializer_range=spread)
    return run_toy("context", data, folder / "out", *QUICK, models=[str(path) for path in models])


def test_fixed_vectors_are_at_chance_by_construction(outcome: StudyOutcome) -> None:
    result = outcome.result
    assert [arm.name for arm in result.arms] == ["input-row", "word2vec", *LAYERS]
    assert result.values("input-row", "MCL-WiC ranking, one form") == (50.0, 50.0, 50.0)  # all toy pairs are one form
    for layer in LAYERS:
        assert len(result.values(layer, "MCL-WiC accuracy")) == 3
    same, other, _ = (float(value) for value in result.tables[0].rows[0][1:])
    assert same == 1.0  # "fair" is "fair" in any sentence
    margins = result.values("input-row", "fair margin")
    assert sum(margins) / 3 == pytest.approx(other - same, abs=2e-3)
    assert result.values("layer-2", "fair margin") != margins
    (said,) = result.agreement
    assert "input embedding row (fixed) 50.0" in said
    assert "the best of all layers" in said


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ((51.4, 52.0, 52.6), "within the noise of chance for the best of 3"),  # p = 0.03 by itself, three were tried
        ((51.9, 52.0, 52.1), "above chance, outside the noise (p = 0.0025 for the best of 3)"),
    ],
)
def test_the_best_of_several_layers_had_several_chances(
    outcome: StudyOutcome, best: tuple[float, ...], said: str
) -> None:
    kept = tuple(score for score in outcome.result.scores if score.measure != context.RANKING.name)
    values = {"input-row": (50.0,) * 3, "layer-0": (50.1, 50.0, 49.9), "layer-1": best, "layer-2": (50.5, 51.0, 49.0)}
    ranked = [Score(arm, context.RANKING.name, seed, value) for arm in values for seed, value in enumerate(values[arm])]
    (text,) = context.agreement(replace(outcome.result, scores=(*kept, *ranked)))
    assert text.endswith(f"{said}.")


@pytest.mark.skipif(not has_gensim(), reason="gensim is not installed: pip install 'bertkit[studies]'")
def test_word2vec_stands_beside(outcome: StudyOutcome) -> None:
    assert outcome.missing == ()
    assert outcome.result.values("word2vec", "MCL-WiC ranking, one form") == (50.0, 50.0, 50.0)
    assert any("too rare in the text for word2vec" in note for note in outcome.result.notes)


def test_without_gensim_the_rest_is_measured(
    data: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "has_gensim", lambda: False)
    found = run_toy("context", data, tmp_path, *QUICK, models=[model])
    assert found.missing == ()  # all that can be done here is done, and the notes say what is not
    assert any("senses by word2vec, seed 2." in note for note in found.result.notes)
    assert any("pip install 'bertkit[studies]'" in note for note in found.result.notes)
    assert len(found.result.values("layer-1", "MCL-WiC accuracy")) == 1  # one model, one value: nothing is repeated


def test_the_noise_of_one_finished_model_is_that_of_the_test_words(data: Path, model: str, tmp_path: Path) -> None:
    changes = (f"scale.minutes.models=['{model}']", "scale.minutes.options.only=bert")
    result = run_toy("context", data, tmp_path, *QUICK, *changes).result
    assert not (tmp_path / "runs").exists()  # nothing is pre-trained
    assert result.about["models"] == "tiny-bert"
    assert result.notes[0].startswith("Measured on finished checkpoints (tiny-bert)")
    assert "bootstrap draws of the test words" in result.test
    found = result.summary("layer-1", "MCL-WiC ranking, one form")
    assert found is not None
    assert found.num_seeds == 1
    assert found.spread > 0.0
    difference = result.difference("layer-1", "MCL-WiC ranking, one form")
    assert difference is not None
    assert difference.is_outside_noise is False  # six pairs of an untrained model
    chance = result.summary("input-row", "MCL-WiC ranking, one form")
    assert chance is not None
    assert (chance.mean, chance.spread, chance.interval) == (50.0, 0.0, (50.0, 50.0))
    assert "within the noise of chance" in result.agreement[0]
    assert result.tables[1].rows[0] == ("input embedding row (fixed)", result.tables[1].rows[0][1], "50.0 to 50.0")


def test_trainings_of_word2vec_are_drawn_as_well() -> None:
    scores = [{"arms": {"word2vec": {"draws": {"accuracy": [value] * 300}}}} for value in (50.0, 60.0, 70.0)]
    (found,) = context.drawn(list(enumerate(scores)))
    assert (found.arm, found.measure) == ("word2vec", "MCL-WiC accuracy")
    assert {50.0, 60.0, 70.0} < set(found.values)
    assert sum(found.values) / 300 == pytest.approx(60.0, abs=1.0)
    assert context.drawn([(0, {"arms": {"word2vec": {"senses": {}}}})]) == []  # stored before there were draws


def test_several_models_are_their_own_noise(outcome: StudyOutcome) -> None:
    assert outcome.result.draws == ()
    assert outcome.result.test.startswith("Welch")


def test_halves_on_two_machines(data: Path, model: str, tmp_path: Path) -> None:
    only: Any = "scale.minutes.options.only=bert"
    first = run_toy("context", data, tmp_path, *QUICK, only, models=[model])
    assert first.missing == ()
    assert first.result.values("layer-1", "MCL-WiC accuracy")
    assert not first.result.values("word2vec", "MCL-WiC accuracy")
    with pytest.raises(BertkitError, match="bert or word2vec"):
        run_toy("context", data, tmp_path, "scale.minutes.options.only=gpt", models=[model])
