"""Word in context: the marked word's own vectors, thresholds that no other beats, and a test set that chooses nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.studies.word_in_context import (
    SensePair,
    choose_threshold,
    find_marked,
    marked_vectors,
    read_sense_pairs,
    score_layers,
    sense_cosines,
    summarise_senses,
)

TEXTS = ["He didn't receive fair treatment", "Fun fair in New York city this summer", "fair"]
SPANS = [(18, 22), (4, 8), (0, 4)]


def test_vectors_are_those_of_the_marked_word_in_every_layer(bert: Bert) -> None:
    found = marked_vectors(bert, TEXTS, SPANS)
    assert found.shape == (3, 4, 32)
    for text, span, layers in zip(TEXTS, SPANS, found, strict=True):
        for layer, vector in enumerate(layers):
            (expected,) = bert.word_vectors(text, layer=layer, spans=[span])
            np.testing.assert_allclose(vector, expected.vector, atol=1e-5)


def test_cosines_of_pairs(bert: Bert) -> None:
    pairs = [
        SensePair((TEXTS[0], TEXTS[1]), (SPANS[0], SPANS[1]), False),
        SensePair((TEXTS[0],) * 2, (SPANS[0],) * 2, True),
    ]
    a, b = (marked_vectors(bert, [text], [span])[0, -1] for text, span in zip(TEXTS[:2], SPANS[:2], strict=True))
    found = sense_cosines(bert, pairs)
    assert found[0, -1] == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-5)
    np.testing.assert_allclose(found[1], 1.0, atol=1e-5)


def test_a_word_beyond_the_model_is_found_in_a_window(bert: Bert) -> None:
    text = "dog " * 90 + "fair"
    with pytest.warns(UserWarning, match="windows"):
        ((encoding, rows),) = find_marked(bert.tokenizer, [text], [(360, 364)], 64)
    assert [text[slice(*encoding.offsets[row])] for row in rows] == ["fair"]
    with pytest.raises(BertkitError, match="no token stands in characters 3 to 4"):
        find_marked(bert.tokenizer, ["dog fair"], [(3, 4)], 64)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_is_better(rows: list[tuple[float, bool]]) -> None:
    cosines, truths = (np.array(column) for column in zip(*rows, strict=True))
    threshold, accuracy = choose_threshold(cosines, truths)
    assert ((cosines >= threshold) == truths).mean() == pytest.approx(accuracy)
    best = max(((cosines >= other) == truths).mean() for other in (-1.0, 0.1, 0.3, 0.6, 0.9, 2.0))
    assert accuracy == pytest.approx(best)


def test_the_layer_is_chosen_on_training_pairs() -> None:
    training = np.array([[0.1, 0.9], [0.2, 0.1], [0.8, 0.2], [0.9, 0.8]], dtype=np.float32)
    test = np.array([[0.9, 0.0], [0.1, 1.0]], dtype=np.float32)
    truths = {"training": np.array([False, False, True, True]), "dev": np.array([True, False])}
    layers, best = score_layers({"training": training, "dev": test, "test": test}, {**truths, "test": truths["dev"]})
    assert [layer.train_accuracy for layer in layers] == [1.0, 0.75]
    assert (best.layer, best.test_accuracy) == (0, 1.0)
    assert best.threshold == pytest.approx(0.5)
    assert layers[1].test_accuracy == 0.0


def test_files_are_read(data: Path, tmp_path: Path) -> None:
    folder = data / "tasks" / "mcl-wic-en"
    pairs = read_sense_pairs(folder, "training", limit=5)
    assert [pair.is_same for pair in pairs] == [True, False, True, False, True]
    for pair in pairs:
        assert [text[slice(*span)] for text, span in zip(pair.sentences, pair.spans, strict=True)] == ["w1", "w1"]
    with pytest.raises(BertkitError, match="no readable dev pairs"):
        read_sense_pairs(tmp_path, "dev")


def test_the_summary_is_plain(data: Path, bert: Bert) -> None:
    folder = data / "tasks" / "mcl-wic-en"
    pairs = {split: read_sense_pairs(folder, split) for split in ("training", "dev", "test")}
    found = summarise_senses({split: sense_cosines(bert, own) for split, own in pairs.items()}, pairs)
    assert json.loads(json.dumps(found)) == found
    assert found["majority"] == 0.5
    assert len(found["layers"]) == 4
    assert found["accuracy"] == found["layers"][found["best_layer"]]["test_accuracy"]
