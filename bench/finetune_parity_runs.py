"""One run of the comparison in bench/finetune_parity.py: a side, a task and a seed in, scores out."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.finetune_parity_peer import features_of, score_peer, start_peer, train_peer
from bertkit.studies.suite_config import FinetunedTask, read_suite
from bertkit.studies.suite_run import ShareWatcher, TaskSource, prepared
from bertkit.tasks.classification.task import ClassificationTask, ClassPrediction
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.data import Prepared
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.world import choose_device

SIDES = ("bertkit", "transformers")
EPSILON = 1e-8  # of Adam, the default of both torch and transformers
RATE = 5e-5
EPOCHS = {"SST-2": 1, "CoLA": 3, "MRPC": 3, "RTE": 4, "STS-B": 4, "CoNLL-2003": 3, "SQuAD": 2}


@dataclass(frozen=True)
class Setting:
    """What a run is, but for its side and seed."""

    source: TaskSource
    device: str

    def config(self, seed: int, given: Prepared) -> FinetuneConfig:
        """The same for both sides."""
        config = self.source.task.config(seed, given.base.encoder.max_positions, self.device)
        return replace(config, epsilon=EPSILON)


def parity_task(name: str) -> FinetunedTask:
    """A task's files as in the suite, with the settings of this comparison."""
    return replace(read_suite().task(name), learning_rate=RATE, epochs=EPOCHS[name])


def run_one(setting: Setting, side: str, seed: int, progress: Callable[[float], None]) -> dict[str, Any]:
    """Train, and score at the last step."""
    given = prepared(setting.source)
    config, device = setting.config(seed, given), choose_device(setting.device)
    if side == "bertkit":
        run = FinetuneRun(given.base, given.data, config, device, None, ShareWatcher(progress))
        summary = run.run()
        steps, scores = summary.step, summary.scores
    else:
        torch.manual_seed(seed)
        model = start_peer(str(given.base.path), given.task, given.task.configure(given.base.encoder))
        features = [features_of(given.task, item) for chunk in given.data.train for item in chunk.items]
        steps = train_peer(model, features, config, device, progress)
        scores = score_peer(model, given, device)
    metric = setting.source.task.metric
    return {
        "task": setting.source.task.name,
        "side": side,
        "seed": seed,
        "metric": metric,
        "score": scores[metric],
        "scores": scores,
        "majority": majority(given, metric),
        "steps": steps,
        "num_train": given.data.num_train,
    }


def majority(given: Prepared, metric: str) -> float:
    """The score of always saying the most frequent class; 0 where there are no classes."""
    task = given.task
    if not isinstance(task, ClassificationTask) or task.problem != "single_label":
        return 0.0
    ((most, _),) = Counter(str(example.label) for example in given.train).most_common(1)
    scorer = task.scorer()
    for example in given.dev:
        scorer.add(example, ClassPrediction(most, None))
    return scorer.scores()[metric]
