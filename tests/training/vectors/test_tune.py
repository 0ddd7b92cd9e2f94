"""Tuning on pairs: losses equal to the reference's, false negatives left out, better cosines, folders others load."""

import math
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertkit
from bertkit.errors import BertkitError, LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.model.formats.sentence_transformers import SentenceStyle
from bertkit.tasks.sentence_pairs import PairExample
from bertkit.tokenizer.fitting import Limit
from bertkit.training.shuffling import ShuffledSteps
from bertkit.training.vectors.config import VectorTraining
from bertkit.training.vectors.data import PairFeed, encode_pairs, score_pairs
from bertkit.training.vectors.loss import contrastive_loss, cosent_loss, mse_loss
from bertkit.training.vectors.tune import tune_vectors
from tests.training.tiny import recipe
from tests.training.tiny import run as pretrain

SUBJECTS = ["The dog", "A cat", "My friend", "The old man", "A bird", "The child"]
PREDICATES = ["sleeps in the garden", "drinks milk", "reads a book", "runs home", "sings by the river"]


@pytest.fixture(scope="module")
def bert() -> Bert:
    return untrained(0, max_positions=48, initializer_range=0.1)


@pytest.fixture(scope="module")
def folder(bert: Bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert.save(tmp_path_factory.mktemp("base") / "model")


def scored_pairs() -> list[PairExample]:
    """Alike is who does the same, whoever it is: an untrained encoder sees the subject as much as the rest."""
    texts = [(subject, predicate) for subject in SUBJECTS for predicate in PREDICATES]
    return [
        PairExample(" ".join(a), " ".join(b), 5.0 * (a[1] == b[1]))
        for n, a in enumerate(texts)
        for b in texts[n + 1 :: 3]
    ]


def paraphrases() -> list[PairExample]:
    return [
        PairExample(f"{a} {predicate}", f"{b} {predicate}") for predicate in PREDICATES for a, b in pairwise(SUBJECTS)
    ]


def test_losses_equal_the_reference() -> None:
    from sentence_transformers.sentence_transformer import losses

    torch.manual_seed(0)
    a, b, negative = (torch.randn(6, 5) for _ in range(3))
    scores = torch.tensor([0.1, 0.9, 0.4, 0.4, 1.0, 0.0])
    model: Any = torch.nn.Identity()
    none = torch.zeros(6, 12, dtype=torch.bool)

    def of(loss: Any, labels: Any, *vectors: Any) -> float:
        return float(loss.compute_loss_from_embeddings(list(vectors), labels))

    ranking = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    expected = of(ranking, None, a, b, negative)
    assert contrastive_loss(a, torch.cat([b, negative]), none).item() == pytest.approx(expected, rel=1e-5)
    assert contrastive_loss(a, b, none[:, :6]).item() == pytest.approx(of(ranking, None, a, b), rel=1e-5)
    cosines = torch.cosine_similarity(a, b)
    expected = of(losses.CoSENTLoss(model, scale=20.0), scores, a, b)
    assert cosent_loss(cosines, scores).item() == pytest.approx(expected, rel=1e-5)
    expected = of(losses.CosineSimilarityLoss(model), scores, a, b)
    assert mse_loss(cosines, scores).item() == pytest.approx(expected, rel=1e-5)


def test_the_ranking_loss_by_hand() -> None:
    cosines, scores = torch.tensor([0.5, 0.25]), torch.tensor([0.0, 1.0])  # the pair less alike has the larger cosine
    assert cosent_loss(cosines, scores).item() == pytest.approx(math.log(1 + math.exp(20 * 0.25)))
    assert cosent_loss(cosines, torch.tensor([1.0, 1.0])).item() == 0.0


def test_what_means_the_same_is_no_negative(bert: Bert) -> None:
    pairs = [PairExample("a", "b"), PairExample("c", "b", negative="a"), PairExample("d", "a")]
    data = encode_pairs(pairs, bert.tokenizer, Limit(48, "truncate"))
    feed = PairFeed(data, ShuffledSteps(3, 3))
    batch = feed.micro_batch(0)
    names = {0: "a", 1: "c", 2: "d", 3: "b"}  # texts are numbered as they come, column by column
    first, candidates = ([names[number] for number in ids.tolist()] for ids in (batch.first, batch.candidates))
    own = dict(zip(first, candidates, strict=False))
    assert own == {"a": "b", "c": "b", "d": "a"}
    for row, text in enumerate(first):
        for column, candidate in enumerate(candidates):
            is_own = column == row
            assert batch.known[row, column].item() == (not is_own and candidate in (own[text], text))
    assert feed.counts(0).num_tokens == batch.inputs.num_tokens
    assert len(data.texts) == 4


@pytest.mark.parametrize("loss", ["cosent", "mse"])
def test_scores_are_learned(loss: Any, folder: Path) -> None:
    said: list[str] = []
    tuned = tune_vectors(folder, scored_pairs(), loss=loss, learning_rate=1e-3, epochs=2, device="cpu", say=said.append)
    assert tuned.metric == "spearman"
    assert tuned.score > tuned.before + 0.2
    assert said[0].startswith("one file only:")
    assert [row["epoch"] for row in tuned.history] == [0, 1, 2]
    assert not tuned.model.training


def test_paraphrases_are_learned_and_saved_for_others(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    pairs = paraphrases()
    tuned = tune_vectors(
        folder, pairs[:20], pairs[20:], learning_rate=1e-3, epochs=3, batch_size=10, device="cpu", normalize=True
    )
    assert tuned.metric == "retrieval"
    assert tuned.loss == "contrastive"
    saved = tuned.save(tmp_path / "tuned")
    texts = ["The dog runs home", "A bird sings", "", "milk " * 30]
    loaded = bertkit.load(saved, device="cpu")
    assert loaded.style == SentenceStyle("mean", True, 48)
    assert loaded.config.heads == ("pooler",)
    theirs = SentenceTransformer(str(saved), device="cpu")
    assert np.abs(loaded.embed(texts) - theirs.encode(texts)).max() < 1e-5
    assert "retrieval on dev" in (saved / "README.md").read_text()


def test_the_best_epoch_is_kept(folder: Path, bert: Bert) -> None:
    pairs = scored_pairs()
    tuned = tune_vectors(folder, pairs[:100], pairs[100:], learning_rate=1e-3, epochs=3, device="cpu", loss="cosent")
    again = encode_pairs(pairs[100:], bert.tokenizer, Limit(48, "truncate"))
    assert score_pairs(tuned.model, again, "mean")["spearman"] == pytest.approx(tuned.score, abs=1e-6)


def test_the_same_seed_gives_the_same_vectors(folder: Path) -> None:
    pairs = paraphrases()
    first, second = (tune_vectors(folder, pairs, pairs, epochs=1, device="cpu", seed=5) for _ in range(2))
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name])


