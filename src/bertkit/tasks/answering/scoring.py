"""How good answers are, by SQuAD's rules: version 1.1, or 2.0 where some questions have no answer.

For 2.0 the scores are those at the task's own threshold; beside them stand the best that another would give, and that
threshold, which is what a development set is for.
"""

import math

from bertkit.tasks.answering.spans import AnswerPrediction
from bertkit.tasks.metrics.answers import SquadMetrics, SquadV2Metrics
from bertkit.tasks.reading.examples import QuestionExample

THRESHOLD = "no_answer_threshold"  # its name among scores and settings


class AnswerScorer:
    """A few numbers a question; questions whose truth is not known are left out."""

    def __init__(self, threshold: float | None) -> None:
        self.is_second = threshold is not None  # SQuAD 2.0; also once a question without an answer comes
        self.first, self.second = SquadMetrics(), SquadV2Metrics(math.inf if threshold is None else threshold)

    def add(self, example: QuestionExample, prediction: AnswerPrediction) -> None:
        """One more question."""
        if not (example.answers or example.is_impossible):
            return
        self.is_second |= example.is_impossible
        golds = [answer.text for answer in example.answers]
        best = prediction.best_span
        self.first.add(golds, prediction.text or None)
        self.second.add(golds, best.text if best else "", prediction.no_answer_lead)

    def scores(self) -> dict[str, float]:
        """Exact match and F1; for 2.0 also with and without answers, and at the best threshold."""
        if not self.is_second:
            return self.first.scores()
        exact, f1 = self.second.best_exact(), self.second.best_f1()
        best = {"best_exact_match": exact.score, "best_f1": f1.score, THRESHOLD: f1.threshold}
        return {**self.second.scores(), **best}
