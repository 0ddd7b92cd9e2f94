"""Heads on features: logistic regression equal to the reference, a BiLSTM that learns, layers weighed, folders."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.model.feature_heads import BiLstmHead, HeadConfig, LogisticHead, make_head
from bertkit.tasks.feature_heads import TrainedHead, class_probabilities, load_trained_head, sentence_logits
from bertkit.tasks.features import FeatureRecipe, FeatureTable, Per
from bertkit.training.heads import classifier as logistic
from bertkit.training.heads.classifier import LogisticTraining, train_classifier
from bertkit.training.heads.tagger import TaggerTraining, epoch_line, train_tagger
from bertkit.training.shuffling import ShuffledSteps

SMALL = TaggerTraining(epochs=12, batch_size=8, learning_rate=1e-2, hidden_size=12, dropout=0.0)


def table(
    vectors: NDArray[Any], labels: Sequence[str | None], ids: list[int] | None = None, **recipe: Any
) -> FeatureTable:
    per: Per = "text" if ids is None else "word"
    made = FeatureRecipe("there", "abc", "last", per, vectors.shape[1], **recipe)
    numbers = np.asarray(ids if ids is not None else range(len(vectors)), dtype=np.int64)
    return FeatureTable(made, vectors, labels, [f"t{row}" for row in range(len(vectors))], numbers)


def texts(seed: int, rows: int = 120, width: int = 6) -> FeatureTable:
    """Three classes, linear but for noise."""
    rng = np.random.default_rng(seed)
    vectors = (rng.normal(size=(rows, width)) * [1, 5, 0.1, 2, 1, 1] + 3).astype(np.float32)
    hidden = np.random.default_rng(9).normal(size=(width, 3))
    scores = (vectors - 3) / [1, 5, 0.1, 2, 1, 1] @ hidden + rng.normal(size=(rows, 3))
    return table(vectors, [f"c{best}" for best in scores.argmax(1)])


def sentences(seed: int, num: int = 150, stacked: int = 1) -> FeatureTable:
    """Words of random vectors; the sign of one number begins an entity, which then lasts two words.

    With several layers, only the second holds that number; the others are noise.
    """
    rng = np.random.default_rng(seed)
    vectors, labels, ids = [], [], []
    for sentence in range(num):
        length = int(rng.integers(2, 7))
        words = rng.normal(size=(length, stacked, 4)).astype(np.float32)
        begins = rng.random(length) < 0.3
        words[:, min(1, stacked - 1), 0] = np.where(begins, 3.0, -3.0)
        tags = ["B-X" if begin else "O" for begin in begins]
        tags = [("I-X" if tag == "O" and n and tags[n - 1] == "B-X" else tag) for n, tag in enumerate(tags)]
        vectors.append(words.reshape(length, -1))
        labels += tags
        ids += [sentence] * length
    return table(np.concatenate(vectors), labels, ids, num_stacked=stacked, weighted=stacked > 1)


@pytest.mark.parametrize("l2", [0.1, 10.0])
def test_logistic_regression_equals_the_reference(l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    monkeypatch.setattr(logistic, "SLICE_FLOATS", 100)  # many slices add up to the whole
    train, dev = texts(0), texts(1)
    trained = train_classifier(train, dev, LogisticTraining(l2, tolerance=1e-9))
    scaler = StandardScaler().fit(train.vectors)
    reference = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=2000).fit(
        scaler.transform(train.vectors), train.labels
    )
    assert isinstance(trained.head, LogisticHead)
    ours = class_probabilities(trained.head, dev.vectors)
    theirs = reference.predict_proba(scaler.transform(dev.vectors))
    assert list(trained.config.labels) == list(reference.classes_)
    assert np.abs(ours - theirs).max() < 1e-3
    assert trained.scores["accuracy"] == pytest.approx(reference.score(scaler.transform(dev.vectors), dev.labels))
    assert trained.scores["accuracy"] > 0.6


def test_logistic_regression_is_deterministic_and_reports_its_loss() -> None:
    losses: list[float] = []
    one = train_classifier(texts(0), on_step=lambda call, loss: losses.append(loss))
    other = train_classifier(texts(0))
    assert losses[-1] < losses[0]
    for name, tensor in one.head.state_dict().items():
        assert torch.equal(tensor, other.head.state_dict()[name])


def test_a_constant_feature_does_no_harm() -> None:
    train = texts(0)
    train.vectors[:, 2] = 7.0
    trained = train_classifier(train, train)
    assert trained.scores["accuracy"] > 0.6
    assert all(bool(tensor.isfinite().all()) for tensor in trained.head.state_dict().values())


def test_weights_of_layers_are_learned_for_texts() -> None:
    useful = texts(0)
    noise = np.random.default_rng(5).normal(size=useful.vectors.shape).astype(np.float32)
    stacked = np.concatenate([noise, useful.vectors], axis=1)
    trained = train_classifier(table(stacked, list(useful.labels), num_stacked=2, weighted=True))
    assert trained.layer_weights is not None
    assert trained.layer_weights[1] > 0.8
    assert sum(trained.layer_weights) == pytest.approx(1.0)


def test_the_bilstm_learns_what_needs_the_word_before() -> None:
    seen: list[str] = []
    trained = train_tagger(sentences(0), sentences(1), SMALL, lambda *figures: seen.append(epoch_line(*figures)))
    assert trained.scores["f1"] > 0.95
    assert trained.config.labels == ("O", "B-X", "I-X")
    assert len(seen) == SMALL.epochs
    assert seen[0].startswith("epoch 1: loss ")
    assert max(float(line.split("f1 ")[1].split(",")[0]) for line in seen) == pytest.approx(
        trained.scores["f1"], abs=1e-4
    )


def test_the_bilstm_weighs_layers() -> None:
    trained = train_tagger(sentences(0, stacked=3), sentences(1, stacked=3), SMALL)
    assert trained.layer_weights is not None
    assert np.argmax(trained.layer_weights) == 1
    assert trained.scores["f1"] > 0.9


def test_the_same_seed_gives_the_same_tagger() -> None:
    first, second = (train_tagger(sentences(0), None, SMALL) for _ in range(2))
    for name, tensor in first.head.state_dict().items():
        assert torch.equal(tensor, second.head.state_dict()[name])
    assert first.scores == {}


def test_sentences_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    head: Any = make_head(HeadConfig("bilstm", ("O", "B-X"), 4, hidden_size=5)).eval()
    vectors = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    lengths = [3, 1, 6] * 20
    together = list(sentence_logits(head, vectors, lengths))
    start = 0
    for length, logits in zip(lengths, together, strict=True):
        (alone,) = sentence_logits(head, vectors[start : start + length], [length])
        assert np.abs(alone - logits).max() < 1e-5
        start += length


def test_a_folder_gives_the_head_back(tmp_path: Path) -> None:
    train = sentences(0, num=6)
    trained = train_tagger(train, train, TaggerTraining(epochs=1, hidden_size=4))
    folder = trained.save(tmp_path / "head")
    assert {path.name for path in folder.iterdir()} == {"head.json", "head.safetensors"}
    loaded = load_trained_head(folder)
    assert (loaded.config, loaded.recipe, loaded.scores) == (trained.config, trained.recipe, trained.scores)
    assert isinstance(loaded.head, BiLstmHead)
    assert isinstance(trained.head, BiLstmHead)
    (ours,) = sentence_logits(loaded.head, train.vectors[:4], [4])
    (theirs,) = sentence_logits(trained.head, train.vectors[:4], [4])
    assert np.array_equal(ours, theirs)


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match=r"holds no head \(head.json\)"):
        load_trained_head(tmp_path)
    folder = train_classifier(texts(0)).save(tmp_path / "head")
    described = json.loads((folder / "head.json").read_text())
    (folder / "head.json").write_text(json.dumps({**described, "format": 99}))
    with pytest.raises(BertkitError, match="another version"):
        load_trained_head(folder)
    described["head"]["labels"].append("one more")
    (folder / "head.json").write_text(json.dumps(described))
    with pytest.raises(BertkitError, match=r"does not fit head.json"):
        load_trained_head(folder)
    (folder / "head.json").write_text("{")
    with pytest.raises(BertkitError, match=r"head.json is damaged"):
        load_trained_head(folder)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["a", "a", "a"], "all texts have the label 'a'"),
        (["a", None, "b"], r"row 2 \('t1'\) has no label"),
        ([], "no texts to train on"),
    ],
)
def test_texts_that_cannot_be_learned(labels: list[str | None], said: str) -> None:
    with pytest.raises(BertkitError, match=said):
        train_classifier(table(np.ones((len(labels), 2), np.float32), labels))


def test_features_that_do_not_belong_together() -> None:
    train, dev = texts(0), texts(1)
    other = FeatureTable(
        FeatureRecipe("x", "other", "last", "text", 6), dev.vectors, dev.labels, dev.texts, dev.text_ids
    )
    with pytest.raises(BertkitError, match="was made with encoder other, not abc"):
        train_classifier(train, other)
    with pytest.raises(BertkitError, match="'c9' does not occur in training"):
        train_classifier(train, table(dev.vectors[:1], ["c9"]))
    with pytest.raises(BertkitError, match="needs the features of words"):
        train_tagger(train)
    with pytest.raises(BertkitError, match="do not divide into 4 layers"):
        HeadConfig("logistic", ("a", "b"), 6, num_stacked=4)


def test_every_epoch_sees_every_example_once() -> None:
    order = ShuffledSteps(10, 4, seed=3)
    epochs = [np.concatenate([order.indices(3 * epoch + step) for step in range(3)]) for epoch in range(2)]
    assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
    with pytest.raises(BertkitError, match="in one process"):
        order.check_world(2)
    with pytest.raises(BertkitError, match="no examples"):
        ShuffledSteps(0, 4)


def test_a_trained_head_without_layers_to_weigh() -> None:
    trained = TrainedHead(make_head(HeadConfig("logistic", ("a", "b"), 2)), texts(0).recipe)
    assert trained.layer_weights is None


@pytest.mark.parametrize("stopped_at", ["bertkit.tasks.feature_heads.write_safetensors", "pathlib.Path.replace"])
def test_a_stopped_save_leaves_no_head_that_is_half_of_another(
    stopped_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train_classifier(texts(0)).save(tmp_path / "head")
    described = (first / "head.json").read_text()
    real, is_early, calls = Path.replace, stopped_at.endswith("write_safetensors"), iter([False, True])

    def stop(*arguments: Any) -> None:
        if is_early or next(calls):
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(stopped_at, stop)
    with pytest.raises(KeyboardInterrupt):
        train_classifier(texts(1)).save(first)
    monkeypatch.undo()
    assert not list(first.glob(".*.part"))
    if is_early:
        assert (first / "head.json").read_text() == described
        load_trained_head(first)
    else:
        with pytest.raises(BertkitError):
            load_trained_head(first)
