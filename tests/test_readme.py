"""The README's way from a CSV to a served model, run exactly as it is written, and the sample sentences that it uses."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

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
