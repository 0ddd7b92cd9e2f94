"""bench.gpu without a GPU: what is found is kept whatever happens later, and the peers do the same work with our weights."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from bench import gpu, gpu_embedding
from bench.gpu import ROWS, WORKS, Table, measure_row, peer_work, to_markdown
from bench.gpu_plot import plot
from bench.gpu_training import PEER_GROUP, PEER_STEPS, PEER_WARM, Data, Ways, padded_rows

from bertkit.corpus.store import TokenStore
from bertkit.model import trial
from bertkit.model.packed import pack
from bertkit.tasks.pretraining import IGNORED, PretrainingBatch
from bertkit.tokenizer import Tokenizer
from bertkit.training.recipe import read_recipe
from tests.training.tiny import prepare_sample

LATER = float("inf")
RATE: dict[str, Any] = {
    "way": "a",
    "tokens_per_second": 2e6,
    "spread": (1e6, 3e6),
    "model_flops": 4e14,
    "memory_gib": 5.0,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("bench")
    prepare_sample(folder, 300)
    tokenizer = Tokenizer.load(folder / "vocab")
    return Data(TokenStore.open(folder / "store", tokenizer), tokenizer, str(folder / "vocab"), workers=0)


def stored(folder: Path) -> Any:
    """All rows, without the time that each way took."""
    rows = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))["rows"]
    assert all(one.pop("took", 0.0) >= 0.0 for row in rows.values() for one in row)
    return rows


def refuse() -> dict[str, Any]:
    raise RuntimeError("first line | of\nseveral")


def test_a_way_that_fails_ends_no_other_and_all_is_on_disk_at_once(tmp_path: Path) -> None:
    table, seen = Table(tmp_path, {"device": "none"}), []

    def look() -> dict[str, Any]:
        seen.append(stored(tmp_path)["row"])
        return {"way": "c", "seconds": 1.5}

    measure_row("row", lambda: {"a": lambda: RATE, "b": refuse, "c": look}, table, LATER)
    failed = {"way": "b", "error": "RuntimeError: first line / of"}
    assert [one["way"] for one in seen[0]] == ["a", "b"]
    assert seen[0][1] == failed
    assert stored(tmp_path)["row"][1:] == [failed, {"way": "c", "seconds": 1.5}]
    lines = (tmp_path / "gpu.md").read_text(encoding="utf-8").splitlines()
    assert lines[4] == "| row | a | 2,000.0 (1,000.0 to 3,000.0) | 400 | 5 |  |"
    assert {line.count("|") for line in lines[2:]} == {7}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.json", "gpu.md"]


def test_kernels_that_fail_are_no_figure_of_their_plain_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_went_well", {})

    def fall_back() -> dict[str, Any]:
        assert trial.run_or_none("a", lambda: torch.ones(1 // 0)) is None
        return RATE

    table = Table(tmp_path, {})
    measure_row("row", lambda: {"a": fall_back, "b": fall_back}, table, LATER)
    assert ["do not run here" in one.get("error", "") for one in table.results["row"]] == [True, True]


def test_what_no_time_is_left_for_is_named(tmp_path: Path) -> None:
    table = Table(tmp_path, {})
    measure_row("late", lambda: {"a": refuse}, table, time.monotonic() - 1)
    ends = time.monotonic() + 0.05

    def slow() -> dict[str, Any]:
        time.sleep(0.1)
        return RATE

    measure_row("half", lambda: {"a": slow, "b": refuse}, table, ends)
    assert stored(tmp_path)["late"] == [{"way": "all", "error": "no time was left"}]
    assert stored(tmp_path)["half"][1] == {"way": "b", "error": "no time was left"}


def test_a_row_that_cannot_be_made_ready_is_named(tmp_path: Path) -> None:
    def make() -> Ways:
        raise ModuleNotFoundError("No module named 'peer'")

    measure_row("row", make, Table(tmp_path, {}), LATER)
    assert stored(tmp_path)["row"] == [{"way": "all", "error": "ModuleNotFoundError: No module named 'peer'"}]


def test_every_row_has_the_peer_as_people_run_it(data: Data) -> None:
    assert set(gpu.make_rows(data)) == set(ROWS)
    for name, work in WORKS.items():
        own, *others = gpu.training_ways(name, data)
        assert own == "bertkit, eight bits"
        assert "transformers compiled, dropout 0.1" in others
        assert ("transformers eager, dropout 0.1" in others) == (work.size == "base")
        is_fuller = name in ("base-128", "base-512")
        assert ("bertkit, bf16" in others) == ("transformers compiled, dropout 0" in others) == is_fuller
        assert gpu.training_ways(name, data, peers=False).keys() <= {own, "bertkit, bf16"}


def test_the_peer_of_large_updates_after_as_many_tokens_as_ours() -> None:
    ours = WORKS["large-512"]
    theirs = peer_work(ours)
    tokens = ours.tokens_per_batch * ours.micro_batches
    assert theirs.tokens_per_batch * theirs.micro_batches == tokens == 256 * 512
    assert PEER_GROUP % theirs.micro_batches == PEER_WARM % PEER_GROUP == PEER_STEPS % PEER_GROUP == 0


def test_peers_are_compiled_once_each_and_none_that_hangs_holds_up_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(gpu, "_run_quietly", asked.append)
    given = argparse.Namespace(store="s", tokenizer="t", out=Path("o"))
    gpu.compile_peers(ROWS, given)
    assert sorted(command[-2:] for command in asked) == [
        ["base-128", "0.0"],
        ["base-128", "0.1"],
        ["base-512", "0.0"],
        ["base-512", "0.1"],  # and base-512-real: its rows are as long, and as many
        ["large-512", "0.1"],
        ["small-128", "0.1"],
    ]
    monkeypatch.undo()
    monkeypatch.setattr(gpu, "COMPILING_SECONDS", 0.2)
    gpu._run_quietly([sys.executable, "-c", "import time; time.sleep(60)"])


def test_the_picture_leaves_out_what_is_no_rate(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = [
        {"way": "peer", "per_second": 2e3},
        {"way": "bertkit", "per_second": 9e3},
        {"way": "other", "error": "none"},
    ]
    picture = tmp_path / "speed.svg"
    plot({"embed-texts": found, "first-step": [{"way": "bertkit pretrain", "seconds": 9.0}]}, picture)
    drawn = picture.read_text(encoding="utf-8")
    assert all(
        f"<!-- {text} -->" in drawn for text in ("embed-texts: thousand texts a second", "peer", "bertkit", "9.0")
    )
    assert not any(f"<!-- {text} -->" in drawn for text in ("other", "bertkit pretrain"))


def test_the_recipe_of_the_first_step_is_one(data: Data, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(gpu.FIRST_STEP.format(store=data.store.folder, tokenizer=data.folder), encoding="utf-8")
    recipe = read_recipe(path)
    assert (recipe.steps, recipe.log_every, recipe.eight_bits) == (2, 1, True)
    assert not gpu.has_step(tmp_path / "journal.jsonl")


def test_rows_as_the_peer_takes_them() -> None:
    inputs = pack([[2, 5, 3], [2, 6, 7, 3]], [[0, 0, 0], [0, 0, 1, 1]])
    batch = PretrainingBatch(inputs, torch.tensor([1, 5]), torch.tensor([9, 8]), torch.tensor([0, 1]))
    rows = padded_rows(batch, 5)
    assert rows["input_ids"].tolist() == [[2, 5, 3, 0, 0], [2, 6, 7, 3, 0]]
    assert rows["token_type_ids"].tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 1, 0]]
    assert rows["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
    labels = [[IGNORED, 9, IGNORED, IGNORED, IGNORED], [IGNORED, IGNORED, 8, IGNORED, IGNORED]]
    assert rows["labels"].tolist() == labels
    full = padded_rows(batch, 5, repeated=True)
    assert full["input_ids"].tolist() == [[2, 5, 3, 2, 5], [2, 6, 7, 3, 2]]
    assert full["labels"].tolist() == labels


def test_the_peers_of_embedding_have_our_weights(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"OWN_ROWS": (6, 4), "PEER_ROWS": (2, 6), "LENGTH": 16, "PEER_BATCHES": (2, 8)}
    for name, value in {"DEVICE": torch.device("cpu"), **small}.items():
        monkeypatch.setattr(gpu_embedding, name, value)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    table = Table(tmp_path, {})
    measure_row("full", lambda: gpu_embedding.encoder_ways(data, "tiny"), table, LATER)
    measure_row("texts", lambda: gpu_embedding.text_ways(data, "tiny", 12), table, LATER)
    *others, eight, eight_too = table.results["full"]
    assert [one["way"] for one in others] == [
        "transformers eager, 2 rows",
        "transformers eager, 6 rows",
        "bertkit bf16, 6 rows",
        "bertkit bf16, 4 rows",
    ]
    assert len(table.results["texts"]) == 3
    for one in [*others, *table.results["texts"]]:
        assert one.get("min_cosine", 0.0) > 0.999, one
    assert "does not multiply in eight bits" in eight["error"] == eight_too["error"]  # not bf16 under that name
    assert "min cosine" in to_markdown(table.results, {})


def test_every_way_to_cut_has_its_turn(
    data: Data, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    from bertkit.model.kernels import tiled_products

    known = tiled_products.HALF, tiled_products.INT8, tiled_products.INT8_GELU
    small = {"DEVICE": torch.device("cpu"), "OWN_ROWS": (2,), "LENGTH": 16}
    for name, value in small.items():
        monkeypatch.setattr(gpu_embedding, name, value)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    gpu_embedding.compare_tiles(data, 0.001, rounds=1, size="tiny")
    ways = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert len(ways) > 10
    assert {f"{name} {tuple(cut)}" for name, cut in zip(("HALF", "INT8", "INT8_GELU"), known, strict=True)} <= {*ways}
    assert known == (tiled_products.HALF, tiled_products.INT8, tiled_products.INT8_GELU)
