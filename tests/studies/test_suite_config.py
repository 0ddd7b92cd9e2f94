"""The suite that comes with bertkit: the tasks of the report, one setting each, the last step's scores."""

from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.studies.published import FIVE, GOOGLE
from bertkit.studies.suite_config import FinetunedTask, Suite, read_suite

RECIPES = Path(__file__).parents[2] / "recipes"


def test_the_suite_has_all_parts() -> None:
    suite = read_suite()
    assert suite.names == ("held-out", "BLiMP", "word-in-context", *FIVE, "CoNLL-2003", "SQuAD")
    assert suite.seeds == 5
    metrics = {task.name: task.metric for task in suite.tasks}
    assert [metrics[name] for name in FIVE] == ["accuracy", "matthews", "f1", "accuracy", "spearman"]
    assert suite.task("SQuAD").columns == {"skip_bad": True}
    assert read_suite(RECIPES / "suite.toml") == suite
    assert read_suite(seeds=2).seeds == 2


def test_a_run_is_scored_at_its_last_step_and_never_begun_anew() -> None:
    config = read_suite().task("RTE").config(3, max_positions=64)
    assert (config.seed, config.restarts, config.max_length) == (3, 0, 64)
    assert config.eval_every > 10**6
    assert read_suite().task("RTE").config(0, 512).max_length == 128


def test_parts_are_chosen_by_name() -> None:
    suite = read_suite()
    assert suite.choose(["squad", "blimp"]) == ("BLiMP", "SQuAD")
    assert suite.choose([]) == suite.names
    with pytest.raises(BertkitError, match="no part 'CoLa2'; did you mean 'CoLA'"):
        suite.choose(["CoLa2"])


def test_published_averages() -> None:
    assert [round(row.average, 1) for row in GOOGLE] == [59.6, 67.9, 71.0, 77.3]


def test_bad_suites_are_refused(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text("sedes = 3\n")
    with pytest.raises(BertkitError, match="did you mean 'seeds'"):
        read_suite(tmp_path / "suite.toml")
    task = FinetunedTask("A", "classification", ("a.csv",), "b.csv", "f1")
    with pytest.raises(BertkitError, match="same name"):
        Suite(tasks=(task, task))
    with pytest.raises(BertkitError, match="epochs is 0"):
        FinetunedTask("A", "classification", ("a.csv",), "b.csv", "f1", epochs=0)
