"""The scores of classification and regression: each example's truth beside its prediction, added up. No torch here."""

from collections.abc import Sequence
from typing import Literal, Protocol

from bertkit.errors import BertkitError
from bertkit.tasks.metrics import ClassMetrics, MultiLabelMetrics, NumberMetrics
from bertkit.tasks.reading.examples import Label, TextExample


class Labelled(Protocol):
    """A prediction."""

    @property
    def label(self) -> Label:
        """What was said."""


class ClassScorer:
    """Accuracy, F1 and Matthews of classes; F1 of label sets; correlations of numbers.

    Of two classes, the second is the positive one, whose F1 is `f1`.
    """

    def __init__(
        self, labels: Sequence[str], problem: Literal["single_label", "multi_label", "regression"] = "single_label"
    ) -> None:
        self.metrics: ClassMetrics | MultiLabelMetrics | NumberMetrics
        if problem == "regression":
            self.metrics = NumberMetrics()
        elif problem == "multi_label":
            self.metrics = MultiLabelMetrics(labels)
        else:
            self.metrics = ClassMetrics(labels, positive=labels[1] if len(labels) == 2 else None)

    def add(self, example: TextExample, prediction: Labelled) -> None:
        """One more example."""
        truth, said = example.label, prediction.label
        if truth is None:
            raise BertkitError(f"line {example.line}: no label to compare with; evaluate on examples that have one")
        if isinstance(self.metrics, NumberMetrics):
            self.metrics.add(float(truth), float(said))  # type: ignore[arg-type]
        elif isinstance(self.metrics, MultiLabelMetrics):
            self.metrics.add(_names(truth), _names(said))
        else:
            self.metrics.add(str(truth), str(said))

    def scores(self) -> dict[str, float]:
        """Every score by name."""
        return self.metrics.scores()


def _names(label: Label) -> tuple[str, ...]:
    return label if isinstance(label, tuple) else (str(label),)
