"""A study small enough for tests: the toy data folder, and text that the study makes of its corpus."""

from pathlib import Path
from typing import Any

import pytest

from bertkit.studies.study.config import read_study
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.run import run_study
from bertkit.studies.suite_config import read_suite
from tests.studies.toy_data import open_data

RECIPE = """
question = "Does it matter that a token sees both sides?"
claim = "It does."
baseline = "mlm"
notes = ["toy"]

[[paper]]
source = "table 5"
columns = ["SST-2"]
rows = [{label = "base", arm = "mlm", values = {"SST-2" = 92.7}}, {label = "LTR", arm = "ltr", values = {"SST-2" = 92.1}}]

[[arms]]
name = "mlm"
label = "both sides"
[[arms]]
name = "ltr"
label = "left to right"
set = {objective = "ltr"}

[scale.minutes]
seeds = 1
looks = [0.5, 1.0]
text = {files = ["train.txt"], megabytes = 0.1, vocab_size = 60}
tasks = [
  {name = "SST-2"},
  {name = "CoNLL-2003", way = "features", epochs = 1, layer = "last", hidden_size = 8},
]
[scale.minutes.pretrain]
steps = 8
log_every = 1
[scale.minutes.pretrain.model]
changes = {num_layers = 2, hidden_size = 16, num_heads = 2, intermediate_size = 32, max_positions = 32}
[[scale.minutes.pretrain.stages]]
max_length = 16
tokens_per_batch = 64
[scale.gpu]
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "toy.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def study(data: Path, recipe: Path, out: Path, **changes: Any) -> StudyOutcome:
    given: dict[str, Any] = {"suite": data / "suite.toml", "cache": data / "cache", "device": "cpu", "workers": 1}
    given |= {"data": data, "recipe": recipe, "shown": False, "command": "bertkit study direction"}
    return run_study("direction", out=out, **{**given, **changes})


def make_request(data: Path, recipe: Path, out: Path, **changes: Any) -> StudyRequest:
    """As `study` has it."""
    read, suite = read_study("direction", path=recipe), read_suite(data / "suite.toml")
    return StudyRequest(read, "minutes", open_data(data), out, suite, device="cpu", shown=False, **changes)
