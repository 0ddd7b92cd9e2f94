"""Fine-tuning small enough for tests: a two-layer BERT over forty words, and texts whose label is one of their words.

As a program (`python -m tests.training.tiny_tasks BASE OUT`) it is a run that tests can kill.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.model import BertModel, preset
from bertkit.model.formats import save_model
from bertkit.tasks.classification.task import ClassificationTask, classification_for
from bertkit.tasks.predicting import encode_chunks
from bertkit.tasks.reading.examples import TextExample
from bertkit.training.checkpoints import fingerprint
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.records import TaskData
from bertkit.training.finetuning.start import Base, open_base
from tests.training.tiny import SIZES, WORDS, tokenizer

CPU = torch.device("cpu")
SETTINGS: dict[str, Any] = {
    "learning_rate": 5e-3,
    "batch_size": 8,
    "epochs": 3,
    "device": "cpu",
    "log_every": 1,
    "restarts": 0,
    "save_every": 2,
}


def make_base(folder: Path, **changes: Any) -> Base:
    """A fresh tiny BERT with the heads of pre-training, saved as a folder and opened."""
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": tokenizer().vocab_size, "initializer_range": 0.2, **changes}
    save_model(BertModel(preset("tiny", **sizes)), folder)
    tokenizer().save(folder)
    return open_base(folder)


def make_examples(num: int, seed: int = 0, *, longest: int = 10, pairs: bool = False) -> list[TextExample]:
    """Texts of random words, labelled by which of two words they begin with."""
    random = np.random.default_rng(seed)
    examples = []
    for index in range(num):
        first = int(random.integers(0, 2))
        words = [WORDS[first], *(WORDS[int(i)] for i in random.integers(2, 40, random.integers(1, longest)))]
        pair = WORDS[int(random.integers(2, 40))] if pairs and index % 2 else None
        examples.append(TextExample(" ".join(words), pair, ("no", "yes")[first], index + 1))
    return examples


def make_data(base: Base, num: int = 60, num_dev: int = 20, **options: Any) -> TaskData:
    """Encoded examples; the development set is another draw."""
    train, dev = make_examples(num, **options), make_examples(num_dev, seed=99, **options)
    task = classification_for(train)
    limit = base.limit(0, "window")
    return TaskData(task, *(list(encode_chunks(task, part, base.tokenizer, limit)) for part in (train, dev)))


def make_config(**changes: Any) -> FinetuneConfig:
    return FinetuneConfig(**{**SETTINGS, **changes})


def weights_of(model: BertModel) -> str:
    return fingerprint(model.named_parameters())


def binary_task() -> ClassificationTask:
    return ClassificationTask(("no", "yes"))


if __name__ == "__main__":
    from bertkit.training.finetuning.run import FinetuneRun

    torch.set_num_threads(1)
    opened = open_base(sys.argv[1])
    run = FinetuneRun(opened, make_data(opened), make_config(), CPU, Path(sys.argv[2]))
    summary = run.run()
    print(json.dumps({"step": summary.step, "weights": weights_of(run.model), "scores": summary.scores}))
