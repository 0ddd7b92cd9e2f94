"""What the pre-training heads say, against the same computed by hand and by the reference."""

from typing import Any

import numpy as np
import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.model import pack


def softmax_at(bert: Bert, ids: list[int], row: int) -> np.ndarray:
    with torch.no_grad():
        logits = bert.model.mlm_logits(bert.model.encoder(pack([ids]))[row : row + 1])
    return torch.softmax(logits, -1)[0].numpy()


def test_fill_mask_ranks_the_vocabulary(bert: Bert) -> None:
    text = "The [MASK] went to the [MASK]."
    first, second = bert.fill_mask(text, top_k=3)
    assert [text[m.start : m.end] for m in (first, second)] == ["[MASK]", "[MASK]"]
    ids = bert.tokenizer.encode(text).ids
    expected = softmax_at(bert, ids, ids.index(bert.tokenizer.mask_id))
    order = np.argsort(-expected)[:3]
    assert [c.token_id for c in first.candidates] == order.tolist()
    assert [c.probability for c in first.candidates] == pytest.approx(expected[order].tolist(), rel=1e-4)
    assert [c.token for c in first.candidates] == [bert.tokenizer.token(i) for i in order.tolist()]


def test_many_texts_equal_one_at_a_time(bert: Bert) -> None:
    texts = ["[MASK]", "The man bought [MASK] and [MASK] at the store today.", "A [MASK] dog"]
    together = bert.fill_mask(texts, top_k=2)
    for text, masks in zip(texts, together, strict=True):
        alone = bert.fill_mask(text, top_k=2)
        assert [[c.token_id for c in m.candidates] for m in masks] == [
            [c.token_id for c in m.candidates] for m in alone
        ]


def test_candidates_are_ranked_among_themselves(bert: Bert) -> None:
    (mask,) = bert.fill_mask("He drank [MASK].", candidates=["milk", "bread", "dog"])
    assert {c.token for c in mask.candidates} == {"milk", "bread", "dog"}
    probabilities = [c.probability for c in mask.candidates]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) < 0.5  # of the whole vocabulary, not of the candidates


def test_bad_blanks_are_explained(bert: Bert) -> None:
    with pytest.raises(BertkitError, match=r"no \[MASK\] in 'The dog'"):
        bert.fill_mask("The dog")
    with pytest.raises(BertkitError, match="'xylophonist' is not one piece"):
        bert.fill_mask("The [MASK]", candidates=["xylophonist"])


def test_next_sentence_is_the_first_class(bert: Bert) -> None:
    a, b = "The man went to the store.", "He bought milk."
    encoding = bert.tokenizer.encode(a, b)
    with torch.no_grad():
        hidden = bert.model.encoder(pack([encoding.ids], [encoding.segment_ids]))
        expected = torch.softmax(bert.model.nsp_logits(hidden[:1]), -1)[0, 0].item()
    assert bert.next_sentence(a, b) == pytest.approx(expected, abs=1e-5)
    assert bert.next_sentences([(a, b), (b, a)])[0] == pytest.approx(expected, abs=1e-5)


def test_pseudo_likelihood_masks_one_token_at_a_time(bert: Bert) -> None:
    score = bert.pseudo_likelihood("The dog sleeps")
    ids = bert.tokenizer.encode("The dog sleeps").ids
    assert len(score.tokens) == len(ids) - 2
    for place, log_probability in enumerate(score.log_probabilities, start=1):
        masked = [*ids[:place], bert.tokenizer.mask_id, *ids[place + 1 :]]
        assert log_probability == pytest.approx(np.log(softmax_at(bert, masked, place)[ids[place]]), abs=1e-4)
    assert score.total == pytest.approx(sum(score.log_probabilities))
    assert bert.pseudo_likelihood("").total == 0


def test_all_candidates_are_ranked_however_many(bert: Bert) -> None:
    words = ["milk", "bread", "dog", "the", "a", "he", "it"]
    (mask,) = bert.fill_mask("He drank [MASK].", candidates=words)
    assert {c.token for c in mask.candidates} == {*words}


def test_texts_may_be_a_generator(bert: Bert) -> None:
    texts = ["A [MASK].", "The [MASK] and the [MASK]."]
    assert [len(masks) for masks in bert.fill_mask(text for text in texts)] == [1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": -1}, "top_k is -1"),
        ({"candidates": []}, "give a list of words"),
        ({"candidates": "milk"}, "give a list of words"),
    ],
)
def test_what_ranks_nothing_is_one_line(bert: Bert, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BertkitError, match=said):
        bert.fill_mask("The [MASK]", **options)
