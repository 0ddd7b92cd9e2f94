"""What a run's held-out perplexity is of: perplexities of different questions are different measures."""

from bertkit.studies.study.result import Measure
from bertkit.studies.study.runs import PlannedRun

PERPLEXITY = Measure("held-out perplexity", "", lower_is_better=True)
# Not to be compared with the first: of the next token, and of text that is cut into other inputs.
NEXT_TOKEN = Measure("next-token perplexity", "", lower_is_better=True)
NO_PAIRS = Measure("held-out perplexity, no pairs", "", lower_is_better=True)


def perplexity_of(run: PlannedRun) -> Measure:
    """What a run's perplexity is of."""
    if run.recipe.objective == "ltr":
        return NEXT_TOKEN
    return PERPLEXITY if run.recipe.data.next_sentence else NO_PAIRS
