"""The study of features at toy size: all arms and seeds, on its own models or on given ones, resumed where it stopped."""

from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.studies.findings.features import choices_for
from bertkit.studies.study.request import StudyOutcome
from bertkit.studies.study.result import read_result
from tests.studies.findings.toy import run_toy

QUICK = (
    "scale.minutes.tasks.0.limit=6",
    "scale.minutes.tasks.0.epochs=1",
    "scale.minutes.tasks.1.limit=6",
    "scale.minutes.tasks.1.epochs=1",
    "scale.minutes.tasks.1.hidden_size=4",
)
ARMS = ["finetuned", "embeddings", "second-to-last", "last", "sum-last", "weighted-last", "concat-last"]


@pytest.fixture(scope="module")
def outcome(data: Path, tmp_path_factory: pytest.TempPathFactory) -> StudyOutcome:
    return run_toy("features", data, tmp_path_factory.mktemp("features"), *QUICK)


def test_every_arm_has_every_seed(outcome: StudyOutcome) -> None:
    result = outcome.result
    assert (outcome.missing, outcome.stopped_by) == ((), None)
    assert [arm.name for arm in result.arms] == ARMS
    assert {len(result.values(arm, "CoNLL-2003 F1")) for arm in ARMS} == {3}
    assert result.about["pre-training runs"] == 3
    assert result.paper[0].rows[0].arm == result.baseline == "finetuned"
    assert read_result(outcome.folder) == result


def test_what_is_stored_is_not_done_again(outcome: StudyOutcome, data: Path) -> None:
    out = outcome.folder.parent
    times = {path: path.stat().st_mtime_ns for path in (out / "parts").rglob("*.json")}
    assert len(times) == 3 * (1 + len(ARMS))  # a run, and its measurements
    lost = next(path for path in times if "features" in path.name)
    lost.unlink()
    again = run_toy("features", data, out, *QUICK)
    assert again.result.scores == outcome.result.scores
    assert {path for path, time in times.items() if path.stat().st_mtime_ns != time} == {lost}


def test_a_late_study_says_what_is_missing(data: Path, tmp_path: Path) -> None:
    late = run_toy("features", data, tmp_path, *QUICK, minutes=1e-9)
    assert late.stopped_by == "the time limit"
    assert len(late.missing) == 3 * len(ARMS)
    assert late.result.scores == ()
    (note,) = [note for note in late.result.notes if note.startswith("Not done yet: finetuned, seed 0; ")]
    assert note.endswith(" and 15 more.")


def test_a_given_model_is_measured_with_every_seed(data: Path, model: str, tmp_path: Path) -> None:
    found = run_toy("features", data, tmp_path, *QUICK, models=[model]).result
    assert {len(found.values(arm, "CoNLL-2003 F1")) for arm in ARMS} == {3}
    assert found.about["models"] == "tiny-bert"
    assert found.notes[0].startswith("Measured on finished checkpoints (tiny-bert)")
    assert not (tmp_path / "runs").exists()


def test_a_scale_may_name_a_finished_model(data: Path, model: str, tmp_path: Path) -> None:
    changes = (f"scale.minutes.models=['{model}']",)
    found = run_toy("features", data, tmp_path, *QUICK, *changes).result
    assert {len(found.values(arm, "CoNLL-2003 F1")) for arm in ARMS} == {3}  # seeds of head and fine-tuning
    assert found.about["models"] == "tiny-bert"
    assert found.notes[0].startswith("Measured on finished checkpoints (tiny-bert)")
    assert found.remark == ""  # the recipe's is about the model that it names
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "text").exists()


def test_choices_fit_the_depth() -> None:
    assert [choice.layer for choice in choices_for(12)] == [
        "", "embeddings", "second-to-last", "last", "sum-last-4", "weighted-last-4", "concat-last-4", "weighted-all",
    ]  # fmt: skip
    assert [choice.arm for choice in choices_for(1)] == ["finetuned", "embeddings", "last"]


def test_a_task_without_tags_is_refused(data: Path, model: str, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="SST-2 is no tagging task"):
        run_toy("features", data, tmp_path, "scale.minutes.tasks=[{name = 'SST-2'}]", models=[model])
    with pytest.raises(BertkitError, match="needs a tagging task"):
        run_toy("features", data, tmp_path, "scale.minutes.tasks=[]", models=[model])
