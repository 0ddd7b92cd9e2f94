"""Classification as a task: labels and targets, losses worked by hand, windows merged, what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.model import BertModel, preset
from bertkit.model.config import BertConfig
from bertkit.tasks.classification.task import (
    ClassificationTask,
    classification_for,
    classification_of,
)
from bertkit.tasks.predicting import predict_examples
from bertkit.tasks.reading.examples import Label, TextExample
from bertkit.tasks.task import IGNORED, TaskBatch, collate
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit

WORDS = [f"w{index}" for index in range(30)]
LIMIT = Limit(16, "error")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)


def examples(*labels: Label | None) -> list[TextExample]:
    return [TextExample("w1 w2", None, label, line) for line, label in enumerate(labels, start=2)]


def batch_of(task: ClassificationTask, tokenizer: Tokenizer, *labels: Label | None) -> TaskBatch:
    return collate(task.encode(examples(*labels), tokenizer, LIMIT))


def test_the_examples_say_what_task_it_is() -> None:
    assert classification_for(examples("b", "a", "b")).labels == ("a", "b")
    assert classification_for(examples("10", "9", "2")).labels == ("2", "9", "10")  # numbers by their value
    assert classification_for(examples(("x", "y"), ("y",), ())).problem == "multi_label"
    assert classification_for(examples(0.5, 3.0)).problem == "regression"
    assert classification_for(examples("b", "a"), known=("b", "a")).labels == ("b", "a")  # a checkpoint's own order
    assert classification_for(examples("b", "a"), known=("c", "a")).labels == ("a", "b")


def test_the_checkpoint_says_what_task_it_is() -> None:
    task = ClassificationTask(("no", "yes"), "multi_label", threshold=0.3)
    config = task.configure(BertConfig())
    assert (config.heads, config.labels, config.problem) == (("pooler", "classifier"), ("no", "yes"), "multi_label")
    assert classification_of(config, task.settings()) == task
    assert len(ClassificationTask(problem="regression").configure(BertConfig()).labels) == 1


def test_an_empty_second_text_is_none(tokenizer: Tokenizer) -> None:
    task = ClassificationTask(("a", "b"))
    pairs = [TextExample("w1", "w2 w3"), TextExample("w1", ""), TextExample("w1", None)]
    full, empty, none = task.encode(pairs, tokenizer, LIMIT)
    assert full.segment_ids == [0, 0, 0, 1, 1, 1]
    assert empty.ids == none.ids == [tokenizer.cls_id, tokenizer.id("w1"), tokenizer.sep_id]


def test_cross_entropy_by_hand(tokenizer: Tokenizer) -> None:
    task = ClassificationTask(("a", "b"))
    batch = batch_of(task, tokenizer, "a", "b", "b")
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    by_hand = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1)) + math.log(1 + math.exp(3))
    assert float(task.loss_sum(logits, batch)) == pytest.approx(by_hand, abs=1e-6)
    weighed = ClassificationTask(("a", "b"), class_weights=(3.0, 0.5))
    by_hand += 2 * math.log(1 + math.exp(-2)) - 0.5 * (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(3)))
    assert float(weighed.loss_sum(logits, batch)) == pytest.approx(by_hand, abs=1e-6)


def test_several_labels_by_hand(tokenizer: Tokenizer) -> None:
    task = ClassificationTask(("a", "b"), "multi_label")
    batch = batch_of(task, tokenizer, ("a", "b"), ())
    logits = torch.tensor([[2.0, 0.0], [-1.0, 0.0]])
    by_hand = math.log(1 + math.exp(-2)) + math.log(2) + math.log(1 + math.exp(-1)) + math.log(2)
    assert float(task.loss_sum(logits, batch)) == pytest.approx(by_hand, abs=1e-6)
    assert [task.num_targets(item) for item in task.encode(examples(("a",)), tokenizer, LIMIT)] == [2]


def test_squared_error_by_hand(tokenizer: Tokenizer) -> None:
    task = ClassificationTask(problem="regression")
    batch = batch_of(task, tokenizer, 1.0, 2.5)
    assert float(task.loss_sum(torch.tensor([[2.0], [2.0]]), batch)) == pytest.approx(1.25)


@pytest.mark.parametrize("problem", ["single_label", "multi_label", "regression"])
def test_ignored_targets_cost_nothing(problem: Any, tokenizer: Tokenizer) -> None:
    labels: dict[str, Label] = {"single_label": "a", "multi_label": ("a",), "regression": 1.0}
    label = labels[problem]
    task = ClassificationTask(() if problem == "regression" else ("a", "b"), problem)
    whole = batch_of(task, tokenizer, label, label)
    ignored = whole.targets.clone()
    ignored[1] = IGNORED
    logits = torch.randn(2, len(task.labels), generator=torch.Generator().manual_seed(0), requires_grad=True)
    cost = task.loss_sum(logits, TaskBatch(whole.inputs, whole.rows, ignored))
    torch.testing.assert_close(cost, task.loss_sum(logits[:1], batch_of(task, tokenizer, label)))
    (gradient,) = torch.autograd.grad(cost, logits)
    assert gradient[1].abs().sum() == 0


def test_balanced_weights_average_one_over_the_examples() -> None:
    made = classification_for(examples("a", "a", "b"), class_weights="balanced")
    assert made.class_weights == pytest.approx((0.75, 1.5))
    with pytest.raises(BertkitError, match="class_weights is 'rare'"):
        classification_for(examples("a", "b"), class_weights="rare")  # type: ignore[arg-type]


def test_predictions_have_names_and_probabilities() -> None:
    said = ClassificationTask(("a", "b")).predict(np.array([0.0, math.log(3)], np.float32))
    assert said.label == "b"
    assert said.confidence == pytest.approx(0.75)
    assert said.probabilities == pytest.approx({"a": 0.25, "b": 0.75})
    several = ClassificationTask(("a", "b", "c"), "multi_label")
    assert several.predict(np.array([2.0, -2.0, 0.1], np.float32)).label == ("a", "c")
    nothing = several.predict(np.array([-2.0, -1.0, -3.0], np.float32))
    assert nothing.label == ()
    assert nothing.confidence == pytest.approx(1 / (1 + math.exp(-1)))  # its least sure "no"
    assert ClassificationTask(problem="regression").predict(np.array([2.5], np.float32)).label == 2.5


def test_a_long_text_is_the_mean_of_its_windows_or_is_cut_or_refused(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    task = ClassificationTask(("a", "b"))
    sizes = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "initializer_range": 0.5}
    model = BertModel(task.configure(preset("tiny", vocab_size=35, **sizes))).eval()
    long, short = TextExample(" ".join(WORDS), None, "a", 1), TextExample("w3 w4", None, "b", 2)
    with pytest.warns(LongTextWarning, match="1 of 2 texts has more than 16 tokens"):
        one, two = predict_examples(task, model, tokenizer, [long, short], Limit(16, "window"))
    with pytest.warns(LongTextWarning):
        windows = task.encode([long], tokenizer, Limit(16, "window"))
    assert one.prediction.num_windows == len(windows) > 1
    assert two.prediction.num_windows == 1
    with torch.no_grad():
        merged = torch.cat([task.logits(model, collate([window])) for window in windows]).mean(0)
    assert one.prediction.probabilities["a"] == pytest.approx(float(torch.softmax(merged, 0)[0]), abs=1e-6)
    with pytest.warns(LongTextWarning, match="were cut"):
        (cut,) = predict_examples(task, model, tokenizer, [long], Limit(16, "truncate"))
    assert cut.prediction.num_cut == 30 - 14
    with pytest.raises(LongTextError, match=r"^line 7: .*the limit is 16"):
        ClassificationTask(("a", "b")).encode(
            [TextExample("w1", None, "a", 6), TextExample("w1 " * 40, None, "a", 7)], tokenizer, Limit(16, "error")
        )
    with pytest.raises(LongTextError, match="the limit is 16"):
        list(predict_examples(task, model, tokenizer, [long], Limit(16, "error")))


def test_predictions_do_not_depend_on_batches_or_chunks(tokenizer: Tokenizer) -> None:
    torch.manual_seed(1)
    task = ClassificationTask(("a", "b", "c"))
    model = BertModel(task.configure(preset("tiny", vocab_size=35, initializer_range=0.3))).train()
    texts = [TextExample(" ".join(WORDS[: 1 + index * 7 % 13]), None, "abc"[index % 3]) for index in range(20)]
    whole = list(predict_examples(task, model, tokenizer, texts, LIMIT))
    parts = list(predict_examples(task, model, tokenizer, iter(texts), LIMIT, max_tokens=20, chunk_size=3))
    assert [one.example for one in parts] == texts
    assert [one.loss for one in parts] == pytest.approx([one.loss for one in whole], rel=1e-4)
    assert model.training  # left as it was


def test_memory_that_runs_out_halves_the_batches(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ClassificationTask(("a", "b"))
    model = BertModel(task.configure(preset("tiny", vocab_size=35)))
    sizes: list[int] = []
    logits = ClassificationTask.logits

    def limited(self: ClassificationTask, model: BertModel, batch: TaskBatch) -> torch.Tensor:
        sizes.append(batch.inputs.num_tokens)
        if batch.inputs.num_tokens > 10:
            raise torch.OutOfMemoryError("injected")
        return logits(self, model, batch)

    monkeypatch.setattr(ClassificationTask, "logits", limited)
    found = list(predict_examples(task, model, tokenizer, examples(*["a"] * 8), LIMIT))
    assert len(found) == 8
    assert max(sizes) > 10 >= sizes[-1] > 4
    assert all(one.loss is not None for one in found)
    long = [TextExample(" ".join(WORDS[:12]))]
    with pytest.raises(BertkitError, match="out of memory with one text of 14 tokens"):
        list(predict_examples(task, model, tokenizer, long, LIMIT))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("a", None), "line 3: no label to learn from"),
        (("a", "a"), "two labels at least"),
    ],
)
def test_examples_that_cannot_be_learned_are_refused(labels: tuple[Label | None, ...], message: str) -> None:
    with pytest.raises(BertkitError, match=message):
        classification_for(examples(*labels))


def test_other_labels_are_refused_with_their_line(tokenizer: Tokenizer) -> None:
    task = ClassificationTask(("a", "b"))
    with pytest.raises(BertkitError, match=r"line 3: the label 'c' is none of the model's \(a, b\)"):
        task.encode(examples("a", "c"), tokenizer, LIMIT)
    with pytest.raises(BertkitError, match="line 2: the label 'much' is no number"):
        ClassificationTask(problem="regression").encode(examples("much"), tokenizer, LIMIT)
    with pytest.raises(BertkitError, match="3 class weights for 2 labels"):
        ClassificationTask(("a", "b"), class_weights=(1.0, 1.0, 1.0))
    with pytest.raises(BertkitError, match="class weights need classes"):
        ClassificationTask(problem="regression", class_weights=(1.0,))


def test_scores_need_the_truth() -> None:
    scorer = ClassificationTask(("a", "b")).scorer()
    with pytest.raises(BertkitError, match="line 2: no label to compare with"):
        scorer.add(examples(None)[0], ClassificationTask(("a", "b")).predict(np.zeros(2, np.float32)))
