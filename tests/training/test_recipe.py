"""Recipes: TOML there and back, keys that do not exist, changes on the command line, the recipes of the repository."""

from pathlib import Path

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.training.recipe import Recipe, read_recipe, refuse_changes
from bertkit.training.toml_text import to_dataclass, to_plain

RECIPES = sorted(p for p in (Path(__file__).parents[2] / "recipes").glob("*.toml") if p.stem != "suite")  # not a run
TEXT = """
steps = 100
[model]
size = "mini"
changes = {hidden_dropout = 0.0}
[[stages]]
max_length = 64
tokens_per_batch = 1024
masking = {rate = 0.2}
[optimizer]
name = "lamb"
learning_rate = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_there_and_back(file: Path, tmp_path: Path) -> None:
    recipe = read_recipe(file, ["data.store=my 'own' store", "seed=7", "stages.0.micro_batches=4"])
    assert (recipe.data.store, recipe.seed, recipe.stages[0].micro_batches) == ("my 'own' store", 7, 4)
    assert recipe.optimizer.learning_rate == 1.0
    assert recipe.stages[0].masking.rate == 0.2
    (tmp_path / "again.toml").write_text(recipe.to_toml(), encoding="utf-8")
    assert read_recipe(tmp_path / "again.toml") == recipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_of_the_repository(path: Path) -> None:
    recipe = read_recipe(path)
    assert to_dataclass(Recipe, to_plain(recipe)) == recipe
    assert recipe.data.store
    assert recipe.model.config(1000, next_sentence=True).vocab_size == 1000


def test_steps_or_minutes_and_init_go_over_the_file(file: Path) -> None:
    recipe = read_recipe(file, minutes=5.0, init="some/where")
    assert (recipe.steps, recipe.minutes, recipe.model.init) == (None, 5.0, "some/where")
    assert read_recipe(file, ["minutes=5"], steps=7).steps == 7
    with pytest.raises(BertkitError, match="give one of them, not both"):
        read_recipe(file, steps=7, minutes=5.0)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("optimiser.name=x", "did you mean 'optimizer'"),
        ("optimizer.learning_rat=1", "optimizer.learning_rat.*did you mean 'learning_rate'"),
        ("model.changes.hidden_dropuot=0.1", "did you mean 'hidden_dropout'"),
        ("model.changes.vocab_size=9", "unknown key 'model.changes.vocab_size'"),
        ("stages.0.masking.rat=0.1", "did you mean 'rate'"),
        ("stages.3.share=1", "no number below 1"),
        ("steps=ten", "steps takes a whole number, not 'ten'"),
        ("compile=1", "compile takes true or false"),
        ("optimizer.name=sgd", "choose one of adamw"),
        ("minutes=3", "either `steps` or `minutes`"),
        ("steps=0", "above 0"),
        ("steps", "takes key=value"),
        ("precision=half", "unknown precision"),
        ("stages=3", "stages is a list"),
        ("model=3", "model is a table"),
    ],
)
def test_what_is_wrong_is_named(file: Path, change: str, line: str) -> None:
    with pytest.raises(BertkitError, match=line) as refused:
        read_recipe(file, [change])
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="cannot read"):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = ", encoding="utf-8")
    with pytest.raises(BertkitError, match="no valid TOML"):
        read_recipe(tmp_path / "bad.toml")


def test_auto_on_the_cpu_is_float32_and_deterministic(file: Path) -> None:
    resolved = read_recipe(file).resolve(torch.device("cpu"))
    assert (resolved.device, resolved.precision, resolved.deterministic) == ("cpu", "float32", True)
    with pytest.raises(BertkitError, match="float16 needs a CUDA GPU"):
        read_recipe(file, ["precision=float16"]).resolve(torch.device("cpu"))


def test_a_resumed_run_keeps_its_recipe(file: Path) -> None:
    stored = read_recipe(file)
    refuse_changes(stored, read_recipe(file, ["checkpoints.keep=9", "data.store=moved", "data.held_out=moved"]))
    with pytest.raises(BertkitError, match=r"optimizer.learning_rate = 1.0, not 2.0"):
        refuse_changes(stored, read_recipe(file, ["optimizer.learning_rate=2"]))
    with pytest.raises(BertkitError, match=r"model\.changes\.hidden_dropout"):
        refuse_changes(stored, read_recipe(file, ["model.changes.hidden_dropout=0.5"]))
