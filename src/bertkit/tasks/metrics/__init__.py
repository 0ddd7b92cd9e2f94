"""Scores that are added up example by example, without torch."""

from bertkit.tasks.metrics.answers import BestThreshold, SquadMetrics, SquadV2Metrics, normalize_answer
from bertkit.tasks.metrics.classes import ClassMetrics, ClassScore, MultiLabelMetrics
from bertkit.tasks.metrics.entities import EntityMetrics
from bertkit.tasks.metrics.numbers import NumberMetrics, pearson, spearman

__all__ = [
    "BestThreshold",
    "ClassMetrics",
    "ClassScore",
    "EntityMetrics",
    "MultiLabelMetrics",
    "NumberMetrics",
    "SquadMetrics",
    "SquadV2Metrics",
    "normalize_answer",
    "pearson",
    "spearman",
]
