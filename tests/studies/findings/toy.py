"""A request at toy size: the real recipes with their steps, text and sets cut down."""

from pathlib import Path
from typing import Any

from bertkit.studies.study.request import StudyOutcome
from bertkit.studies.study.run import run_study

SIZES = "{num_layers = 2, hidden_size = 16, num_heads = 2, intermediate_size = 32, max_positions = 64}"
PRETRAINING = (
    "scale.minutes.models=[]",
    "scale.minutes.text.files=['train.txt']",
    "scale.minutes.text.vocab_size=120",
    "scale.minutes.pretrain.steps=8",
    "scale.minutes.pretrain.log_every=1",
    "scale.minutes.pretrain.evaluation.num_batches=1",
    "scale.minutes.pretrain.stages.0.max_length=16",
    "scale.minutes.pretrain.stages.0.tokens_per_batch=64",
    f"scale.minutes.pretrain.model.changes={SIZES}",
)


def run_toy(name: str, data: Path, out: Path, *changes: str, **options: Any) -> StudyOutcome:
    """One study on the toy data, in this process."""
    given: dict[str, Any] = {"cache": data / "cache", "device": "cpu", "workers": 1, "shown": False, "seeds": 3}
    pretraining = () if name == "compute" else PRETRAINING
    suite = data / "suite.toml"
    return run_study(name, out=out, data=data, suite=suite, changes=[*pretraining, *changes], **{**given, **options})
