"""Is a difference between two groups of runs outside the noise? Welch's t-test, two-sided, without scipy.

Welch's and not a permutation test: with three runs a side a permutation test cannot go below p = 0.1, whatever it sees.
Where there is one model and no run to repeat, chance is in the examples: then draws of them tell how much it does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

FEWEST_SEEDS = 3  # a side, before a difference is claimed
LEVEL = 0.05
TEST_NAME = f"Welch's t-test, two-sided, p < {LEVEL}, at least {FEWEST_SEEDS} seeds a side"
MOST_TERMS, TINY, CLOSE = 300, 1e-300, 1e-14
MOST_T, BISECTIONS = 20.0, 50  # t for p = LEVEL is 4.3 with the fewest degrees of freedom, 2


@dataclass(frozen=True)
class Difference:
    """One group's mean minus another's."""

    value: float
    p: float | None  # None: too few runs to say
    is_outside_noise: bool | None


def compare_groups(group: Sequence[float], other: Sequence[float]) -> Difference:
    """The difference of the means, and whether chance explains it."""
    value = fmean(group) - fmean(other)
    if min(len(group), len(other)) < FEWEST_SEEDS:
        return Difference(value, None, None)
    p = welch_p(group, other)
    return Difference(value, p, p < LEVEL)


def compare_drawn(value: float, differences: Sequence[float]) -> Difference:
    """A difference of two figures of the same examples, and what it is in each bootstrap draw of them."""
    error = stdev(differences)
    p = math.erfc(abs(value) / error / math.sqrt(2)) if error else 1.0 if value == 0.0 else 0.0
    p = max(p, 1 / len(differences))  # so many draws know nothing of anything rarer
    return Difference(value, p, p < LEVEL)


def visible_difference(group: Sequence[float], other: Sequence[float]) -> float | None:
    """How large a difference these two groups' spreads would let the test see; None: too few runs."""
    if min(len(group), len(other)) < FEWEST_SEEDS:
        return None
    error, freedom = _error_and_freedom(group, other)
    if error == 0.0:
        return 0.0
    low, high = 0.0, MOST_T
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > LEVEL else (low, middle)
    return high * math.sqrt(error)


def welch_p(group: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p of Welch's test; groups without any spread differ for certain, or not at all."""
    value, (error, freedom) = fmean(group) - fmean(other), _error_and_freedom(group, other)
    if error == 0.0:
        return 1.0 if value == 0.0 else 0.0
    return student_tail(value / math.sqrt(error), freedom)


def _error_and_freedom(group: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The variance of the difference of the means, and Welch's degrees of freedom."""
    first, second = variance(group) / len(group), variance(other) / len(other)
    error = first + second
    below = first**2 / (len(group) - 1) + second**2 / (len(other) - 1)
    return error, error**2 / below if below else math.inf


def student_tail(t: float, freedom: float) -> float:
    """How often |T| of Student's distribution is at least |t|."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below this point only
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(logarithm) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x, by Lentz's method."""
    value, c, d = 1.0, 1.0, 0.0
    for term in range(1, MOST_TERMS):
        half, is_odd = divmod(term, 2)
        if is_odd:
            top = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            top = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1.0 / _away_from_zero(1.0 + top * d)
        c = _away_from_zero(1.0 + top / c)
        value *= c * d
        if abs(c * d - 1.0) < CLOSE:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
