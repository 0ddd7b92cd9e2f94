"""The simple models: the same optimum as scikit-learn's, known words found, any text answered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.baseline import AnswerBaseline, TextBaseline, WordBaseline
from bertkit.tasks.baseline.features import TfIdf, similarities
from bertkit.tasks.baseline.linear import SparseRows, fit_logistic, fit_ridge
from bertkit.tasks.metrics import pearson
from bertkit.tasks.reading.examples import Answer, Label, QuestionExample, TagExample, TextExample
from bertkit.tasks.reading.labels import ProblemType
from bertkit.tasks.reading.splits import count_classes

WORDS = ["good", "bad", "film", "plot", "the", "a", "very", "not", "fine", "dull"]


def some_texts(num_classes: int, count: int = 120, seed: int = 0) -> list[TextExample]:
    """Random words; the label is a noisy function of two of them."""
    rng = np.random.default_rng(seed)
    found = []
    for line in range(count):
        words = rng.choice(WORDS, size=6).tolist()
        wanted = words.count("good") + 2 * words.count("bad") if rng.random() < 0.9 else int(rng.integers(9))
        found.append(TextExample(" ".join(words), None, f"c{wanted % num_classes}", line))
    return found


def sparse(dense: np.ndarray) -> SparseRows:
    rows, features = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return SparseRows(dense[rows, features], features, starts, dense.shape[1])


def test_sparse_products() -> None:
    rng = np.random.default_rng(1)
    dense = rng.random((7, 5)) * (rng.random((7, 5)) < 0.4)
    dense[3] = 0  # a text without a known word
    rows, a, b = sparse(dense), rng.random((5, 2)), rng.random((7, 3))
    np.testing.assert_allclose(rows.times(a), dense @ a)
    np.testing.assert_allclose(rows.transposed_times(b), dense.T @ b)
    biased = np.concatenate([dense, np.ones((7, 1))], axis=1)
    np.testing.assert_allclose(rows.with_bias().times(np.eye(6)), biased)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_optimum_is_that_of_scikit_learn(num_classes: int) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(num_classes)
    dense = rng.random((200, 12)) * (rng.random((200, 12)) < 0.5)
    targets = (dense @ rng.normal(size=(12, num_classes)) + rng.normal(size=(200, num_classes)) / 3).argmax(1)
    theirs = linear.LogisticRegression(C=1.0, tol=1e-9, max_iter=5000).fit(dense, targets)
    ours = fit_logistic(sparse(dense), targets, num_classes)
    np.testing.assert_allclose(ours[:-1].T, theirs.coef_, atol=2e-3)
    intercepts = ours[-1] - ours[-1].mean() if num_classes > 2 else ours[-1]
    theirs_centred = theirs.intercept_ - (theirs.intercept_.mean() if num_classes > 2 else 0)
    np.testing.assert_allclose(intercepts, theirs_centred, atol=2e-3)
    numbers = dense @ rng.normal(size=12) + 3
    ridge = linear.Ridge(alpha=1.0, tol=1e-10).fit(dense, numbers)
    np.testing.assert_allclose(fit_ridge(sparse(dense), numbers)[:, 0], [*ridge.coef_, ridge.intercept_], atol=1e-3)


def test_tf_idf_is_that_of_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    texts = [example.text for example in some_texts(2, 40)]
    theirs = text.TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2)).fit(texts)
    ours = TfIdf([TextExample(text) for text in texts])
    new = ["good good film !", "unknown words alone", "the very good"]
    dense = ours.transform([TextExample(text) for text in new]).times(np.eye(ours.num_features))
    places = [ours.index[name] for name in theirs.get_feature_names_out()]
    np.testing.assert_allclose(dense[:, places], theirs.transform(new).toarray(), atol=1e-12)


def right(train: list[TextExample], dev: list[TextExample], problem: ProblemType = "single_label") -> float:
    """The share of labels that are predicted right."""
    said = TextBaseline(train, problem).predict(dev)
    return sum(label == example.label for label, example in zip(said, dev, strict=True)) / len(dev)


def test_classes_are_learned() -> None:
    for num_classes in (2, 3):
        train, dev = some_texts(num_classes, 600), some_texts(num_classes, 200, seed=9)
        majority = max(count_classes(example.label for example in dev).values()) / len(dev)
        assert right(train, dev) > majority + 0.1


def test_labels_at_once_and_numbers() -> None:
    base = some_texts(2, 400)
    several = [TextExample(e.text, None, tuple(w for w in ("bad", "good") if w in e.text)) for e in base]
    assert right(several[:300], several[300:], "multi_label") > 0.9
    numbers = [TextExample(e.text, None, float(e.text.count("good") - e.text.count("bad"))) for e in base]
    model = TextBaseline(numbers[:300], "regression")
    assert model.name == "TF-IDF with ridge regression"
    said = [float(str(label)) for label in model.predict(numbers[300:])]
    assert pearson(said, [float(str(e.label)) for e in numbers[300:]]) > 0.9


def test_two_texts_are_compared() -> None:
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(300):
        a, b = (" ".join(rng.choice(WORDS, size=5)) for _ in range(2))
        same = bool(rng.random() < 0.5)
        pairs.append(TextExample(a, " ".join(reversed(a.split())) if same else b, "same" if same else "other"))
    assert right(pairs[:200], pairs[200:]) > 0.95
    assert similarities("The dog", "the dog") == [1.0, 1.0, 1.0, 1.0]
    assert similarities("a b c d", "a x")[0] == pytest.approx(1 / 5)


@given(st.lists(st.tuples(st.text(), st.sampled_from("ab")), min_size=1, max_size=6), st.text())
def test_any_text_gets_a_label(examples: list[tuple[str, Label]], text: str) -> None:
    model = TextBaseline([TextExample(given_text, None, label) for given_text, label in examples])
    assert model.predict([TextExample(text)])[0] in {label for _, label in examples}


def test_words_get_their_most_frequent_tag() -> None:
    train = [
        TagExample(("Rome", "is", "Rome"), ("B-LOC", "O", "B-LOC")),
        TagExample(("Rome", "York"), ("B-ORG", "I-ORG")),
    ]
    model = WordBaseline(train)
    assert model.predict([TagExample(("Rome", "York", "was"))]) == [
        ("B-LOC", "B-ORG", "B-LOC")
    ]  # I-ORG alone begins one


def test_answers_stand_beside_the_words_of_the_question() -> None:
    context = "The dog slept all day. In 1973 oil embargo began. Nobody knew why."
    example = QuestionExample("q", "When did the oil embargo begin?", context, (Answer("1973", 26),))
    found = AnswerBaseline([example]).predict([example])[0]
    assert found == Answer("1973", 26)


@given(st.text(), st.text())
def test_answers_stand_in_their_context(question: str, context: str) -> None:
    found = AnswerBaseline([]).answer(question, context)
    assert found is None or context[found.start : found.start + len(found.text)] == found.text != ""


def test_what_cannot_be_learned() -> None:
    with pytest.raises(BertkitError, match="nothing to learn from"):
        TextBaseline([])
    with pytest.raises(BertkitError, match="no label"):
        TextBaseline([TextExample("a")])
    with pytest.raises(BertkitError, match="not a number"):
        TextBaseline([TextExample("a", None, "x")], "regression")
    with pytest.raises(BertkitError, match="no tags"):
        WordBaseline([TagExample(("a",))])
