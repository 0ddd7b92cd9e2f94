"""A head in use: the labels and tags that it was trained on come back from raw text, and only on its own encoder."""

from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.feature_heads import FeatureHead, load_head
from bertkit.inference.features.make import FeatureOptions, make_features
from bertkit.inference.fresh import untrained
from bertkit.tasks.feature_heads import TrainedHead
from bertkit.tasks.reading.examples import TagExample, TextExample
from bertkit.training.heads.classifier import train_classifier
from bertkit.training.heads.tagger import TaggerTraining, train_tagger

TEXTS = [
    ("The dog sleeps.", "animal"),
    ("A cat runs home.", "animal"),
    ("Milk is white.", "food"),
    ("We eat bread.", "food"),
]
WORDS = ("The", "dog", "ran", "to", "New", "York", ".")
TAGS = ("O", "O", "O", "O", "B-LOC", "I-LOC", "O")


@pytest.fixture(scope="module")
def saved(bert: Bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture(scope="module")
def classifier(bert: Bert, saved: Path) -> TrainedHead:
    examples = [TextExample(text, None, label) for text, label in TEXTS]
    return train_classifier(make_features(bert, examples, FeatureOptions("mean-last-4"), str(saved)))


@pytest.fixture(scope="module")
def tagger(bert: Bert, saved: Path) -> TrainedHead:
    made = make_features(bert, [TagExample(WORDS, TAGS)] * 4, FeatureOptions("weighted-last-4", "word"), str(saved))
    return train_tagger(made, None, TaggerTraining(epochs=40, learning_rate=1e-2, hidden_size=8, dropout=0.0))


def test_texts_are_predicted(classifier: TrainedHead, tmp_path: Path) -> None:
    head = load_head(classifier.save(tmp_path / "head"), device="cpu")
    found = head.predict([text for text, _ in TEXTS])
    assert [one.label for one in found] == [label for _, label in TEXTS]
    for one in found:
        assert one.confidence == max(one.probabilities.values())
        assert sum(one.probabilities.values()) == pytest.approx(1.0)
    assert len(head.predict([("The dog", "sleeps."), "Milk"])) == 2
    assert head.predict([]) == []
    assert head.predict("Milk") == head.predict(["Milk"])
    with pytest.raises(BertkitError, match="use its predict"):
        head.tag(["The dog"])


def test_words_are_tagged_and_entities_stand_where_they_say(tagger: TrainedHead, tmp_path: Path) -> None:
    head = load_head(tagger.save(tmp_path / "head"), device="cpu")
    text = "The dog ran to New York."
    of_words, of_nothing, of_text = head.tag([WORDS, [], text])
    assert of_words.tags == TAGS
    assert of_nothing.tags == ()
    (entity,) = of_text.entities
    assert (entity.kind, entity.text, text[entity.start : entity.end]) == ("LOC", "New York", "New York")
    assert head.tag(text) == [of_text]
    with pytest.raises(BertkitError, match="use its tag"):
        head.predict(["The dog"])


def test_a_head_belongs_to_its_encoder(classifier: TrainedHead, bert: Bert, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="features of another model"):
        FeatureHead(untrained(7, num_layers=4), classifier)
    nowhere = make_features(bert, [TextExample(text, None, label) for text, label in TEXTS], FeatureOptions("last"))
    folder = train_classifier(nowhere).save(tmp_path / "head")
    with pytest.raises(BertkitError, match="does not say where its model is"):
        load_head(folder)
    assert load_head(folder, bert).predict(["The dog sleeps."])[0].label == "animal"
