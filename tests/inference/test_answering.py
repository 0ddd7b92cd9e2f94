"""Answers from contexts of any length with any checkpoint that has a span head."""

import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.inference.loading import load
from bertkit.model import BertModel
from bertkit.tasks.registry import StoredTask
from tests.model.formats.peers import make_peer

BERT = untrained(2, heads=("span",), hidden_size=32, intermediate_size=64, initializer_range=0.5, max_positions=32)
CONTEXT = "The man went to the store in Berlin. He bought milk, bread and a dog's toy."


def test_an_answer_and_its_runners_up() -> None:
    answer = BERT.answer("What did he buy?", CONTEXT)
    assert answer.text
    assert CONTEXT[answer.start : answer.end] == answer.text
    assert len(answer.runners_up) == 4
    scores = [answer.score, *(span.score for span in answer.runners_up)]
    assert scores == sorted(scores, reverse=True)
    assert len({answer.text, *(span.text for span in answer.runners_up)}) == 5
    first, second = BERT.answer(["What did he buy?", "Where?"], CONTEXT, top_k=1)
    assert (first.text, first.runners_up) == (answer.text, ())
    assert second.score == pytest.approx(BERT.answer("Where?", CONTEXT).score, rel=1e-4)


def test_the_score_is_that_of_the_reference(tmp_path: Path) -> None:
    size = BERT.tokenizer.vocab_size
    peer = make_peer("BertForQuestionAnswering", vocab_size=size)
    peer.save_pretrained(tmp_path)
    BERT.tokenizer.save(tmp_path)
    question, context = "Where?", "The man went to the store in the city."
    answer = load(tmp_path, device="cpu").answer(question, context)
    encoding = BERT.tokenizer.encode(question, context)
    inputs = {"input_ids": torch.tensor([encoding.ids]), "token_type_ids": torch.tensor([encoding.segment_ids])}
    with torch.no_grad():
        output = peer(**inputs)
    starts, ends = output.start_logits[0], output.end_logits[0]
    places = zip(encoding.text_ids, encoding.offsets, strict=True)
    first = next(row for row, (text, (start, _)) in enumerate(places) if text == 1 and start == answer.start)
    places = zip(encoding.text_ids, encoding.offsets, strict=True)
    last = next(row for row, (text, (_, end)) in enumerate(places) if text == 1 and end == answer.end)
    assert answer.score == pytest.approx(float(starts[first] + ends[last]), abs=1e-4)
    assert answer.no_answer_score == pytest.approx(float(starts[0] + ends[0]), abs=1e-4)
    # Words here are single tokens or marks, so no other pair of context tokens may score higher.
    inside = [row for row, text in enumerate(encoding.text_ids) if text == 1]
    whole = [
        float(starts[a] + ends[b])
        for a in inside
        for b in inside
        if a <= b
        and encoding.word_ids[a] != encoding.word_ids[a - 1]
        and encoding.word_ids[b] != encoding.word_ids[b + 1]
    ]
    assert answer.score == pytest.approx(max(whole), abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text(alphabet=st.one_of(st.sampled_from("ab'. \u0301中é"), st.characters(exclude_categories=["Cs"]))),
)
def test_answers_of_any_text_stand_where_they_say(question: str, context: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        answer = BERT.answer(question, context)
    assert context[answer.start : answer.end] == answer.text
    for span in answer.runners_up:
        assert context[span.start : span.end] == span.text != ""


def test_long_contexts_are_read_in_windows_and_that_is_said() -> None:
    long = CONTEXT * 10
    with pytest.warns(LongTextWarning, match="1 of 1 context was split into"):
        answer = BERT.answer("What did he buy?", long)
    assert long[answer.start : answer.end] == answer.text
    assert answer.num_windows > 4
    assert answer.num_cut == 0
    with pytest.warns(LongTextWarning, match="1 of 1 question was cut"):
        assert BERT.answer("What did he buy " * 20, "The dog.").num_cut > 20
    with pytest.raises(LongTextError, match="the limit is 32"):
        BERT.answer("What?", long, long="error")


def test_the_stored_threshold_holds_unless_another_is_given(tmp_path: Path) -> None:
    never = StoredTask("answering", {"no_answer_threshold": -1000.0}, None, "window")
    bert = Bert(BERT.model, BERT.tokenizer, stored=never)
    bert.save(tmp_path)
    again = load(tmp_path, device="cpu")
    for one in (bert, again):
        answer = one.answer("Who?", "The dog sleeps.")
        assert (answer.text, answer.start, answer.end) == ("", 0, 0)
        assert answer.runners_up
        assert one.answer("Who?", "The dog sleeps.", no_answer_threshold=1000.0).text
        assert one.answer("Who?", "The dog sleeps.", no_answer_threshold=None).text


def test_a_context_without_words_has_no_answer() -> None:
    answer = BERT.answer("Who?", " \u200b")
    assert (answer.text, answer.start, answer.end, answer.runners_up) == ("", 0, 0, ())


def test_refusals() -> None:
    plain = Bert(BertModel(BERT.config.with_heads(["pooler"])), BERT.tokenizer)
    with pytest.raises(BertkitError, match="no span head"):
        plain.answer("Who?", CONTEXT)
    with pytest.raises(BertkitError, match="top_k is 0"):
        BERT.answer("Who?", CONTEXT, top_k=0)
