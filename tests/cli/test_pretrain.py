"""`bertkit pretrain`: a recipe and folders in, a run out; killed, resumed, estimated, refused."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bertkit.cli.main import app
from bertkit.corpus.prepare.run import prepare
from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import train_vocabulary
from bertkit.training.watch import Guard
from tests.cli import running

RECIPE = """
steps = 6
device = "cpu"
log_every = 2
[model]
changes = {num_layers = 2, hidden_size = 16, num_heads = 2, intermediate_size = 32, max_positions = 32}
[[stages]]
max_length = 32
tokens_per_batch = 256
micro_batches = 2
[evaluation]
every_steps = 3
num_batches = 2
[checkpoints]
every_steps = 3
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe whose store was prepared from the sample text."""
    folder = tmp_path_factory.mktemp("data")
    documents = sample_documents()
    tokenizer = train_vocabulary((line for document in documents for line in document), size=400, lowercase=True)
    tokenizer.save(folder / "vocab")
    for name, part in (("store", documents[::2]), ("held-out", documents[1:40:2])):
        text = folder / f"{name}.txt"
        text.write_text("\n\n".join("\n".join(document) for document in part), encoding="utf-8")
        prepare([text], tokenizer, folder / name, workers=1)
    path = folder / "recipe.toml"
    data = f'[data]\nstore = "{folder}/store"\ntokenizer = "{folder}/vocab"\nheld_out = "{folder}/held-out"\n'
    path.write_text(RECIPE + data, encoding="utf-8")
    return path


def run(*arguments: str) -> str:
    return running.run("pretrain", *arguments)[0]


def run_json(*arguments: str) -> Any:
    return running.run_json("pretrain", *arguments)


def test_a_recipe_becomes_a_model(recipe: Path, tmp_path: Path) -> None:
    result = run_json(str(recipe), "--out", str(tmp_path / "run"))
    assert (result["step"], result["stopped_by"]) == (6, None)
    assert result["evaluation"]["num_pairs"] > 0
    assert load(tmp_path / "run" / "model", device="cpu").fill_mask("the [MASK].")
    again = run_json(str(recipe), "--out", str(tmp_path / "run"), "--resume")
    assert again["weights_sha256"] == result["weights_sha256"]
    init = run_json(
        str(recipe),
        "--set",
        "model.changes={}",
        "--init",
        str(tmp_path / "run" / "model"),
        "--out",
        str(tmp_path / "on"),
    )
    assert init["step"] == 6


def test_people_are_told_where_things_are(recipe: Path, tmp_path: Path) -> None:
    shown = run(str(recipe), "--set", "steps=2", "--out", str(tmp_path / "run"))
    assert "2 steps done" in shown
    assert "report.html" in shown


def test_an_estimate_runs_nothing(recipe: Path, tmp_path: Path) -> None:
    found = run_json(str(recipe), "--estimate", "--out", str(tmp_path / "run"))
    assert found["steps"] == 6
    assert 0.97 * 6 * 2 * 256 < found["tokens"] <= 6 * 2 * 256
    assert min(found["hours"], found["memory_bytes"], found["disk_bytes"], found["epochs"]) > 0
    assert found["corpus_tokens"] > 0
    assert found["published"] is None
    assert not (tmp_path / "run").exists()
    shown = run(str(recipe), "--estimate")
    assert all(word in shown for word in ("memory", "epochs", "FLOPs", "seconds a step", "MB/s"))


@pytest.mark.parametrize(
    ("change", "line"),
    [("data.store=", "names no data.store"), ("optimizer.lr=1", "unknown key"), ("data.store=nowhere", "nowhere")],
)
def test_what_is_wrong_is_one_line(recipe: Path, tmp_path: Path, change: str, line: str) -> None:
    with pytest.raises(BertkitError, match=line) as refused:
        run(str(recipe), "--set", change, "--out", str(tmp_path / "run"))
    assert "\n" not in str(refused.value)


def test_a_run_that_a_signal_stopped_is_no_success(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a script does next would take it for a finished one."""
    once = iter([signal.SIGTERM])
    monkeypatch.setattr(Guard, "check", lambda *_: os.kill(os.getpid(), next(once, 0)))
    found = CliRunner().invoke(app, ["pretrain", str(recipe), "--out", str(tmp_path / "run")])
    assert found.exit_code == 1
    assert "stopped by SIGTERM at step" in found.stdout
    monkeypatch.undo()
    assert "6 steps done" in run(str(recipe), "--out", str(tmp_path / "run"), "--resume")
