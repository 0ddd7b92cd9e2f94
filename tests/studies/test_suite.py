"""The whole suite at toy size: every part measured once, resumed where it stopped, refused where it does not belong."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.model.config import BertConfig
from bertkit.model.dropout import set_dropout
from bertkit.studies import suite_parts
from bertkit.studies.published import FIVE
from bertkit.studies.suite import SuiteOutcome, run_suite
from bertkit.studies.suite_config import Suite, read_suite
from bertkit.studies.suite_results import SuiteResults, TaskSummary
from bertkit.studies.suite_run import TaskSource, finetune_once
from bertkit.training import precision
from tests.pages.reading import assert_self_contained
from tests.pages.test_browser import ask
from tests.studies.toy_data import open_data
from tests.training.tiny_tasks import make_base


def measure(data: Path, model: str, out: Path, **changes: Any) -> SuiteOutcome:
    given: dict[str, Any] = {"recipe": data / "suite.toml", "cache": data / "cache", "device": "cpu", "shown": False}
    return run_suite(model, out=out, data=data, **{**given, **changes})


@pytest.fixture(scope="module")
def outcome(data: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> SuiteOutcome:
    return measure(data, model, tmp_path_factory.mktemp("suite") / "report")


def test_every_part_is_there(outcome: SuiteOutcome) -> None:
    results = outcome.results
    assert not results.missing
    assert outcome.stopped_by is None
    assert set(results.untrained) == {"held-out", "BLiMP", "word-in-context"}
    assert {task.name: len(task.scores) for task in results.tasks} == dict.fromkeys(
        ["SST-2", "STS-B", "CoNLL-2003", "SQuAD"], 2
    )
    first = results.tasks[0]
    assert first.median > 0.9  # the label is the first word
    assert results.average is None  # three of the five are not in this suite
    assert results.runs["SQuAD"][0]["num_train"] == 16
    assert any("left out 1 bad row" in note for note in results.runs["SQuAD"][0]["notes"])


def test_the_reports(outcome: SuiteOutcome, tmp_path: Path) -> None:
    plain = json.loads((outcome.folder / "results.json").read_text())
    assert plain["model"]["name"] == "tiny-bert"
    assert plain["tasks"]["SST-2"]["scores"] == list(outcome.results.tasks[0].scores)
    text = (outcome.folder / "report.md").read_text()
    median = f"{100 * outcome.results.tasks[0].median:.1f}"
    for line in (
        f"| **tiny-bert** | {median} |",
        "| Google medium (8 layers, 512 wide) | 89.6 | 38.0 | 86.6 |",
        "seeds = 2",
    ):
        assert line in text
    page = (outcome.folder / "report.html").read_text()
    assert assert_self_contained(page).data["blimp"]["num_sets"] == 3
    script = """
        const text = (id) => document.getElementById(id).textContent;
        return {wide: document.documentElement.scrollWidth <= innerWidth, bars: document.querySelectorAll('#senses .bar').length,
            dots: document.querySelectorAll('.strip > i').length, ...Object.fromEntries(['verdict', 'five', 'tasks', 'held', 'blimp-said', 'senses-said'].map((id) => [id, text(id)]))};
    """
    shown = ask(page, script, tmp_path)["answer"]
    assert (shown["dots"], shown["wide"]) == (8, True)
    assert shown["bars"] == 3  # the embeddings and two layers
    assert "no average" in shown["verdict"]
    for part, figure in {
        "five": "77.3",
        "tasks": median,
        "held": "32",
        "blimp-said": "3 sets",
        "senses-said": "12 training",
    }.items():
        assert figure in shown[part]


def test_the_precision_asked_for_is_that_of_every_part(
    data: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    parts = ["held-out", "SST-2"]
    found = measure(data, model, tmp_path / "narrow", precision="bfloat16", tasks=parts, seeds=1).results
    assert (found.untrained["held-out"]["precision"], found.runs["SST-2"][0]["precision"]) == ("bfloat16", "bfloat16")
    with pytest.raises(BertkitError, match="unknown precision 'half'"):
        measure(data, model, tmp_path / "none", precision="half")


def test_finished_parts_are_not_measured_again(
    outcome: SuiteOutcome, data: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = outcome.folder / "parts" / "STS-B" / "seed-1.json"
    before = json.loads(lost.read_text())
    lost.unlink()
    done: list[Any] = []
    real = suite_parts.run_part

    def note(**arguments: Any) -> Any:
        done.append((arguments["name"], arguments["seed"]))
        return real(**arguments)

    monkeypatch.setattr(suite_parts, "run_part", note)
    again = measure(data, model, outcome.folder)
    assert done == [("STS-B", 1)]
    after = json.loads(lost.read_text())
    assert (after["score"], after["train_loss"]) == (before["score"], before["train_loss"])
    assert [task.scores for task in again.results.tasks] == [task.scores for task in outcome.results.tasks]
    more = measure(data, model, outcome.folder, seeds=3, tasks=["sst-2"]).results  # more seeds are added
    assert done[1:] == [("SST-2", 2)]
    assert [len(task.scores) for task in more.tasks] == [3, 2, 2, 2]  # what was measured before is reported too
    assert (set(more.untrained), list(more.missing)) == (set(outcome.results.untrained), [])


def test_blimp_goes_on_where_it_was(outcome: SuiteOutcome, data: Path, model: str, tmp_path: Path) -> None:
    sets = outcome.results.untrained["BLiMP"]["sets"]
    known = {**sets[0], "accuracy": 0.123}
    suite_parts.write_json(tmp_path / "parts" / "BLiMP-so-far.json", [known])
    found = measure(data, model, tmp_path, tasks=["blimp"]).results.untrained["BLiMP"]["sets"]
    assert found == [known, *sets[1:]]
    assert not (tmp_path / "parts" / "BLiMP-so-far.json").exists()


def test_a_folder_holds_one_model_and_one_setting(
    outcome: SuiteOutcome, data: Path, model: str, tmp_path: Path
) -> None:
    make_base(tmp_path / "other", initializer_range=0.3)
    with pytest.raises(BertkitError, match="holds results with another model"):
        measure(data, str(tmp_path / "other"), outcome.folder)
    with pytest.raises(BertkitError, match="limit = None, not 4"):
        measure(data, model, outcome.folder, limit=4)
    changed = tmp_path / "suite.toml"
    changed.write_text((data / "suite.toml").read_text().replace("5e-3", "4e-3"))
    with pytest.raises(BertkitError, match="settings of SST-2"):
        measure(data, model, outcome.folder, recipe=changed)
    with pytest.raises(BertkitError, match="at least 2"):
        measure(data, model, tmp_path / "out", limit=1)


def test_a_folder_holds_results_on_one_state_of_the_data(
    outcome: SuiteOutcome, data: Path, model: str, tmp_path: Path
) -> None:
    moved = tmp_path / "data"
    shutil.copytree(data, moved, ignore=shutil.ignore_patterns("cache", "toy.tar.xz"))
    shutil.copytree(data / "made" / "toy", moved / "tasks" / "toy")  # unpacked
    text = (moved / "corpus" / "validation.txt").read_bytes()
    (moved / "corpus" / "validation.txt").unlink()
    (moved / "corpus" / "validation.txt.gz").write_bytes(gzip.compress(text))  # packed
    again = measure(moved, model, outcome.folder)
    assert [task.scores for task in again.results.tasks] == [task.scores for task in outcome.results.tasks]
    with (moved / "tasks" / "toy" / "dev.tsv").open("a", encoding="utf-8") as file:
        file.write("w1 w2\tyes\n")
    with pytest.raises(BertkitError, match=r"holds results of SST-2 on other data than .*data has; give the same"):
        measure(moved, model, outcome.folder)
    assert not measure(moved, model, outcome.folder, tasks=["STS-B", "BLiMP"]).results.missing  # theirs is the same
    with pytest.raises(BertkitError, match="SST-2"):  # and what was known of others is not forgotten
        measure(moved, model, outcome.folder, tasks=["SST-2"])


def test_worker_processes_give_the_same_scores(outcome: SuiteOutcome, data: Path, model: str, tmp_path: Path) -> None:
    found = measure(data, model, tmp_path, workers=2, tasks=["SST-2", "word-in-context"], seeds=1).results
    assert found.untrained["word-in-context"] == outcome.results.untrained["word-in-context"]
    assert found.tasks[0].scores[0] == outcome.results.tasks[0].scores[0]


def test_a_model_without_heads_and_a_limit_are_told(data: Path, tmp_path: Path) -> None:
    make_base(tmp_path / "bare", heads=())
    found = measure(
        data, str(tmp_path / "bare"), tmp_path / "out", tasks=["held-out", "BLiMP", "SST-2"], limit=6, seeds=1
    )
    notes = found.results.notes()
    assert notes[0] == "Measured on CPU in float32: SST-2."
    assert notes[1].startswith("Cut to 6 examples of each set")
    assert "BLiMP: not measured, the checkpoint has no MLM head." in notes
    assert found.results.runs["SST-2"][0]["num_train"] == 6
    assert "BLiMP" not in (tmp_path / "out" / "report.md").read_text().split("## ", 1)[1].split("Settings")[0]


def test_a_limit_that_leaves_one_label_is_told(data: Path, model: str, tmp_path: Path) -> None:
    moved = tmp_path / "data"
    shutil.copytree(data, moved, ignore=shutil.ignore_patterns("cache", "toy.tar.xz"))
    shutil.copytree(data / "made" / "toy", moved / "tasks" / "toy")
    (moved / "tasks" / "toy" / "train.tsv").write_text("text\tlabel\nw1\tyes\nw2\tyes\nw3\tno\n")
    with pytest.raises(BertkitError, match=r"^SST-2: .* or raise --limit: 2 examples may be too few$"):
        measure(moved, model, tmp_path / "out", tasks=["SST-2"], limit=2, seeds=1)


def test_the_average_of_five_is_of_medians() -> None:
    scores = {"SST-2": (0.9, 0.8, 0.1), "CoLA": (0.3,), "MRPC": (0.8,), "RTE": (0.6,), "STS-B": (0.7,)}
    tasks = [TaskSummary(name, "m", "dev", found, (), {}, 0.0) for name, found in scores.items()]
    results = SuiteResults({}, Suite(), {}, tasks, {}, None, [])
    assert results.average == pytest.approx(100 * (0.8 + 0.3 + 0.8 + 0.6 + 0.7) / len(FIVE))
    assert tasks[0].deviation == pytest.approx(0.43588989)


def test_dropout_is_the_suites_whatever_the_checkpoint_says(data: Path, tmp_path: Path) -> None:
    make_base(tmp_path / "dry", hidden_dropout=0.0, attention_dropout=0.0)
    model = load(tmp_path / "dry", device="cpu").model
    set_dropout(model, 0.25)
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {layer.attention_dropout for layer in model.encoder.layers} == {0.25}
    assert isinstance(model.config, BertConfig)
    assert (model.config.hidden_dropout, model.config.attention_dropout) == (0.25, 0.25)
    task = read_suite(data / "suite.toml").task("SST-2")
    source = TaskSource(str(tmp_path / "dry"), None, open_data(data), task)
    losses = [finetune_once(source, 0, rate, "cpu", lambda share: None)["train_loss"] for rate in (0.0, 0.0, 0.4)]
    assert losses[0] == losses[1] != losses[2]


def test_the_weights_are_measured_and_not_an_export_of_them(data: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path / "exported")
    (tmp_path / "exported" / "onnx").mkdir()
    (tmp_path / "exported" / "onnx" / "int8_channels.safetensors").touch()  # what asks for eight bits elsewhere
    spec = suite_parts.SuiteSpec(
        str(base.path), open_data(data), read_suite(data / "suite.toml"), tmp_path, device="cpu"
    )
    assert spec.open().engine == "torch"
