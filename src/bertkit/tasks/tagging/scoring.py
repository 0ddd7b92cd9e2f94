"""How good tags are: whole entities as conlleval counts them, or words alone where the tags have no prefixes."""

from bertkit.tasks.metrics.entities import EntityMetrics
from bertkit.tasks.reading.examples import TagExample
from bertkit.tasks.tagging.decoding import TagPrediction


class TagScorer:
    """Counts only; sentences without tags of their own are left out."""

    def __init__(self) -> None:
        self.metrics = EntityMetrics()

    def add(self, example: TagExample, prediction: TagPrediction) -> None:
        """One more sentence."""
        if example.tags is not None:
            self.metrics.add(example.tags, prediction.tags)

    def scores(self) -> dict[str, float]:
        """F1, precision and recall of entities, and the share of words with the right tag."""
        return self.metrics.scores()
