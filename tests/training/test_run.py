"""A whole run in one process: what it leaves, what it refuses, what it says when it fails."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.pages.training import TrainingReport, training_page
from bertkit.text import folders
from bertkit.tokenizer import Tokenizer
from bertkit.training.checkpoints import CheckpointConfig, CheckpointFolder
from bertkit.training.data import RunData, original_ids, unigram_loss
from bertkit.training.journal import read_journal
from bertkit.training.objective import Objective
from bertkit.training.optimizers.build import OptimizerConfig
from bertkit.training.plan import Stage
from bertkit.training.recipe import read_recipe
from bertkit.training.run import Run, RunResult, run_pretraining
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.stepping import Progress
from bertkit.training.watch import StopRequest
from bertkit.training.world import World
from tests.pages.reading import assert_self_contained
from tests.training.tiny import MemoryFeed, data, recipe, run, tokenizer


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    out = tmp_path_factory.mktemp("done") / "run"
    return out, run(out, recipe())


def test_a_run_leaves_a_model_a_card_a_journal_and_a_report(done: tuple[Path, RunResult]) -> None:
    out, result = done
    bert = load(out / "model", device="cpu")
    assert len(bert.fill_mask("w1 [MASK]")) == 1
    assert read_recipe(out / "bertkit.toml") == recipe().resolve(torch.device("cpu"))
    journal = read_journal(out)
    assert [line["step"] for line in journal if line["kind"] == "step"] == list(range(1, 13))
    assert [line["step"] for line in journal if line["kind"] == "evaluation"] == [0, 4, 8, 12]
    assert result.evaluation == {k: v for k, v in journal[-1].items() if k != "kind"}
    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert f"{result.evaluation['mlm_loss']:.3f}" in card
    shown = assert_self_contained((out / "report.html").read_text(encoding="utf-8")).data
    assert [point["mlm_loss"] for point in shown["steps"]] == [x["mlm_loss"] for x in journal if x["kind"] == "step"]
    assert shown["evaluations"][-1]["nsp_accuracy"] == result.evaluation["nsp_accuracy"]


def test_the_best_is_the_lowest_held_out_loss(done: tuple[Path, RunResult]) -> None:
    out, _ = done
    measured = [line for line in read_journal(out) if line["kind"] == "evaluation"]
    best = min(measured, key=lambda line: line["mlm_loss"] + line["nsp_loss"])
    assert os.readlink(out / "checkpoints" / "best") == f"step-{best['step']:08d}"


def test_a_begun_run_is_not_overwritten_and_not_changed(done: tuple[Path, RunResult]) -> None:
    out, result = done
    with pytest.raises(BertkitError, match="already holds a run"):
        run(out, recipe())
    with pytest.raises(BertkitError, match="model holds a model; choose another folder"):
        run(out / "model", recipe())
    with pytest.raises(BertkitError, match="began with seed = 3, not 4"):
        run(out, recipe(seed=4), resume=True)
    assert run(out, recipe(), resume=True).weights_sha256 == result.weights_sha256  # nothing was left to do


def test_a_run_does_not_go_on_with_other_tokens(done: tuple[Path, RunResult]) -> None:
    """Where the tokenizer lies may change; what its tokens are may not."""
    out, _ = done
    names = tokenizer().tokens
    other = Tokenizer.from_vocab([*names[:-2], names[-1], names[-2]], lowercase=True)
    for others, said in ((other, "token 43 is 'w39' here and 'w38' in"), (extended(), "tokenizer has 46 tokens, but")):
        with pytest.raises(BertkitError, match=said):
            run_pretraining(recipe(), out, resume=True, data=replace(data(), tokenizer=others))


def extended() -> Tokenizer:
    return Tokenizer.from_vocab([*tokenizer().tokens, "more"], lowercase=True)


def test_stages_growing_batches_and_ready_batches_resume_alike(tmp_path: Path) -> None:
    stages = (Stage(16, 64, 4, share=0.5), Stage(24, 64, 2, share=0.5))
    changes = {"stages": stages, "schedule": ScheduleConfig("wsd", batch_warmup_steps=4, batch_warmup_start=2)}
    made = recipe(**changes, checkpoints=CheckpointConfig(5, 9), optimizer=OptimizerConfig("muon", 5e-3))
    ahead = replace(made, data=replace(made.data, workers=2))
    whole = run(tmp_path / "whole", ahead)
    shutil.copytree(tmp_path / "whole", tmp_path / "part", symlinks=True)
    CheckpointFolder(tmp_path / "part" / "checkpoints")._point("last", Path("step-00000005"))
    part = run(tmp_path / "part", made, resume=True)
    assert (part.weights_sha256, part.optimizer_sha256) == (whole.weights_sha256, whole.optimizer_sha256)
    assert part.tokens == whole.tokens


def test_the_first_batches_are_being_built_while_a_fresh_model_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    look = Run._look

    def looking(self: Run, step: int) -> None:
        begun.append(bool(self.trainer.source._sources))
        if step == 0:
            raise BertkitError("no room")
        look(self, step)

    monkeypatch.setattr(Run, "_look", looking)
    made = replace(recipe(), data=replace(recipe().data, workers=2)).resolve(torch.device("cpu"))
    ahead = Run(made, tmp_path, data(), World(), None, resume=False, started=0.0)
    with pytest.raises(BertkitError, match="no room"):
        ahead.run(StopRequest())
    assert begun == [True]
    assert not ahead.trainer.source._sources  # their workers have ended


def test_a_signal_that_comes_with_the_last_step_stops_nothing(tmp_path: Path) -> None:
    class Killer:
        def on_step(self, values: dict[str, Any], progress: Progress) -> None:
            if values["step"] == 11:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_evaluation(self, values: dict[str, Any]) -> None:
            pass

    made = recipe(steps=12, log_every=1)
    result = run_pretraining(made, tmp_path, data=data(), observer=Killer())
    assert (result.step, result.stopped_by) == (12, None)
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PATIENCE", 0.0)
    seen = []

    class Second:
        def on_step(self, values: dict[str, Any], progress: Progress) -> None:
            with pytest.raises(BertkitError, match="another process is at work in"):
                run_pretraining(recipe(), tmp_path, data=data(), resume=True)
            seen.append(values["step"])

        def on_evaluation(self, values: dict[str, Any]) -> None:
            pass

    assert run_pretraining(recipe(), tmp_path, data=data(), observer=Second()).step == 12
    assert seen


def test_where_memory_runs_out_the_advice_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with --resume: a run that has begun refuses other stages."""

    def run_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "forward", run_out)
        patch.setattr(Run, "_look", lambda run, step: run._save(is_best=False))
        with pytest.raises(BertkitError, match=r"halve tokens_per_batch .* begin a new run with another --out"):
            run(tmp_path / "one", recipe())
    smaller = recipe(stages=(Stage(16, 32, 4),))
    with pytest.raises(BertkitError, match="began with"):
        run(tmp_path / "one", smaller, resume=True)
    assert run(tmp_path / "other", smaller).step == 12


