"""bench.pretrain_trials: a list of trials runs to its end over several calls, and says what each did."""

import json
from pathlib import Path

import pytest
from bench.pretrain_trials import Trials, read_rows, run_all, summarise, table, trial_recipe

from bertkit.errors import BertkitError
from bertkit.training.toml_text import read_toml, to_dataclass
from tests.studies.toy_data import make_data
from tests.training.tiny import prepare_sample

pytestmark = pytest.mark.filterwarnings("ignore:.* stand in the training text")  # there is but one sample
ROOT = Path(__file__).parents[1]
RECIPE = """
steps = 9
device = "cpu"
log_every = 2
[model]
size = "tiny"
changes = {num_layers = 2, hidden_size = 16, num_heads = 2, intermediate_size = 32, hidden_dropout = 0.0}
[data]
store = "STORE"
tokenizer = "VOCAB"
held_out = "STORE"
workers = 0
[[stages]]
max_length = 32
tokens_per_batch = 512
[evaluation]
num_batches = 1
"""
TRIALS = """
recipe = "RECIPE"
steps = 4
set = ["seed=5"]
[trials.hot]
set = ["optimizer.learning_rate=1e30"]
[trials.zero]
set = ["model.start=zero"]
steps = 6
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trials")
    prepare_sample(made, 300)
    text = RECIPE.replace("STORE", str(made / "store")).replace("VOCAB", str(made / "vocab"))
    (made / "recipe.toml").write_text(text, encoding="utf-8")
    (made / "trials.toml").write_text(TRIALS.replace("RECIPE", str(made / "recipe.toml")), encoding="utf-8")
    return made


def test_trials_run_once_and_failures_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    where = (to_dataclass(Trials, read_toml(folder / "trials.toml")), folder / "runs", folder / "out.json")
    made = run_all(*where, minutes=2.0, keep_models=False)
    assert made == read_rows(folder / "out.json")
    hot, zero = made
    assert (hot["trial"], zero["trial"], zero["error"], zero["steps"]) == ("hot", "zero", None, 6)
    assert "lower the learning rate" in hot["error"]
    assert zero["mlm_loss"] > 0
    assert zero["tokens"] > 0
    assert zero["grad_norm_min"] <= zero["grad_norm_max"]
    assert "`model.start=zero`" in table(made)
    assert not (folder / "runs" / "zero" / "checkpoints").exists()
    capsys.readouterr()
    assert run_all(*where, minutes=2.0, keep_models=False) == made
    assert capsys.readouterr().out == ""  # nothing was left to do


def test_a_look_at_each_model_stands_in_the_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    trials = to_dataclass(Trials, read_toml(folder / "trials.toml")).changed([], None, ["zero"])
    data = make_data(tmp_path / "data")
    (row,) = run_all(trials, tmp_path / "runs", tmp_path / "out.json", 2.0, keep_models=False, data=data)
    assert row["error"] is None
    assert 0.0 <= row["blimp"] <= 1.0
    assert 0.0 <= row["senses"] <= 1.0
    assert -2.0 <= row["fair"] <= 2.0
    assert row["without_dropout"] == pytest.approx(row["mlm_loss"], abs=0.5)
    assert abs(row["with_dropout"] - row["without_dropout"]) > 0
    assert f"| {row['fair']:+.2f} | {row['with_dropout']:.2f} |" in table([row])
    capsys.readouterr()


def test_changes_and_lengths_of_all_and_of_one(folder: Path) -> None:
    trials = to_dataclass(Trials, read_toml(folder / "trials.toml"))
    made = {name: trial_recipe(trials, trial) for name, trial in trials.all().items()}
    assert {recipe.seed for recipe in made.values()} == {5}
    assert (made["zero"].steps, made["zero"].minutes, made["zero"].model.start) == (6, None, "zero")
    assert made["hot"].checkpoints.every_steps == made["hot"].evaluation.every_steps == 0
    assert made["hot"].steps == 4
    for wrong in ({"recipe": "x", "trials": {"a": {}}}, {"recipe": "x", "trials": {"a": {"minutes": 1.0, "steps": 1}}}):
        with pytest.raises(BertkitError, match="trial a needs either"):
            to_dataclass(Trials, wrong).all()
    with pytest.raises(BertkitError, match=r"trials\.a\.st.*did you mean"):
        to_dataclass(Trials, {"recipe": "x", "steps": 1, "trials": {"a": {"st": ["x=1"]}}}).all()


def test_the_command_line_changes_and_chooses(folder: Path) -> None:
    trials = to_dataclass(Trials, read_toml(folder / "trials.toml"))
    made = trials.changed(["model.start=deepnorm", "seed=6"], 0.5, ["zero"]).all()
    assert list(made) == ["zero"]
    assert (made["zero"].minutes, made["zero"].steps) == (0.5, None)
    recipe = trial_recipe(trials, made["zero"])
    assert (recipe.model.start, recipe.seed) == ("deepnorm", 6)  # over the trial's own
    with pytest.raises(BertkitError, match="no trial cold; choose from hot, zero"):
        trials.changed([], None, ["cold"])


def test_the_plateau_is_left_where_the_loss_first_falls_below_it(tmp_path: Path) -> None:
    speed = {"tokens": 10, "tokens_per_second": 5.0, "seconds": 2.0, "flops_per_second": 1.0}
    losses = [(2, 7.0, 0.5), (4, 5.8, 3.0), (6, 6.0, 1.0)]
    lines = [{"kind": "step", "step": s, "mlm_loss": loss, "grad_norm": n, **speed} for s, loss, n in losses]
    lines.append({"kind": "evaluation", "step": 6, "mlm_loss": 5.5, "mlm_accuracy": 0.25, "nsp_accuracy": 0.5})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "journal.jsonl").write_text(text, encoding="utf-8")
    row = summarise(tmp_path)
    assert (row["plateau_step"], row["plateau_tokens"], row["tokens"], row["steps"]) == (4, 20, 30, 6)
    assert (row["grad_norm_min"], row["grad_norm_max"], row["mlm_accuracy"]) == (0.5, 3.0, 0.25)
    shown = table([{"trial": "b", "own": [], **row, "mlm_loss": 6.0}, {"trial": "a", "own": [], **row}])
    assert shown.index("| a |") < shown.index("| b |")  # the best first
    assert "5.500 | 25.0% | 50.0%" in shown


@pytest.mark.parametrize("path", sorted(ROOT.glob("bench/*_trials.toml")), ids=lambda path: path.stem)
def test_every_trial_of_ours_is_a_recipe(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    trials = to_dataclass(Trials, read_toml(path))
    recipes = [trial_recipe(trials, trial) for trial in trials.all().values()]
    assert len(recipes) > 1
    assert all(recipe != recipes[0] for recipe in recipes[1:])