def test_a_run_stopped_and_resumed_is_the_run_never_stopped(folder: Path, tmp_path: Path) -> None:
    pairs = paraphrases()
    settings: dict[str, Any] = {"epochs": 3, "device": "cpu", "batch_size": 8, "learning_rate": 1e-3}
    whole = tune_vectors(folder, pairs, pairs, **settings)

    def stop(line: str) -> None:
        if line.startswith("epoch 1"):
            os.kill(os.getpid(), signal.SIGTERM)

    said: list[str] = []
    with pytest.raises(BertkitError, match="stopped by SIGTERM; the same command goes on"):
        tune_vectors(folder, pairs, pairs, out=tmp_path, say=stop, **settings)
    with pytest.raises(BertkitError, match="holds another run"):
        tune_vectors(folder, pairs[1:], pairs, out=tmp_path, **settings)
    again = tune_vectors(folder, pairs, pairs, out=tmp_path, say=said.append, **settings)
    assert any(line.startswith("goes on after step") for line in said)
    assert again.history == whole.history
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    again.save(tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_folders_of_others_are_not_taken(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="is the checkpoint itself"):
        tune_vectors(folder, paraphrases(), paraphrases(), out=folder, device="cpu")
    pretrain(tmp_path / "run", recipe(steps=1))
    with pytest.raises(BertkitError, match="holds another run"):
        tune_vectors(folder, paraphrases(), paraphrases(), out=tmp_path / "run", device="cpu")


def test_the_report_has_curves_and_the_pairs_judged_worst(folder: Path, tmp_path: Path) -> None:
    pairs = scored_pairs()
    tuned = tune_vectors(folder, pairs, pairs[:40], epochs=2, device="cpu", loss="cosent")
    report = tuned.report
    assert report.scores == {"spearman": tuned.score}
    assert report.baseline_scores == {"spearman": tuned.before}
    assert len(report.losses) == 2 * -(-len(pairs) // 32)
    assert [point.step for point in report.evaluations] == [0, len(report.losses) // 2, len(report.losses)]
    assert len(report.mistakes) == 30
    assert report.mistakes[0].gold in ("score 0", "score 5")
    off = [mistake.loss or 0.0 for mistake in report.mistakes]
    assert off == sorted(off, reverse=True)
    page = (tuned.save(tmp_path / "saved") / "report.html").read_text()
    assert "sentence vectors" in page
    nearest = tune_vectors(folder, paraphrases(), paraphrases(), epochs=1, device="cpu", learning_rate=1e-6)
    assert len(nearest.report.mistakes) == round((1 - nearest.score) * 25)
    assert all(mistake.gold != mistake.predicted for mistake in nearest.report.mistakes)


def test_what_was_tuned_before_keeps_its_style(bert: Bert, tmp_path: Path) -> None:
    Bert(bert.model, bert.tokenizer, style=SentenceStyle("cls", True, 40)).save(tmp_path)
    pairs = paraphrases()
    assert tune_vectors(tmp_path, pairs, pairs, epochs=1, device="cpu").style == SentenceStyle("cls", True, 40)
    asked = tune_vectors(tmp_path, pairs, pairs, epochs=1, device="cpu", pooling="max", max_length=20)
    assert asked.style == SentenceStyle("max", True, 20)


def test_high_scores_count_as_paraphrases(folder: Path) -> None:
    said: list[str] = []
    tune_vectors(folder, scored_pairs(), epochs=1, device="cpu", loss="contrastive", say=said.append)
    assert any("have a high score and count as meaning the same" in line for line in said)


def test_long_texts_are_cut_and_told(folder: Path) -> None:
    pairs = [*paraphrases(), PairExample("the dog " * 60, "dogs")]
    with pytest.warns(LongTextWarning, match="1 of"):
        tune_vectors(folder, pairs, paraphrases(), epochs=1, device="cpu")
    with pytest.raises(BertkitError, match="has 122 tokens"):
        tune_vectors(folder, pairs, paraphrases(), epochs=1, device="cpu", long="error")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 1}, "two pairs a batch"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"long": "window"}, "cut .truncate. or refused"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BertkitError, match=said):
        VectorTraining(**changes)