def test_divergence_names_the_step_and_the_last_good_checkpoint(tmp_path: Path) -> None:
    class Poisoned(MemoryFeed):
        def counts(self, index: int):  # type: ignore[no-untyped-def]
            if index == 14:  # of the eighth step
                model_of_run[0].encoder.embeddings.norm.weight.data.fill_(float("nan"))
            return super().counts(index)

    model_of_run = []
    from bertkit.training import run as module

    def remember(*arguments):  # type: ignore[no-untyped-def]
        model_of_run.append(original(*arguments))
        return model_of_run[0]

    original, module.fresh_model = module.fresh_model, remember  # type: ignore[attr-defined]
    try:
        with pytest.raises(BertkitError, match=r"at step 7.*last good checkpoint is step 6") as stopped:
            run_pretraining(recipe(), tmp_path, data=RunData(tokenizer(), [Poisoned(100)]))
    finally:
        module.fresh_model = original  # type: ignore[attr-defined]
    assert "\n" not in str(stopped.value)
    found = CheckpointFolder(tmp_path / "checkpoints").load()
    assert found is not None
    assert all(torch.isfinite(p).all() for p in found.model.parameters())


def test_going_on_from_a_checkpoint_watches_the_former_text(done: tuple[Path, RunResult], tmp_path: Path) -> None:
    out, result = done
    assert result.evaluation is not None
    model = replace(recipe().model, init=str(out / "model"), changes={})
    both = replace(data(), train=[MemoryFeed(500)], held_out=MemoryFeed(501), old_held_out=MemoryFeed(999))
    went_on = run_pretraining(recipe(model=model, steps=4), tmp_path / "on", data=both)
    first = next(line for line in read_journal(tmp_path / "on") if line["kind"] == "evaluation")
    assert first["old_mlm_loss"] == pytest.approx(result.evaluation["mlm_loss"])
    assert went_on.evaluation is not None
    assert "old_nsp_accuracy" in went_on.evaluation
    assert "former text" in (tmp_path / "on" / "model" / "README.md").read_text(encoding="utf-8")


