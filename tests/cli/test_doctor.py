"""`bertkit doctor`: a recipe, a store or text in; ok, warning or problem out; exit code 0, 1 or 2."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bertkit.cli.main import app
from tests.cli.running import refusal
from tests.training.tiny import prepare_sample

RECIPE = """
steps = 20
device = "cpu"
[model]
changes = {num_layers = 2, hidden_size = 16, num_heads = 2, intermediate_size = 32, max_positions = 32, initializer_range = 0.1}
[[stages]]
max_length = 32
tokens_per_batch = 512
[optimizer]
learning_rate = 1e-2
[data]
workers = 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary, text, a store and a recipe."""
    made = tmp_path_factory.mktemp("doctor")
    prepare_sample(made, 2000)
    data = f'store = "{made}/store"\ntokenizer = "{made}/vocab"\n'
    (made / "recipe.toml").write_text(RECIPE + data, encoding="utf-8")
    return made


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["doctor", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def run_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    return {finding["check"]: finding for finding in json.loads(run(*arguments, "--json", code=code))}


def test_a_sound_recipe_is_told_so(folder: Path, tmp_path: Path) -> None:
    shown = run(folder / "recipe.toml", "--out", tmp_path / "run")
    assert "0 problems" in shown
    assert "one batch" in shown
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_cannot_learn_is_exit_code_1(folder: Path) -> None:
    found = run_json(folder / "recipe.toml", "--set", "model.changes.initializer_range=10.0", code=1)
    assert found["first MLM loss"]["level"] == "problem"
    assert found["duplicates"]["level"] == "ok"


def test_text_and_stores_are_looked_at_without_a_recipe(folder: Path) -> None:
    text = run_json(folder / "text.txt", "-t", folder / "vocab")
    store = run_json(folder / "store", "-t", folder / "vocab")
    assert text["readable"]["level"] == "ok"
    assert "readable" not in store
    assert text["fertility"]["values"]["fertility"] == pytest.approx(
        store["fertility"]["values"]["fertility"], rel=0.01
    )


def test_a_recipe_is_examined_with_text_that_is_not_prepared_yet(folder: Path) -> None:
    found = run_json(folder / "recipe.toml", folder / "text.txt", "--set", "data.store=later")
    assert found["readable"]["level"] == "ok"
    assert found["one batch"]["level"] == "ok"
    prepared = run_json(folder / "recipe.toml")
    epochs = [each["amount"]["values"]["epochs"] for each in (found, prepared)]
    assert epochs[1] < epochs[0] < 2 * epochs[1]  # by tokens alone, without [CLS], [SEP] and strangers


def test_problems_may_be_accepted(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "twice.txt"
    text.write_text((folder / "text.txt").read_text(encoding="utf-8") * 2, encoding="utf-8")
    found = run_json(text, "-t", folder / "vocab", code=1)
    assert {name for name, finding in found.items() if finding["level"] == "problem"} == {"duplicates"}
    assert run_json(text, "-t", folder / "vocab", "--accept", "duplicates")["duplicates"]["level"] == "warning"


def test_the_sample_limits_how_much_is_read(folder: Path) -> None:
    found = run_json(folder / "text.txt", "-t", folder / "vocab", "--sample", "3KB")["looked at"]
    assert found["values"]["share"] < 0.5
    assert "raise --sample" in found["advice"]


def test_bad_input_is_one_line_and_exit_code_2(folder: Path) -> None:
    assert "--tokenizer FOLDER" in refusal("doctor", str(folder / "text.txt"))
    assert "no file or folder" in refusal("doctor", "nowhere.txt", "-t", str(folder / "vocab"))
    assert "at most one recipe" in refusal("doctor", str(folder / "recipe.toml"), str(folder / "recipe.toml"))
    assert "are for a recipe" in refusal("doctor", str(folder / "text.txt"), "--set", "steps=1")
    assert "names no data.store" in refusal("doctor", str(folder / "recipe.toml"), "--set", "data.store=")
    assert "no finished token store" in refusal("doctor", str(folder / "recipe.toml"), "--set", "data.store=nowhere")


def test_a_check_that_is_not_there_cannot_be_accepted_in_silence(folder: Path) -> None:
    arguments = [str(folder / "text.txt"), "-t", str(folder / "vocab"), "--accept", "dupes", "--json"]
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert json.loads(result.stdout)
    assert "--accept dupes: no such check was made" in result.stderr
    assert "duplicates" in result.stderr
