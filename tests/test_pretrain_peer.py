"""bench.pretrain_peer: transformers trained from a token store, and its folder read by bertkit."""

import json
import sys
from pathlib import Path

import pytest
import torch
from bench import pretrain_peer
from bench.pretrain_peer import Peer, mask_rows, row_batches

from bertkit.corpus.store import TokenStore
from bertkit.inference.loading import load
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed
from bertkit.tasks.pretraining import IGNORED
from bertkit.tokenizer import Tokenizer
from tests.training.tiny import prepare_sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("peer")
    prepare_sample(made, 300)
    return made


def test_a_peer_is_trained_and_its_folder_is_an_ordinary_bert(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"--{name}={folder / where}" for name, where in (("store", "store"), ("tokenizer", "vocab"))]
    toy = ["--size=tiny", "--minutes=0.03", "--tune-minutes=0.01", "--rates", "1e-3", "1e-2", "--rows=8", "--workers=0"]
    command = ["peer", *places, f"--held-out={folder / 'store'}", *toy, "--device=cpu", "--eager"]
    monkeypatch.setattr(sys, "argv", [*command, "-o", str(folder / "out")])
    pretrain_peer.main()
    result = json.loads((folder / "out" / "peer.json").read_text(encoding="utf-8"))
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == result["steps"] >= 1
    assert {one["rate"] for one in result["tuning"]} == {1e-3, 1e-2}
    assert result["rate"] == result["tuning"][0]["rate"]
    assert result["tokens"] <= result["steps"] * 8 * 128
    assert 0.0 < result["mlm_loss"] < 7.0
    bert = load(folder / "out", device="cpu")
    assert bert.model.config.vocab_size == Tokenizer.load(folder / "vocab").vocab_size  # the padding is gone
    assert len(bert.fill_mask("The [MASK] is on the table.")) == 1


def test_rows_are_the_stores_pairs_without_masks_and_always_as_many(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder / "vocab")
    store = TokenStore.open(folder / "store", tokenizer)
    feed = PretrainingFeed(store, tokenizer, FeedConfig(max_length=32, tokens_per_batch=320))
    peer = Peer("tiny", folder, folder, folder, 1.0, rows=7, length=32, workers=0, device="cpu")
    batches = row_batches(peer, feed)
    for _ in range(5):
        rows = next(batches)
        assert set(rows) == {"input_ids", "token_type_ids", "attention_mask", "next_sentence_label"}
        assert rows["input_ids"].shape == (7, 32)
        assert not (rows["input_ids"] == tokenizer.mask_id).any()
        assert (rows["input_ids"][:, 0] == tokenizer.cls_id).all()
        assert set(rows["next_sentence_label"].tolist()) <= {0, 1}
    batches.close()


def test_masks_are_15_percent_of_ordinary_tokens_in_80_10_10() -> None:
    ids = torch.randint(5, 1000, (200, 128), generator=torch.Generator().manual_seed(0))
    ids[:, 0] = 2
    special = torch.zeros(1000, dtype=torch.bool)
    special[:5] = True
    masked = mask_rows({"input_ids": ids}, special, 4, 1000, torch.Generator().manual_seed(1))
    chosen = masked["labels"] != IGNORED
    assert not chosen[:, 0].any()
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert torch.equal(masked["labels"][chosen], ids[chosen])
    assert torch.equal(masked["input_ids"][~chosen], ids[~chosen])
    seen, kept = masked["input_ids"][chosen], ids[chosen]
    assert (seen == 4).float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert (seen == kept).float().mean().item() == pytest.approx(0.1, abs=0.03)
