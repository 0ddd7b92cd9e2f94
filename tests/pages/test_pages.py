"""Every page holds every figure it was given, loads nothing, and shows hostile text as text."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bertkit.errors import BertkitError
from bertkit.inference.explain import explain
from bertkit.inference.words import Occurrence, compare_words
from bertkit.pages import (
    AttentionData,
    CurvePoint,
    DemoReport,
    FilledText,
    Guess,
    PairExample,
    attention_page,
    demo_page,
    explain_page,
    words_page,
)
from bertkit.pages.attention import MOST_WEIGHTS, encode_weights
from tests.pages.reading import assert_self_contained
from tests.pages.tiny import tiny_bert

HOSTILE = "</script><img src=x onerror=alert(1)>"


def attention(seed: int = 0, token: str = "dog") -> AttentionData:
    weights = np.random.default_rng(seed).dirichlet(np.ones(3), size=(2, 2, 3)).astype(np.float32)
    return AttentionData(("[CLS]", token, "[SEP]"), (0, 0, 0), weights)


def report(seed: int = 0, text: str = "The [MASK] barks.") -> DemoReport:
    rng = np.random.default_rng(seed)
    losses = rng.random((4, 4)).tolist()
    curve = [CurvePoint(step, a, b, c, None if step % 2 else d) for step, (a, b, c, d) in enumerate(losses)]
    guesses = [Guess(text, float(rng.random()))]
    return DemoReport(
        config_name="tiny",
        num_parameters=int(rng.integers(10**6)),
        num_layers=2,
        hidden_size=16,
        num_heads=2,
        vocab_size=52,
        num_sentences=211,
        num_words=1234,
        seed=seed,
        num_steps=4,
        seconds=3.21,
        curve=curve,
        unigram_loss=float(rng.random()),
        nsp_accuracy=float(rng.random()),
        fill_mask=[FilledText(text, guesses, [Guess("dog", 0.75)])],
        next_sentence=[PairExample(text, "It is loud.", 0.625, True), PairExample("A.", "B.", 0.5)],
        attention=attention(seed, text),
        versions={"torch": "2"},
    )


def decoded(data: dict[str, Any]) -> np.ndarray:
    size = len(data["tokens"])
    raw = np.frombuffer(base64.b64decode(data["weights"]), dtype="<u2")
    return raw.reshape(data["num_layers"], data["num_heads"], size, size) / 65535


def explain_hostile() -> str:
    bert = tiny_bert()
    found = explain(bert.model, bert.tokenizer, HOSTILE, "he likes playing", mask=True, seed=1)
    return explain_page(found.to_json(), model=HOSTILE, untrained=True)


def words_hostile() -> str:
    found = compare_words(tiny_bert(), [Occurrence("img", HOSTILE), Occurrence("dog", "my dog")])
    return words_page(found.to_json(), model=HOSTILE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: attention_page(attention(token=HOSTILE), model=HOSTILE),
        lambda: demo_page(report(text=HOSTILE)),
        explain_hostile,
        words_hostile,
    ],
    ids=["attention", "demo", "explain", "words"],
)
def test_hostile_text_stays_text(make: Callable[[], str]) -> None:
    page = make()
    assert HOSTILE not in page
    parsed = assert_self_contained(page)
    assert HOSTILE in str(parsed.data).replace("\\'", "'")


def test_attention_page_keeps_every_weight_to_16_bits() -> None:
    given = attention()
    data = assert_self_contained(attention_page(given, model="m", layer=2, head=1)).data
    np.testing.assert_allclose(decoded(data), given.weights, atol=0.5 / 65535 + 1e-9)
    assert (data["layer"], data["head"]) == (1, 0)
    assert data["tokens"] == list(given.tokens)


def test_attention_begins_with_the_mean_of_the_first_layer() -> None:
    data = assert_self_contained(attention_page(attention(), model="m")).data
    assert (data["layer"], data["head"]) == (0, data["num_heads"])


def test_attention_that_no_browser_could_open_is_refused() -> None:
    with pytest.raises(BertkitError, match="shorter text"):
        encode_weights(np.broadcast_to(np.float32(0), (MOST_WEIGHTS + 1,)))
    with pytest.raises(BertkitError, match="not finite"):
        encode_weights(np.array([np.nan], dtype=np.float32))


def test_explain_page_has_every_figure_and_rounds_embeddings_alone() -> None:
    bert = tiny_bert()
    found = explain(bert.model, bert.tokenizer, "my dog is cute", "he likes playing", mask=True, seed=1).to_json()
    page = explain_page(found, model="tiny", untrained=True)
    data = assert_self_contained(page).data
    for name, rows in found.pop("embeddings").items():
        np.testing.assert_allclose(data["embeddings"][name], rows, atol=0.5 * 10 ** -data["decimals"] + 1e-12)
    assert {name: data[name] for name in found} == found
    assert "untrained" in page
    assert "untrained" not in explain_page({**found, "embeddings": {}}, model="tiny")


def test_words_page_has_every_figure() -> None:
    uses = [Occurrence("dog", "my dog is cute"), Occurrence("fair", "fun fair in new york")]
    found = compare_words(tiny_bert(), uses).to_json()
    assert assert_self_contained(words_page(found, model="tiny")).data == found


def test_demo_page_has_every_figure_of_its_run() -> None:
    given = report()
    page = demo_page(given)
    data = assert_self_contained(page).data
    assert data == given.to_json()
    assert data["curve"][1]["heldout_mlm_loss"] is None
    assert "A tiny model trained for 3 seconds on 1,234 words; not a model to use." in page
    np.testing.assert_allclose(decoded(data["attention"]), given.attention.weights, atol=1e-5)


def test_another_run_gives_another_page() -> None:
    assert demo_page(report(0)) == demo_page(report(0))
    first, second = (assert_self_contained(demo_page(report(seed))).data for seed in (0, 1))
    for name in ("num_parameters", "curve", "unigram_loss", "fill_mask", "attention", "seed"):
        assert first[name] != second[name]
