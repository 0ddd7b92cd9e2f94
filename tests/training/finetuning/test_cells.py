"""Seeds, the paper's grid, and collapsed runs: bounded restarts, finished cells skipped, mean and spread."""

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel
from bertkit.training.finetuning import cells as finetuning_cells
from bertkit.training.finetuning.cells import SEED_STEP, Cell, CellRunner, spread_of
from bertkit.training.finetuning.config import FinetuneConfig, grid_of, make_config, parse_settings
from bertkit.training.finetuning.evaluation import TaskEvaluation, find_collapse, guessing_loss
from bertkit.training.finetuning.records import RunSummary
from bertkit.training.finetuning.start import Base
from bertkit.training.watch import DivergedError
from tests.training import tiny_tasks
from tests.training.finetuning.test_run import Notes
from tests.training.tiny_tasks import CPU, make_base, make_data


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return make_base(tmp_path_factory.mktemp("base"))


def summary(
    config: FinetuneConfig, accuracy: float = 0.5, collapsed: str | None = None, steps: int = 300
) -> RunSummary:
    scores = {"accuracy": accuracy}
    return RunSummary(asdict(config), steps, steps, 1.0, 9.0, scores, 3, 0.4, collapsed, None, 100, 0, [])


Outcome = Callable[[FinetuneConfig], RunSummary]


def fake_runs(monkeypatch: pytest.MonkeyPatch, outcome: Outcome, steps: int = 300) -> list[FinetuneConfig]:
    """Runs that end at once, as `outcome` says."""
    begun: list[FinetuneConfig] = []

    class FakeRun:
        def __init__(self, base: Base, data: object, config: FinetuneConfig, *_: object) -> None:
            self.config, self.model = config, torch.nn.Linear(1, 1)
            begun.append(config)

        def run(self, stop: object) -> RunSummary:
            return outcome(self.config)

        def summary(self) -> RunSummary:
            return summary(self.config, 0.5, steps=steps)

    monkeypatch.setattr(finetuning_cells, "FinetuneRun", FakeRun)
    return begun


def test_the_paper_grid_has_eighteen_cells_of_their_own_names() -> None:
    cells = list(grid_of(FinetuneConfig(), "paper"))
    assert len(cells) == len({cell.cell for cell in cells}) == 18
    assert {(cell.batch_size, cell.learning_rate, cell.epochs) for cell in cells} == {
        (size, rate, epochs) for size in (16, 32) for rate in (5e-5, 3e-5, 2e-5) for epochs in (2, 3, 4)
    }
    assert [cell.seed for cell in grid_of(FinetuneConfig(seed=5), seeds=3)] == [5, 6, 7]
    assert len(list(grid_of(FinetuneConfig(), "paper", seeds=2))) == 36
    with pytest.raises(BertkitError, match="no grid is named 'large'"):
        list(grid_of(FinetuneConfig(), "large"))


