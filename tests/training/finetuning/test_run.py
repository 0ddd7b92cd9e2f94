"""One fine-tuning run: it learns, keeps its best, survives being killed and memory that runs out, and says when it collapsed."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel
from bertkit.tasks.task import TaskBatch
from bertkit.training.checkpoints import SLOW_SAVE
from bertkit.training.finetuning import run as finetuning_run
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.evaluation import TaskEvaluation
from bertkit.training.finetuning.loop import TaskObjective
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.finetuning.start import Base
from bertkit.training.stepping import Progress
from bertkit.training.watch import StopRequest
from tests.training.tiny_tasks import CPU, make_base, make_config, make_data, weights_of


class Notes:
    """Remembers what a run says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[dict[str, Any]] = []
        self.looks: list[dict[str, Any]] = []

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        self.steps.append(values)

    def on_evaluation(self, values: dict[str, Any]) -> None:
        self.looks.append(values)

    def on_note(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return make_base(tmp_path_factory.mktemp("base"))


def test_dropout_is_the_checkpoints_unless_another_is_given(base: Base, tmp_path: Path) -> None:
    data, given = make_data(base), make_config(epochs=1, dropout=0.0)
    dry, wet = FinetuneRun(base, data, given, CPU, tmp_path), FinetuneRun(base, data, make_config(epochs=1), CPU)
    assert (wet.model.config.hidden_dropout, dry.model.config.hidden_dropout) == (base.encoder.hidden_dropout, 0.0)
    assert base.encoder.hidden_dropout > 0
    dry.run()
    resumed = FinetuneRun(base, data, given, CPU, tmp_path)
    assert {m.p for m in resumed.model.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}
    assert resumed.run().step == dry.loop.progress.step  # nothing is left to do


def test_it_learns_and_says_what_is_new(base: Base) -> None:
    notes = Notes()
    run = FinetuneRun(base, make_data(base), make_config(epochs=6), CPU, None, notes)
    summary = run.run()
    assert summary.scores["accuracy"] == 1.0
    assert summary.collapsed is None
    assert summary.step == summary.num_steps == 6 * 8  # 60 examples by 8
    assert summary.train_loss < 0.3
    assert "new, to be learned: classifier (2 labels)" in notes.lines
    assert "not needed for this task, left out: MLM head, NSP head" in notes.lines
    assert any(line.startswith("estimated memory") for line in notes.lines)
    assert [look["epoch"] for look in notes.looks] == [1, 2, 3, 4, 5, 6]
    assert not run.model.training


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_best_weights_are_kept_not_the_last(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    scores = iter([0.2, 0.9, 0.4, 0.9])
    seen: list[str] = []

    def judge(task: Any, model: BertModel, chunks: Any) -> TaskEvaluation:
        seen.append(weights_of(model))
        return TaskEvaluation({"accuracy": next(scores)}, 0.5, 20, None)

    monkeypatch.setattr(finetuning_run, "evaluate_task", judge)
    run = FinetuneRun(base, make_data(base), make_config(epochs=4), CPU, tmp_path if on_disk else None)
    summary = run.run()
    assert len(set(seen)) == 4
    assert weights_of(run.model) == seen[1]
    assert (summary.best_step, summary.scores) == (16, {"accuracy": 0.9})


def test_early_stopping_ends_after_looks_without_a_better_score(base: Base) -> None:
    summary = FinetuneRun(base, make_data(base), make_config(epochs=20, patience=2), CPU).run()
    assert summary.step < summary.num_steps
    assert summary.stopped_by is not None
    assert summary.stopped_by.startswith("early stopping: 2 looks")
    assert summary.scores["accuracy"] > 0.9


def test_looks_may_come_by_steps(base: Base) -> None:
    notes = Notes()
    FinetuneRun(base, make_data(base), make_config(epochs=2, eval_every=5), CPU, None, notes).run()
    assert [look["step"] for look in notes.looks] == [5, 10, 15, 16]


def test_a_run_stopped_and_resumed_is_the_run_never_stopped(base: Base, tmp_path: Path) -> None:
    whole = FinetuneRun(base, make_data(base), make_config(), CPU, tmp_path / "whole")
    expected = whole.run()
    stop = StopRequest()

    class Stopper(Notes):
        def on_step(self, values: dict[str, Any], progress: Progress) -> None:
            if values["step"] == 11:
                stop.name = "SIGTERM"

    first = FinetuneRun(base, make_data(base), make_config(), CPU, tmp_path / "parts", Stopper())
    assert first.run(stop).stopped_by == "SIGTERM"
    second = FinetuneRun(base, make_data(base), make_config(), CPU, tmp_path / "parts")
    assert second.loop.progress.step in (11, 12)
    found = second.run()
    assert weights_of(second.model) == weights_of(whole.model)
    assert found.scores == expected.scores
    losses = [[row["loss"] for row in one.history if row["kind"] == "step"] for one in (found, expected)]
    assert losses[0] == losses[1]


def test_a_resumed_run_cuts_its_steps_as_before_whatever_memory_is_free(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FinetuneRun(base, make_data(base), make_config(), CPU)
    whole.run()
    first = FinetuneRun(base, make_data(base), make_config(), CPU, tmp_path)
    assert first.run(StopRequest("SIGTERM")).stopped_by == "SIGTERM"
    memory = replace(whole.memory, micro_tokens=20)
    monkeypatch.setattr(finetuning_run, "estimate_memory", lambda *_, **__: memory)
    second = FinetuneRun(base, make_data(base), make_config(), CPU, tmp_path)
    second.run()
    assert weights_of(second.model) == weights_of(whole.model)


def test_a_killed_program_goes_on(base: Base, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "tests.training.tiny_tasks", str(base.path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = subprocess.run([*arguments, str(tmp_path / "whole")], env=environment, capture_output=True, check=True)
    slow = {**environment, SLOW_SAVE: "0.2"}
    running = subprocess.Popen([*arguments, str(tmp_path / "killed")], env=slow, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: any((tmp_path / "killed" / "checkpoints").glob("step-0000000*")))
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    again = subprocess.run([*arguments, str(tmp_path / "killed")], env=environment, capture_output=True, check=True)
    assert json.loads(again.stdout) == json.loads(whole.stdout)


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it took too long")


def run_out_of_memory(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A device that takes batches of up to so many tokens."""
    forward = TaskObjective.forward

    def limited(self: TaskObjective, batch: TaskBatch, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if batch.inputs.num_tokens > most:
            raise torch.OutOfMemoryError("injected")
        return forward(self, batch, whole)

    monkeypatch.setattr(TaskObjective, "forward", limited)


def test_memory_that_runs_out_halves_the_micro_batch_and_keeps_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_base(tmp_path, hidden_dropout=0.0, attention_dropout=0.0)
    expected = FinetuneRun(base, make_data(base), make_config(epochs=1), CPU).run()
    run_out_of_memory(monkeypatch, 24)
    notes = Notes()
    run = FinetuneRun(base, make_data(base), make_config(epochs=1), CPU, None, notes)
    found = run.run()
    assert found.num_reliefs >= 1
    assert found.micro_tokens <= 24 < 2 * found.micro_tokens * 2
    (line, *_) = [line for line in notes.lines if "out of memory" in line]
    assert "a step is still 8 examples" in line
    losses = [[row["loss"] for row in one.history if row["kind"] == "step"] for one in (found, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert found.step == expected.step


@pytest.fixture
def _in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, but for the recorded graphs."""
    monkeypatch.setattr(FinetuneConfig, "narrow_type", lambda self, device: torch.bfloat16)


@pytest.mark.usefixtures("_in_bf16")
def test_in_bf16_it_learns_on_narrow_copies_and_keeps_float32_weights(base: Base) -> None:
    run = FinetuneRun(base, make_data(base), make_config(epochs=6), CPU)
    assert run.loop.narrow is not None
    summary = run.run()
    assert summary.scores["accuracy"] > 0.9
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.feed.micro_batch(0).inputs.num_tokens < 128  # filled up for CUDA's graphs alone


@pytest.mark.usefixtures("_in_bf16")
def test_in_bf16_memory_that_runs_out_within_a_step_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second micro-batch of a step fails, after the first has written its gradients."""
    base = make_base(tmp_path, hidden_dropout=0.0, attention_dropout=0.0)
    config = make_config(epochs=1, micro_tokens=30)
    expected = FinetuneRun(base, make_data(base), config, CPU).run()
    forward, calls = TaskObjective.forward, []

    def once(self: TaskObjective, batch: TaskBatch, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(batch.inputs.num_tokens)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("injected")
        return forward(self, batch, whole)

    monkeypatch.setattr(TaskObjective, "forward", once)
    found = FinetuneRun(base, make_data(base), config, CPU).run()
    assert (expected.num_reliefs, found.num_reliefs) == (0, 1)
    losses = [[row["loss"] for row in one.history if row["kind"] == "step"] for one in (found, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_step_that_ran_out_of_memory_is_not_kept_alive(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its activations must be gone before it is computed anew, or there would be no more room than before."""
    forward, alive = TaskObjective.forward, list[weakref.ref[torch.Tensor]]()

    def watched(self: TaskObjective, batch: TaskBatch, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert not alive or alive[-1]() is None
        loss, sums = forward(self, batch, whole)
        if not alive:
            alive.append(weakref.ref(loss))
            raise torch.OutOfMemoryError("injected")
        return loss, sums

    monkeypatch.setattr(TaskObjective, "forward", watched)
    gc.disable()  # reference counts alone must do
    try:
        assert FinetuneRun(base, make_data(base), make_config(epochs=1), CPU).run().num_reliefs == 1
    finally:
        gc.enable()


def test_memory_for_not_even_one_text_is_one_clear_line(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    run_out_of_memory(monkeypatch, 2)
    with pytest.raises(BertkitError, match=r"out of memory with one text of 1\d tokens at a time; lower max_length"):
        FinetuneRun(base, make_data(base), make_config(epochs=1), CPU).run()


def test_a_collapsed_run_is_named(base: Base) -> None:
    summary = FinetuneRun(base, make_data(base), make_config(epochs=1, learning_rate=0.0), CPU).run()
    assert summary.collapsed is not None
    assert "of all 20 development examples" in summary.collapsed or "a constant guess" in summary.collapsed


def test_an_unknown_metric_is_refused_with_those_that_are_there(base: Base) -> None:
    with pytest.raises(BertkitError, match=r"classification has no score 'blue'; choose one of accuracy, macro_f1"):
        FinetuneRun(base, make_data(base), make_config(epochs=1, metric="blue"), CPU).run()


@pytest.mark.gpu
def test_on_a_gpu_it_learns_in_bf16_and_keeps_float32_weights(base: Base) -> None:
    device = torch.device("cuda")
    run = FinetuneRun(base, make_data(base), make_config(epochs=6, device="cuda"), device)
    summary = run.run()
    assert run.dtype == torch.bfloat16
    assert summary.scores["accuracy"] > 0.9
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
