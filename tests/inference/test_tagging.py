"""Tagging plain texts and words with any checkpoint that has a tagger."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.inference.loading import load
from bertkit.model import BertModel
from bertkit.tasks.tagging.decoding import best_sequence, log_softmax
from bertkit.tasks.tagging.labels import TagScheme
from tests.model.formats.peers import make_peer

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TEXT = "Wolfgang lives in Berlin. The dog of O'Brien doesn't."


def tagger(*labels: str, **changes: Any) -> Bert:
    """Random weights so large that tags differ from word to word."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.5, "max_positions": 32, **changes}
    return untrained(1, heads=("tagger",), labels=labels, **sizes)


@pytest.fixture(scope="module")
def bert() -> Bert:
    return tagger(*BIO)


def test_a_text_many_texts_and_words(bert: Bert) -> None:
    one = bert.tag(TEXT)
    assert one.text == TEXT
    assert " ".join(one.words) == "Wolfgang lives in Berlin . The dog of O'Brien doesn't ."
    assert len(one.tags) == len(one.words) == len(one.spans)
    assert one.entities
    many = bert.tag([TEXT, "", "The dog"])
    assert many[0].tags == one.tags
    assert (many[1].words, many[1].tags, many[1].entities) == ((), (), ())
    (words,) = bert.tag([one.words])
    assert words.tags == one.tags
    assert words.text == " ".join(one.words)
    assert [words.text[e.start : e.end] for e in words.entities] == [e.text for e in words.entities]


def test_tags_are_the_best_legal_ones_of_each_words_first_piece(bert: Bert) -> None:
    text = "The xylophonist sleeps in Kuala Lumpur"
    encoding = bert.tokenizer.encode(text)
    with torch.no_grad():
        logits = bert.model.tag_logits(torch.from_numpy(bert.encode(text).vectors)).numpy()
    words = [word for word in dict.fromkeys(encoding.word_ids) if word is not None]
    first = [encoding.word_ids.index(word) for word in words]
    assert first != list(range(1, len(first) + 1)), "some word has several pieces"
    scheme = TagScheme(BIO)
    expected, _ = scheme.spell(best_sequence(log_softmax(logits[first]), scheme).tolist())
    assert list(bert.tag(text).tags) == expected


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from("ab'’.- \u0301中é"), st.characters(exclude_categories=["Cs"]))))
def test_entities_of_any_text_stand_where_they_say(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        tagged = ANY.tag(text)
    for entity in tagged.entities:
        assert text[entity.start : entity.end] == entity.text
        assert entity.start == tagged.spans[entity.first_word][0]
        assert entity.end == tagged.spans[entity.last_word][1]
        assert entity.text
    inside = [tag for tag in tagged.tags if tag != "O"]
    assert len(inside) == sum(entity.last_word - entity.first_word + 1 for entity in tagged.entities)


ANY = tagger(*BIO)


def test_long_texts_are_read_in_windows_and_that_is_said(bert: Bert) -> None:
    long = "The dog lives in Berlin . " * 20
    with pytest.warns(LongTextWarning, match="1 of 1 sentence has more than 32 tokens: split into"):
        tagged = bert.tag(long)
    assert len(tagged.tags) == 120
    assert tagged.num_windows > 4
    assert tagged.num_cut == 0
    with pytest.warns(LongTextWarning, match="words were cut"):
        cut = bert.tag(long, long="truncate")
    assert (cut.num_windows, set(cut.tags[-cut.num_cut :])) == (1, {"O"})
    assert cut.num_cut > 60
    with pytest.raises(LongTextError, match="the limit is 32"):
        bert.tag(long, long="error")


@pytest.mark.parametrize(
    "labels",
    [
        ("O", "B-PER", "I-PER", "E-PER", "S-PER"),
        ("B-LOC", "I-LOC", "I-PER", "O"),
        ("O", "PER", "LOC"),
        ("O", "B-PER", "I-PER", "L-PER", "U-PER"),
    ],
)
def test_checkpoints_trained_elsewhere(labels: tuple[str, ...], bert: Bert, tmp_path: Path) -> None:
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}
    size = bert.tokenizer.vocab_size
    make_peer("BertForTokenClassification", vocab_size=size, **names).save_pretrained(tmp_path)
    bert.tokenizer.save(tmp_path)
    tagged = load(tmp_path, device="cpu").tag(TEXT)
    assert len(tagged.tags) == len(tagged.words)
    if all("-" in label or label == "O" for label in labels):
        for before, tag in zip(["O", *tagged.tags], tagged.tags, strict=False):
            assert tag[:2] in ("O", "B-", "I-")
            assert not tag.startswith("I-") or before[2:] == tag[2:], "BIO, whatever the labels are"
    else:
        assert set(tagged.tags) <= set(labels)


def test_refusals(bert: Bert) -> None:
    plain = Bert(BertModel(bert.config.with_heads(["pooler"], labels=())), bert.tokenizer)
    with pytest.raises(BertkitError, match="no tagger"):
        plain.tag(TEXT)
    with pytest.raises(BertkitError, match="give a text, or a list of words"):
        bert.tag([[1, 2]])  # type: ignore[list-item]
    with pytest.raises(BertkitError, match="half a surrogate"):
        bert.tag("a\ud800b")
