"""A whole study at toy size: trained, measured, collected, gone on with after a stop, refused where it does not fit."""

import json
import pickle
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.studies.study import measuring, runs
from bertkit.studies.study.config import read_study
from bertkit.studies.study.measuring import tagger_training
from bertkit.studies.study.pretraining import plan_study
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.result import read_result
from bertkit.studies.study.run import run_studies, with_remark, write_up
from bertkit.training.run import run_pretraining
from tests.studies.study.conftest import make_request, study


@pytest.fixture(scope="module")
def outcome(data: Path, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> StudyOutcome:
    return study(data, recipe, tmp_path_factory.mktemp("out"))


def test_every_arm_is_measured_by_everything(outcome: StudyOutcome) -> None:
    result = outcome.result
    assert outcome.missing == ()
    assert outcome.stopped_by is None
    assert [arm.name for arm in result.arms] == ["mlm", "ltr"]
    tasks = ["SST-2 accuracy", "CoNLL-2003 F1, frozen features"]
    names = ["held-out perplexity", "next-token perplexity", *tasks]
    assert [measure.name for measure in result.measures] == names
    for arm, own in (("mlm", names[0]), ("ltr", names[1])):  # perplexities of two questions are not compared
        assert all(len(result.values(arm, name)) == 1 for name in (own, *tasks))
        assert result.difference("ltr", own) is None
    assert 0.0 <= result.values("mlm", "SST-2 accuracy")[0] <= 100.0
    assert result.notes[0] == "toy"
    assert result.about["pre-training runs"] == 2
    assert read_result(outcome.folder) == result


def test_curves_along_the_runs(outcome: StudyOutcome) -> None:
    curves = {(curve.arm, curve.measure): curve for curve in outcome.result.curves}
    loss = curves["ltr", "held-out loss"]
    assert [point.x for point in loss.points] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert loss.lower_is_better
    assert loss.points[-1].values["0"] < loss.points[0].values["0"]
    assert [point.x for point in curves["mlm", "SST-2 accuracy"].points] == [4, 8]
    assert len(curves["mlm", "training loss (predicted tokens)"].points) == 8


def test_weights_on_the_way_are_kept_and_checkpoints_are_not(outcome: StudyOutcome) -> None:
    folders = sorted((outcome.folder.parent / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert sorted(path.name for path in (folder / "looks").iterdir()) == ["1", "2", "4"]
        assert not (folder / "checkpoints").exists()
        assert not (folder / "looks" / "4" / "optimizer.safetensors").exists()
        assert load(folder / "looks" / "4", device="cpu").config.is_causal == ("ltr" in folder.name)


def test_a_finished_study_does_nothing_again(
    outcome: StudyOutcome, data: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "run_pretraining", _never)
    shutil.move(outcome.folder.parent / "runs", outcome.folder.parent / "elsewhere")  # only parts/ is needed
    try:
        again = study(data, recipe, outcome.folder.parent)
    finally:
        shutil.move(outcome.folder.parent / "elsewhere", outcome.folder.parent / "runs")
    assert again.result == outcome.result


def test_a_lost_measurement_is_made_again_and_equal(outcome: StudyOutcome, data: Path, recipe: Path) -> None:
    parts = sorted((outcome.folder.parent / "parts").glob("*/SST-2*at-8.json"))
    assert len(parts) == 2
    parts[0].unlink()
    again = study(data, recipe, outcome.folder.parent)
    assert again.result.scores == outcome.result.scores


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("this was done before")


def test_weights_lost_with_a_machine_are_made_again_only_where_they_are_needed(
    outcome: StudyOutcome, data: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """parts/ alone was saved: a run that is measured to its end is not trained again, the other is, and first measured."""
    shutil.copytree(outcome.folder.parent / "parts", tmp_path / "parts")
    lost = sorted((tmp_path / "parts").glob("tiny-ltr-*/SST-2*at-8.json"))
    assert len(lost) == 1
    lost[0].unlink()
    trained: list[str] = []
    real = run_pretraining

    def note(given: Any, folder: Path, **options: Any) -> Any:
        trained.append(given.objective)
        return real(given, folder, **options)

    monkeypatch.setattr(runs, "run_pretraining", note)
    again = study(data, recipe, tmp_path)
    assert trained == ["ltr"]
    assert again.result.scores == outcome.result.scores


def test_collapsed_models_are_counted(outcome: StudyOutcome, data: Path, recipe: Path) -> None:
    path = min((outcome.folder.parent / "parts").glob("*/SST-2*at-8.json"))
    plain = json.loads(path.read_text())
    try:
        path.write_text(json.dumps({**plain, "collapsed": "it says '1' of all"}))
        notes = study(data, recipe, outcome.folder.parent).result.notes
        path.write_text(json.dumps({**plain, "collapsed": None}))
        others = study(data, recipe, outcome.folder.parent).result.notes
    finally:
        path.write_text(json.dumps(plain))
    (said,) = set(notes) - set(others)
    assert said.startswith("SST-2 accuracy: ")
    assert "of 4 models give one answer to everything" in said


def test_no_time_is_left(data: Path, recipe: Path, tmp_path: Path) -> None:
    stopped = study(data, recipe, tmp_path, minutes=1e-9)
    assert len(stopped.missing) == 2 + 8
    assert stopped.stopped_by == "the time limit"
    assert stopped.result.scores == ()
    assert stopped.result.notes[-1].startswith("Not done yet: pre-training mlm, seed 0; ")
    assert stopped.result.notes[-1].endswith(" and 4 more.")


def test_a_signal_in_the_middle_of_a_run_stops_the_study_which_then_goes_on_to_the_same_end(
    data: Path, recipe: Path, outcome: StudyOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_step(self: Any, values: dict[str, Any], progress: Any) -> None:
        if progress.step == 3:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(runs.ShareObserver, "on_step", on_step)
    stopped = study(data, recipe, tmp_path)
    monkeypatch.undo()
    assert stopped.stopped_by == "SIGTERM"
    assert len(stopped.missing) == 10
    (begun,) = (tmp_path / "runs").iterdir()
    assert (begun / "checkpoints" / "step-00000003").is_dir()
    whole = study(data, recipe, tmp_path)
    assert whole.result.scores == outcome.result.scores


def test_a_run_is_saved_where_the_time_is_up(
    data: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    changes = ["scale.minutes.pretrain.steps=80", "scale.minutes.tasks=[]"]  # kept every ten steps
    real = runs.ShareObserver.on_step

    def on_step(self: Any, values: dict[str, Any], progress: Any) -> None:
        steps.append(progress.step)
        real(self, values, progress)

    monkeypatch.setattr(runs.ShareObserver, "on_step", on_step)
    monkeypatch.setattr(StudyRequest, "is_late", property(lambda self: len(steps) >= 3))
    stopped = study(data, recipe, tmp_path, changes=changes)
    monkeypatch.undo()
    assert stopped.stopped_by == "the time limit"
    assert steps == [1, 2, 3, 4]
    (begun,) = (tmp_path / "runs").iterdir()
    assert (begun / "checkpoints" / "step-00000004").is_dir()


def test_jobs_travel_to_other_processes(data: Path, recipe: Path, outcome: StudyOutcome) -> None:
    plan, _ = plan_study(make_request(data, recipe, outcome.folder.parent))
    for job in [plan.runs[0].job(1.0), plan.measurements[0].job(2.0)]:
        assert pickle.loads(pickle.dumps(job)) == job


def test_a_rate_that_the_study_gives_is_that_of_the_head(data: Path, recipe: Path, outcome: StudyOutcome) -> None:
    plan, _ = plan_study(make_request(data, recipe, outcome.folder.parent))
    one = next(one for one in plan.measurements if one.use.way == "features")
    assert tagger_training(one).learning_rate == 1e-3  # not the task's own, which is for fine-tuning
    assert tagger_training(replace(one, use=replace(one.use, learning_rate=0.5))).learning_rate == 0.5


def test_arms_that_are_the_same_are_trained_and_measured_once(
    data: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []
    real = measuring.measure

    def note(measurement: Any, progress: Any) -> Any:
        done.append(measurement.path)
        return real(measurement, progress)

    monkeypatch.setattr(measuring, "measure", note)
    (tmp_path / "same.toml").write_text(recipe.read_text().replace('objective = "ltr"', 'objective = "mlm"'))
    found = study(data, tmp_path / "same.toml", tmp_path, changes=['scale.minutes.tasks=["SST-2"]']).result
    assert len(done) == len(set(done)) == 2  # looks
    assert found.values("ltr", "SST-2 accuracy") == found.values("mlm", "SST-2 accuracy")


def test_moments_of_one_run_as_arms(data: Path, recipe: Path, tmp_path: Path) -> None:
    text = recipe.read_text().replace('baseline = "mlm"', 'baseline = "all"\nlooks_are_arms = true')
    (tmp_path / "moments.toml").write_text(text)
    changes = ['scale.minutes.arms=["mlm"]', 'scale.minutes.tasks=["SST-2"]']
    found = study(data, tmp_path / "moments.toml", tmp_path, changes=changes)
    assert [arm.name for arm in found.result.arms] == ["1/2", "all"]
    assert len(found.result.values("1/2", "SST-2 accuracy")) == 1
    assert found.result.values("1/2", "held-out perplexity") > found.result.values("all", "held-out perplexity")
    assert {curve.arm for curve in found.result.curves} == {"all"}  # along the whole run
    (said,) = found.result.agreement
    assert "Here the second half changes: held-out perplexity -" in said
    assert "(too few seeds); SST-2 accuracy" in said
    write_up(tmp_path, tmp_path / "docs")
    assert (tmp_path / "docs" / "findings" / "direction-curves.svg").is_file()


def test_results_are_written_up(outcome: StudyOutcome, tmp_path: Path) -> None:
    assert "<html" in (outcome.folder / "report.html").read_text()
    text = write_up(outcome.folder.parent, tmp_path).read_text()
    assert "Does it matter that a token sees both sides?" in text
    with pytest.raises(BertkitError, match="holds no results"):
        write_up(tmp_path / "nowhere", tmp_path)


def test_a_remark_is_written_up_without_running_anything_again(
    outcome: StudyOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results may come from a machine that is gone."""
    real = read_study

    def remarked(name: str, *args: Any, **settings: Any) -> Any:
        return real(name, ["scale.minutes.remark='Seen by hand.'"], *args, **settings)

    monkeypatch.setattr("bertkit.studies.study.run.read_study", remarked)
    assert "Remark: Seen by hand." in write_up(outcome.folder.parent, tmp_path).read_text()
    assert "Remark" not in (outcome.folder / "report.html").read_text()


def test_a_remark_is_only_of_the_models_that_it_was_written_for(outcome: StudyOutcome) -> None:
    found = replace(outcome.result, name="features")
    assert with_remark(found).remark == ""
    assert (
        with_remark(replace(found, about={"models": "small-en"})).remark == read_study("features").at("minutes").remark
    )
    assert with_remark(replace(found, name="unknown")).remark == ""


def test_a_run_that_diverges_leaves_the_rest_of_the_study(
    data: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run_pretraining

    def diverge(given: Any, folder: Path, **options: Any) -> Any:
        if given.objective == "ltr":
            raise BertkitError("the loss is no number at step 3")
        return real(given, folder, **options)

    monkeypatch.setattr(runs, "run_pretraining", diverge)
    changes = ['scale.minutes.tasks=["SST-2"]']
    found = study(data, recipe, tmp_path, changes=changes)
    assert found.stopped_by == "pre-train ltr, seed 0: the loss is no number at step 3"
    assert len(found.missing) == 1 + 2
    assert len(found.result.values("mlm", "SST-2 accuracy")) == 1
    assert found.result.values("ltr", "SST-2 accuracy") == ()
    with pytest.raises(BertkitError, match="the loss is no number"):  # nothing else is left that could be done
        study(data, recipe, tmp_path, changes=changes)


def test_a_measurement_without_room_on_the_gpu_is_one_line(
    data: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measuring, "fine_tuned", no_room)
    found = study(data, recipe, tmp_path, changes=['scale.minutes.tasks=["SST-2"]', 'scale.minutes.arms=["mlm"]'])
    assert found.stopped_by is not None
    assert "out of GPU memory beside the other processes; start again with fewer --workers" in found.stopped_by
    assert len(found.missing) == 2  # looks; the run itself is there
    assert len(found.result.values("mlm", "held-out perplexity")) == 1


def test_what_does_not_fit_is_refused(data: Path, recipe: Path, outcome: StudyOutcome, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="result of scale minutes"):
        study(data, recipe, outcome.folder.parent, scale="gpu")
    with pytest.raises(BertkitError, match="choose one of minutes, gpu"):
        study(data, recipe, tmp_path, scale="hours")
    with pytest.raises(BertkitError, match="multiple of 8"):
        study(data, recipe, tmp_path, changes=["scale.minutes.pretrain.steps=9"])
    with pytest.raises(BertkitError, match="give --tokenizer"):
        study(data, recipe, tmp_path, store="somewhere")
    with pytest.raises(BertkitError, match="give --store"):
        study(data, recipe, tmp_path, tokenizer="somewhere")
    with pytest.raises(BertkitError, match="no study is 'directoin'; did you mean 'direction'"):
        run_studies("directoin", out=tmp_path)
    assert json.loads((outcome.folder / "result.json").read_text())["scale"] == "minutes"
