"""Published scores to stand beside ours: Google's BERTs on GLUE's test sets, and BLiMP of models of 100 M words."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

FIVE = ("SST-2", "CoLA", "MRPC", "RTE", "STS-B")  # accuracy, Matthews, F1, accuracy, Spearman; times 100


@dataclass(frozen=True)
class Published:
    """One model's published scores, times 100."""

    name: str
    shape: str
    scores: Mapping[str, float]

    @property
    def average(self) -> float:
        """Of the five tasks."""
        return fmean(self.scores[name] for name in FIVE)


def _google(name: str, shape: str, *scores: float) -> Published:
    return Published(name, shape, dict(zip(FIVE, scores, strict=True)))


GOOGLE = (
    _google("Google mini", "4 layers, 256 wide", 85.9, 0.0, 81.1, 57.9, 73.3),
    _google("Google small", "4 layers, 512 wide", 89.7, 27.8, 83.4, 61.8, 77.0),
    _google("Google medium", "8 layers, 512 wide", 89.6, 38.0, 86.6, 62.2, 78.4),
    _google("Google base", "12 layers, 768 wide; the paper", 93.5, 52.1, 88.9, 66.4, 85.8),
)
BLIMP = {"LTG-BERT, 100 M words": 85.3, "GPT-BERT, 100 M words": 86.1}
