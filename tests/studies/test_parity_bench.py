"""bench/finetune_parity at toy size: both sides compute the same loss of the same weights, and the table is right."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench.finetune_parity import Comparison, compare, main, parity_table, read_results
from bench.finetune_parity_peer import features_of, pad, peer_logits, start_peer

from bertkit.model.formats import load_model, save_model
from bertkit.studies.suite_config import read_suite
from bertkit.studies.suite_run import TaskSource
from bertkit.tasks.task import collate
from tests.studies.toy_data import open_data
from tests.training.tiny_tasks import make_base

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["SST-2", "STS-B", "CoNLL-2003", "SQuAD"])
@torch.inference_mode()
def test_both_sides_say_and_lose_the_same(name: str, data: Path, model: str, tmp_path: Path) -> None:
    given = TaskSource(model, None, open_data(data), read_suite(data / "suite.toml").task(name)).prepare()
    task, wanted = given.task, given.task.configure(given.base.encoder)
    own, _ = load_model(Path(model), heads=wanted.heads, labels=wanted.labels or None)
    save_model(own, tmp_path)
    peer = start_peer(str(tmp_path), task, wanted).eval()
    items = [item for item in given.data.train[0].items[:4] if task.num_targets(item)]
    if name == "SQuAD":  # transformers' softmax reads padding too, so sequences of one length are compared
        items = [item for item in items if len(item.ids) == len(items[0].ids)]
    batch = collate(items)
    logits = task.logits(own, batch)
    loss = task.loss_sum(logits, batch) / sum(task.num_targets(item) for item in items)
    assert float(peer(**pad([features_of(task, item) for item in items])).loss) == pytest.approx(float(loss), rel=1e-4)
    said = np.concatenate(list(peer_logits(peer, task, items, CPU)))
    np.testing.assert_allclose(said, logits.numpy(), atol=1e-5)


def test_means_are_compared_with_twice_their_standard_error() -> None:
    scores = {"bertkit": [80.0, 82.0], "transformers": [81.0, 83.0]}
    one = Comparison("RTE", "accuracy", 70.0, scores)
    assert one.difference == -1.0
    assert one.standard_error == pytest.approx(np.sqrt(2 / 2 + 2 / 2))
    assert one.agrees
    assert one.is_learned
    assert not Comparison("RTE", "accuracy", 81.0, {**scores, "transformers": [99.0, 99.0]}).agrees
    assert not Comparison("RTE", "accuracy", 80.0, scores).is_learned


def runs(scores: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {"task": "RTE", "side": side, "seed": seed, "metric": "accuracy", "score": score, "majority": 0.5}
        for side, found in scores.items()
        for seed, score in enumerate(found)
    ]


def test_only_seeds_of_both_sides_are_compared() -> None:
    found = runs({"bertkit": [0.6, 0.7, 0.8], "transformers": [0.6, 0.7]})
    (one,) = compare(found)
    assert one.scores == {"bertkit": [60.0, 70.0], "transformers": [60.0, 70.0]}
    assert "| RTE | accuracy | 65.00 | 65.00 | +0.00 | 14.14 | 50.0 | 60.0, 70.0 | 60.0, 70.0 |" in parity_table(found)


def test_it_runs_from_one_command_and_goes_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tmp_path / "data" / "tasks" / "glue" / "RTE"
    tasks.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = (data / "made" / "toy" / f"{split}.tsv").read_text().splitlines()[1:]
        lines = [
            "index\tsentence1\tsentence2\tlabel",
            *(f"{i}\t{row.replace(chr(9), chr(9) + 'w3' + chr(9))}" for i, row in enumerate(rows)),
        ]
        (tasks / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    make_base(tmp_path / "data" / "model")
    out = tmp_path / "out" / "results.json"
    given = ["--data", str(tmp_path / "data"), "--json", str(out), "--device", "cpu", "--tasks", "RTE", "--limit", "16"]
    monkeypatch.setattr(sys, "argv", ["parity", *given, "--seeds", "1"])
    main()
    first = json.loads(out.read_text())["runs"]
    assert {(run["side"], run["seed"]) for run in first} == {("bertkit", 0), ("transformers", 0)}
    out.rename(tmp_path / "data" / "results.json")  # as it is carried to another machine
    monkeypatch.setattr(sys, "argv", ["parity", *given, "--seeds", "2"])
    main()
    again = json.loads(out.read_text())["runs"]
    assert again[:2] == first
    assert len(again) == 4
    assert "| RTE | accuracy |" in out.with_suffix(".md").read_text()
    assert len(read_results([out, tmp_path / "data" / "results.json"])["runs"]) == 4
    monkeypatch.setattr(sys, "argv", ["parity", *given, "--seeds", "3", "--minutes", "0"])
    main()
    assert len(json.loads(out.read_text())["runs"]) == 4  # time was up
