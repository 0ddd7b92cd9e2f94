"""Classification and regression of one text or two (section 3.2 of the paper): [CLS] through the pooler, one layer.

In: TextExamples. Out: a class, several classes (multi-label), or a number, with probabilities. A long text may be
several windows: each learns the text's label, and their logits are averaged when predicting.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertkit.errors import BertkitError, LongTextError
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig, Problem
from bertkit.tasks.classification.scoring import ClassScorer
from bertkit.tasks.reading.examples import Label, TextExample
from bertkit.tasks.reading.splits import class_weights as balanced_weights
from bertkit.tasks.task import IGNORED, Item, TaskBatch
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.fitting import Limit

THRESHOLD = 0.5  # of a probability, for a label of several to be given
SCORE = "score"  # the name of regression's one output
MOST_NAMES = 8  # of labels in an error
CLS_ROW = np.zeros(1, dtype=np.int64)
METRICS: dict[Problem, str] = {"single_label": "accuracy", "multi_label": "micro_f1", "regression": "pearson"}


@dataclass(frozen=True)
class ClassPrediction:
    """What a text is, how sure the model is of it, and the probability of every label."""

    label: Label
    confidence: float | None  # the label's probability; of several labels the least; None for a number
    probabilities: Mapping[str, float] = field(default_factory=dict)
    num_windows: int = 1  # more: the text was split, and the windows' logits averaged
    num_cut: int = 0  # tokens that truncation took


@dataclass(frozen=True)
class ClassificationTask:
    """Texts to labels. Class weights, in the labels' order, average 1 over the examples."""

    labels: tuple[str, ...] = ()
    problem: Problem = "single_label"
    class_weights: tuple[float, ...] | None = None
    threshold: float = THRESHOLD
    name: str = "classification"

    def __post_init__(self) -> None:
        if self.problem == "regression":
            object.__setattr__(self, "labels", self.labels or (SCORE,))
        elif len(self.labels) < 2 - (self.problem == "multi_label"):
            raise BertkitError(f"classification needs two labels at least, not {list(self.labels)}; check the column")
        if self.class_weights is not None and len(self.class_weights) != len(self.labels):
            raise BertkitError(f"{len(self.class_weights)} class weights for {len(self.labels)} labels; give one each")
        if self.class_weights is not None and self.problem == "regression":
            raise BertkitError("class weights need classes, and this is regression; leave them out")

    @property
    def metric(self) -> str:
        """What the best checkpoint is chosen by."""
        return METRICS[self.problem]

    def configure(self, config: BertConfig) -> BertConfig:
        """A pooler and a classifier over these labels."""
        return config.with_heads(("pooler", "classifier"), labels=self.labels, problem=self.problem)

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer, limit: Limit) -> list[Item]:
        """One item a text, or one a window; an empty second text is none."""
        texts = [(example.text, example.pair or None) for example in examples]
        how: dict[str, Any] = {"max_length": limit.max_length, "long": limit.long, "stride": limit.stride}
        try:
            encoded = tokenizer.encode_batch(texts, **how)
        except LongTextError:
            _name_long(examples, texts, tokenizer, how)
            raise
        items = []
        for index, (example, windows) in enumerate(zip(examples, encoded, strict=True)):
            target = self.target(example)
            items += [Item(w.ids, w.segment_ids, CLS_ROW, target, index, note=w.num_cut) for w in windows]
        return items

    def target(self, example: TextExample) -> NDArray[Any]:
        """[1] a class or a number, [1, C] several classes; empty where the label is not known."""
        if example.label is None:
            return np.empty((0, len(self.labels)) if self.problem == "multi_label" else 0, self._dtype)
        if self.problem == "regression":
            return np.array([_number(example)], dtype=np.float32)
        if self.problem == "single_label":
            return np.array([self.index(example.label, example.line)])
        names = example.label if isinstance(example.label, tuple) else (str(example.label),)
        target = np.zeros((1, len(self.labels)), dtype=np.float32)
        target[0, [self.index(name, example.line) for name in names]] = 1.0
        return target

    @property
    def _dtype(self) -> type[np.generic]:
        return np.int64 if self.problem == "single_label" else np.float32

    def index(self, label: Label, line: int | None) -> int:
        """The number of a label; one that the model does not know is refused."""
        name = str(label)
        if name not in self.labels:
            known = ", ".join(self.labels[:MOST_NAMES]) + (", ..." if len(self.labels) > MOST_NAMES else "")
            raise BertkitError(f"{_where(line)}the label {name!r} is none of the model's ({known}); use its labels")
        return self.labels.index(name)

    def logits(self, model: BertModel, batch: TaskBatch) -> Tensor:
        """Scores of the labels of each sequence: [N, C]."""
        return model.class_logits(model.encoder(batch.inputs, rows=model.summary_rows(batch.inputs, batch.rows)))

    def loss_sum(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """Cross-entropy, binary cross-entropy of every label, or squared error."""
        wide, targets = logits.float(), batch.targets
        weights = None if self.class_weights is None else _on_device(self.class_weights, wide.device)
        if self.problem == "single_label":
            return F.cross_entropy(wide, targets, weight=weights, ignore_index=IGNORED, reduction="sum")
        used = targets != IGNORED
        if self.problem == "multi_label":
            return F.binary_cross_entropy_with_logits(
                wide,
                targets.clamp(min=0.0),
                weight=used.float() * (1.0 if weights is None else weights),
                reduction="sum",
            )
        return ((wide.squeeze(-1) - targets).square() * used).sum()

    def num_targets(self, item: Item) -> int:
        """One a sequence, or one a label where there are several at once."""
        return int(item.targets.size)

    def decode(
        self, examples: Sequence[TextExample], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[ClassPrediction]:
        """The mean of each text's window logits, as probabilities."""
        found = []
        for _, group in groupby(zip(items, logits, strict=True), key=lambda pair: pair[0].example):
            parts = list(group)
            merged = np.mean([rows[0] for _, rows in parts], axis=0)
            prediction = self.predict(merged)
            if len(parts) > 1 or parts[0][0].note:
                prediction = replace(prediction, num_windows=len(parts), num_cut=parts[0][0].note)
            found.append(prediction)
        return found

    def predict(self, logits_C: NDArray[np.float32]) -> ClassPrediction:
        """What these logits say."""
        if self.problem == "regression":
            return ClassPrediction(float(logits_C[0]), None)
        wide = torch.from_numpy(np.asarray(logits_C, dtype=np.float64))
        spread = torch.softmax(wide, 0) if self.problem == "single_label" else torch.sigmoid(wide)
        probabilities = dict(zip(self.labels, spread.tolist(), strict=True))
        if self.problem == "single_label":
            best = max(probabilities, key=lambda name: probabilities[name])
            return ClassPrediction(best, probabilities[best], probabilities)
        given = tuple(name for name, p in probabilities.items() if p >= self.threshold)
        # Where no label is given, the least sure "no" is what the answer rests on.
        sure = min((probabilities[n] if n in given else 1.0 - probabilities[n]) for n in (given or probabilities))
        return ClassPrediction(given, sure, probabilities)

    def scorer(self) -> ClassScorer:
        """An empty scorer."""
        return ClassScorer(self.labels, self.problem)

    def settings(self) -> dict[str, Any]:
        """The threshold of several labels at once."""
        return {"threshold": self.threshold} if self.problem == "multi_label" else {}

    def tuned(self, scores: Mapping[str, float]) -> "ClassificationTask":
        """Nothing is tuned."""
        return self


def classification_of(config: BertConfig, settings: Mapping[str, Any]) -> ClassificationTask:
    """The task that a saved classifier was trained for, here or elsewhere."""
    if "classifier" not in config.heads:
        raise BertkitError("this checkpoint has no classifier; fine-tune one (`bertkit finetune classification`)")
    return ClassificationTask(config.labels, config.problem, threshold=settings.get("threshold", THRESHOLD))


def classification_for(
    examples: Iterable[TextExample],
    *,
    problem: Problem | None = None,
    known: Sequence[str] = (),
    class_weights: Literal["balanced"] | Sequence[float] | None = None,
) -> ClassificationTask:
    """The task that these examples call for; `known` is the order of labels that a checkpoint already has."""
    counts: Counter[str] = Counter()
    kinds = set()
    for example in examples:
        if example.label is None:
            raise BertkitError(f"{_where(example.line)}no label to learn from; fill it in or leave the line out")
        kinds.add(type(example.label))
        counts.update(example.label if isinstance(example.label, tuple) else [str(example.label)])
    found = problem or _problem_of(kinds)
    if found == "regression":
        return ClassificationTask(problem="regression")
    labels = tuple(known) if set(known) == set(counts) else tuple(sorted(counts, key=_rank))
    weights = class_weights
    if class_weights == "balanced":
        balanced = balanced_weights(counts)
        weights = [balanced[label] for label in labels]
    elif isinstance(class_weights, str):
        raise BertkitError(f"class_weights is {class_weights!r}; it is 'balanced' or one number a label")
    return ClassificationTask(labels, found, None if weights is None else tuple(float(w) for w in weights))


def _problem_of(kinds: set[type]) -> Problem:
    if tuple in kinds:
        return "multi_label"
    return "regression" if kinds <= {float} else "single_label"


def _rank(label: str) -> tuple[bool, float, str]:
    """Numbers by their value, before words."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label


def _number(example: TextExample) -> float:
    try:
        return float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BertkitError(
            f"{_where(example.line)}the label {example.label!r} is no number; this model predicts numbers"
        ) from None


def _name_long(
    examples: Sequence[TextExample], texts: Sequence[Any], tokenizer: Tokenizer, how: Mapping[str, Any]
) -> None:
    """Refuse the first text that is too long by the line of its file, if it has one."""
    for example, text in zip(examples, texts, strict=True):
        try:
            tokenizer.encode_batch([text], **how)
        except LongTextError as error:
            if example.line is not None:
                raise LongTextError(f"line {example.line}: {error}") from None
            return


@lru_cache(maxsize=8)
def _on_device(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Moved once: a recorded CUDA graph may not copy from the host."""
    with torch.inference_mode(False):  # training may save it for its gradient
        return torch.tensor(weights, dtype=torch.float32, device=device)


def _where(line: int | None) -> str:
    return "" if line is None else f"line {line}: "