def test_models_and_stages_that_do_not_fit_are_refused(done: tuple[Path, RunResult], tmp_path: Path) -> None:
    out, _ = done
    with pytest.raises(BertkitError, match="max_length 64, but the model has 32 positions"):
        run(tmp_path, recipe(stages=(Stage(64, 64, 2),)))
    with pytest.raises(BertkitError, match="exclude each other"):
        run(tmp_path, recipe(model=replace(recipe().model, init=str(out / "model"))))


def test_a_model_that_no_memory_holds_is_refused_before_it_takes_any(tmp_path: Path) -> None:
    giant = replace(recipe().model, changes={**recipe().model.changes, "num_layers": 10**12})
    with pytest.raises(BertkitError, match=r"weights, which take .* GiB, and .* GiB are free here; choose a smaller"):
        run(tmp_path, recipe(model=giant))


def test_a_checkpoint_with_another_vocabulary_is_refused(done: tuple[Path, RunResult], tmp_path: Path) -> None:
    shutil.copytree(done[0] / "model", tmp_path / "other")
    tokens = [*tokenizer().tokens[:5], *reversed(tokenizer().tokens[5:])]
    Tokenizer.from_vocab(tokens, lowercase=True).save(tmp_path / "other")
    init = replace(recipe().model, init=str(tmp_path / "other"), changes={})
    with pytest.raises(BertkitError, match=r"token 5 is 'w0' here and 'w39' in .*other; prepare the text"):
        run(tmp_path / "on", recipe(model=init))


def test_heads_that_a_checkpoint_lacks_are_told(done: tuple[Path, RunResult], tmp_path: Path) -> None:
    bert = load(done[0] / "model", device="cpu", heads=("pooler",))
    bert.save(tmp_path / "bare")
    init = replace(recipe().model, init=str(tmp_path / "bare"), changes={})
    with pytest.warns(UserWarning, match="bare has no MLM and no NSP head: new"):
        run(tmp_path / "on", recipe(model=init, steps=1))


def test_guessing_by_frequency_sees_the_words_under_the_masks() -> None:
    made = data()
    batch = made.train[0].micro_batch(0)
    ids = original_ids(batch)
    assert tokenizer().mask_id not in ids
    assert (ids[batch.masked_positions.numpy()] == batch.masked_token_ids.numpy()).all()
    assert made.held_out is not None
    assert unigram_loss(made, made.held_out, range(2)) == pytest.approx(3.69, abs=0.3)  # 40 words alike: ln 40


def test_a_journal_cut_by_a_kill_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(json.dumps({"kind": "step"}) + '\n{"kind": "st', encoding="utf-8")
    assert read_journal(tmp_path) == [{"kind": "step"}]
    assert read_journal(tmp_path / "none") == []


def test_the_page_shows_hostile_text_as_text() -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    sizes = {"num_parameters": 1, "num_layers": 1, "hidden_size": 1, "num_heads": 1, "vocab_size": 1, "num_steps": 0}
    report = TrainingReport(
        name=hostile, **sizes, num_tokens=0, seconds=0.0, device="cpu", steps=[], evaluations=[], recipe=hostile
    )
    page = training_page(report)
    assert hostile not in page
    assert assert_self_contained(page).data["recipe"] == hostile
