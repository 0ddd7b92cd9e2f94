"""The README's Python lines and its way from a CSV to a served model, run as written, and the samples that it uses."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bertkit.bundled import is_here
from tests.browser import need

need("fastapi", "uvicorn", "onnxruntime")

ROOT = Path(__file__).parents[1]
HEADING = "## From a CSV to a served model"
SAMPLES = ROOT / "src" / "bertkit" / "samples"
LIMIT = 600  # seconds on two cores, as the README says


def read_block() -> str:
    """The first fenced block under the heading."""
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition(HEADING)
    found = re.search(r"^```bash\n(.*?)^```$", rest.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    assert found is not None, f"no block of commands under {HEADING!r}"
    return found[1]


def run_as_written(block: str, folder: Path) -> str:
    """What the block prints, run by bash with this Python's commands; nothing that it started is left behind."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", block]
    with (folder / "errors.txt").open("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=LIMIT)
        finally:
            stop_all(process.pid)
        errors.seek(0)
        assert process.returncode == 0, f"{printed}\n{errors.read()}"
    return printed


def stop_all(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_the_block_runs_as_written(tmp_path: Path) -> None:
    block = read_block()
    for part in ("sentiment.csv", "bertkit finetune", "bertkit export", "--int8", "bertkit serve", "curl"):
        assert part in block
    (tmp_path / "src").symlink_to(ROOT / "src")
    printed = run_as_written(block, tmp_path)
    answers = re.findall(r'\[\{"score":.*?\}\]', printed)
    assert len(answers) == 1, printed
    scores = {one["label"]: one["score"] for one in json.loads(answers[0])}
    assert set(scores) == {"positive", "negative"}
    assert sum(scores.values()) == pytest.approx(1, abs=1e-3)
    assert scores["positive"] > 0.5


LEARNED = ("finetune(", 'load("reviews")', "tune_vectors(")  # lines that train, or need what was trained


@pytest.mark.skipif(not is_here("answers-en"), reason="the bundled models are not in this copy")
def test_the_python_lines_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition("## In Python")
    lines = re.findall(r"^    (.+)$", rest.partition("\n## ")[0], re.MULTILINE)
    assert sum(part in line for line in lines for part in LEARNED) == len(LEARNED)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for line in lines:
        if line.startswith(("import ", "bert = ")):
            exec(line, names)
        elif not any(part in line for part in LEARNED):
            found[line] = eval(line, names)
    (tagged,) = (value for line, value in found.items() if ".tag(" in line)
    (answer,) = (value for line, value in found.items() if ".answer(" in line)
    assert [entity.text for entity in tagged.entities] == ["Marie Curie", "Warsaw"]
    assert answer.text == "Berlin"
    assert (tmp_path / "my-bert" / "model.safetensors").is_file()


def sentences(name: str) -> list[tuple[str, str]]:
    with (SAMPLES / name).open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]


def test_the_sample_sentences_are_balanced_and_held_out() -> None:
    train, heldout = sentences("sentiment.csv"), sentences("sentiment-heldout.csv")
    assert len(train) >= 300
    for part in (train, heldout):
        positive, negative = (Counter(label for _, label in part)[name] for name in ("positive", "negative"))
        assert positive == negative == len(part) / 2
    texts = [re.sub(r"\W+", " ", text.lower()) for text, _ in train + heldout]
    assert len(set(texts)) == len(texts)
    assert all(text == text.strip() and len(text.split()) >= 4 for text, _ in train + heldout)