def test_a_killed_grid_goes_on_where_it_was_and_keeps_the_best(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, kept = make_data(base), list[str]()

    def keep(model: BertModel, cell: Cell) -> None:
        kept.append(cell.name)

    def die_at_ten(config: FinetuneConfig) -> RunSummary:
        if len(begun) > 10:
            raise KeyboardInterrupt
        return summary(config, accuracy=config.epochs / 10)

    begun = fake_runs(monkeypatch, die_at_ten)
    with pytest.raises(KeyboardInterrupt):
        CellRunner(base, data, CPU, tmp_path, keep=keep).run(grid_of(FinetuneConfig(), "paper"))
    again = fake_runs(monkeypatch, lambda config: summary(config, accuracy=config.epochs / 10))
    for name in kept:
        assert (tmp_path / name / "result.json").is_file()
    runner = CellRunner(base, data, CPU, tmp_path, keep=keep)
    cells = runner.run(grid_of(FinetuneConfig(), "paper"))
    assert len(cells) == 18
    assert len(again) == 8
    assert runner.best is not None
    assert runner.best.summary.scores["accuracy"] == 0.4
    assert runner.best.name == kept[-1]


def test_a_collapsed_run_is_begun_anew_with_another_seed(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    begun = fake_runs(monkeypatch, lambda config: summary(config, 0.9, None if config.seed > SEED_STEP else "bad"))
    (cell,) = CellRunner(base, make_data(base), CPU, None, notes).run([FinetuneConfig(seed=1)])
    assert [config.seed for config in begun] == [1, 1 + SEED_STEP]
    assert cell.collapsed == ((1, "bad"),)
    assert cell.summary.collapsed is None
    assert notes.lines == ["collapsed with seed 1: bad; begun anew with another seed"]
    assert Cell.from_json(cell.to_json()) == cell


def test_restarts_are_bounded_and_the_last_word_is_said(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    begun = fake_runs(monkeypatch, lambda config: summary(config, 0.5, "one answer"))
    runner = CellRunner(base, make_data(base), CPU, None, notes)
    (cell,) = runner.run([FinetuneConfig(restarts=2)])
    assert len(begun) == 3
    assert cell.summary.collapsed == "one answer"
    assert notes.lines[-1].startswith("seed 15838 collapsed too: one answer")


def test_where_all_collapse_the_best_is_kept_not_the_last(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {0: 0.5, SEED_STEP: 0.6, 2 * SEED_STEP: 0.4}
    fake_runs(monkeypatch, lambda config: summary(config, scores[config.seed], "one answer"))
    (cell,) = CellRunner(base, make_data(base), CPU).run([FinetuneConfig(restarts=2)])
    assert (cell.summary.config["seed"], cell.summary.scores) == (SEED_STEP, {"accuracy": 0.6})
    assert [seed for seed, _ in cell.collapsed] == [0, 2 * SEED_STEP]


def test_a_run_too_short_to_learn_is_not_begun_anew(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    begun = fake_runs(monkeypatch, lambda config: summary(config, 0.5, "one answer", steps=13))
    (cell,) = CellRunner(base, make_data(base), CPU, None, notes).run([FinetuneConfig(restarts=2)])
    assert len(begun) == 1
    assert cell.summary.collapsed == "one answer"
    assert notes.lines[-1].startswith("nothing was learned in 13 steps (seed 0: one answer); train for more epochs")


def test_a_diverged_run_is_begun_anew_and_at_last_an_error(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(config: FinetuneConfig) -> RunSummary:
        if config.seed < SEED_STEP * most:
            raise DivergedError("the loss is no number")
        return summary(config, 0.8)

    most = 1
    fake_runs(monkeypatch, diverge)
    (cell,) = CellRunner(base, make_data(base), CPU).run([FinetuneConfig(restarts=1)])
    assert cell.collapsed == ((0, "the loss is no number"),)
    assert cell.summary.scores == {"accuracy": 0.8}
    most = 2
    with pytest.raises(BertkitError, match="seed0: the loss is no number"):
        CellRunner(base, make_data(base), CPU).run([FinetuneConfig(restarts=1)])


def test_a_short_run_that_diverged_leaves_no_model(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights are no numbers, and more epochs or a higher rate would not help it."""

    def diverge(config: FinetuneConfig) -> RunSummary:
        raise DivergedError("the loss is no number")

    begun, notes, kept = fake_runs(monkeypatch, diverge, steps=13), Notes(), list[Cell]()
    runner = CellRunner(base, make_data(base), CPU, None, notes, lambda model, cell: kept.append(cell))
    with pytest.raises(BertkitError, match="seed0: the loss is no number"):
        runner.run([FinetuneConfig(restarts=2)])
    assert len(begun) == 3
    assert not kept
    assert not any("higher rate" in line for line in notes.lines)


def test_where_the_last_of_all_diverges_one_that_collapsed_is_kept(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(config: FinetuneConfig) -> RunSummary:
        if config.seed:
            raise DivergedError("the loss is no number")
        return summary(config, 0.5, "one answer")

    fake_runs(monkeypatch, outcome)
    (cell,) = CellRunner(base, make_data(base), CPU).run([FinetuneConfig(restarts=1)])
    assert cell.summary.collapsed == "one answer"
    assert cell.collapsed == ((SEED_STEP, "the loss is no number"),)


def test_of_many_runs_each_is_announced(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    fake_runs(monkeypatch, summary)
    CellRunner(base, make_data(base), CPU, None, notes).run(grid_of(FinetuneConfig(), seeds=2))
    assert notes.lines == [
        "run 1 of 2: batch32-rate3e-05-epochs3-seed0",
        "run 2 of 2: batch32-rate3e-05-epochs3-seed1",
    ]


def test_a_run_that_collapsed_is_never_preferred(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(config: FinetuneConfig) -> RunSummary:
        return summary(config, 0.9, "it says 'no' of all") if config.seed == 0 else summary(config, 0.6)

    fake_runs(monkeypatch, outcome)
    runner = CellRunner(base, make_data(base), CPU)
    runner.run(grid_of(FinetuneConfig(restarts=0), seeds=2))
    assert runner.best is not None
    assert runner.best.summary.scores == {"accuracy": 0.6}


def test_mean_and_spread_by_hand() -> None:
    config = FinetuneConfig()
    cells = [
        Cell(f"{name}-seed{seed}", summary(config, score))
        for name, scores in (("low", [0.5, 0.7]), ("high", [0.8, 0.9, 1.0]))
        for seed, score in enumerate(scores)
    ]
    best, other = spread_of(cells, "accuracy")
    assert (best.setting, best.num_runs) == ("high", 3)
    assert best.mean == pytest.approx(0.9)
    assert best.deviation == pytest.approx(0.1)
    assert other.deviation == pytest.approx(0.02**0.5)
    assert best.line("accuracy") == "high: accuracy 0.9000 +- 0.1000 over 3 seeds"


def test_a_real_collapse_is_found(base: Base) -> None:
    """Without a rate nothing is learned, whatever the seed."""
    notes = Notes()
    runner = CellRunner(base, make_data(base), CPU, None, notes)
    (cell,) = runner.run([tiny_tasks.make_config(learning_rate=0.0, restarts=1, epochs=7)])  # 56 steps
    assert len(cell.collapsed) == 1
    assert cell.summary.collapsed


def test_what_counts_as_collapsed() -> None:
    fine = TaskEvaluation({}, 0.5, 10, None)
    one = TaskEvaluation({}, 0.5, 10, "no")
    assert find_collapse(0.2, 0.69, fine) is None
    assert find_collapse(0.2, None, None) is None
    assert find_collapse(0.2, 0.69, one) == "it says 'no' of all 10 development examples"
    assert find_collapse(0.69, 0.6931, fine) == (
        "its training loss 0.6900 is not clearly below 0.6931, that of a constant guess"
    )
    assert find_collapse(float("nan"), 0.69, fine) is not None


def test_the_loss_of_guessing_by_hand(base: Base) -> None:
    data = make_data(base)
    items = [item for chunk in data.train for item in chunk.items]
    share = sum(int(item.targets[0]) for item in items) / len(items)
    expected = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert guessing_loss(data.task, items) == pytest.approx(expected)


def test_settings_are_checked() -> None:
    assert make_config(parse_settings(["epochs=4", "learning_rate=2e-5", "long=truncate"])).epochs == 4
    with pytest.raises(BertkitError, match="unknown key 'epoch'; did you mean 'epochs'"):
        make_config({"epoch": 3})
    with pytest.raises(BertkitError, match="takes key=value"):
        parse_settings(["epochs"])
    for wrong in ({"batch_size": 0}, {"long": "cut"}, {"precision": "int8"}, {"patience": -1}, {"warmup_share": 2.0}):
        with pytest.raises(BertkitError):
            make_config(wrong)
