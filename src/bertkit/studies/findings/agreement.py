"""Does a study agree with the paper? Told from the numbers alone: the sign of each difference, ours beside the paper's.

A row of the paper that names one of our arms is compared with the paper's row of the baseline, column by column; our
difference is that of the same arm and the measure that the column corresponds to. Nothing is weighed or excused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bertkit.studies.study.noise import Difference
from bertkit.studies.study.result import Measure, PaperTable, StudyResult

Verdict = Literal["agrees", "disagrees", "within the noise", "too few seeds"]
SAME = {  # columns of the paper whose measure has another name here
    "NER, fine-tuned": "CoNLL-2003 F1",
    "NER, frozen features": "CoNLL-2003 F1, frozen features",
    "perplexity": "held-out perplexity",
}
SMALL = 0.5  # points: what the paper itself would hardly call a difference
MOST_LISTED = 8


@dataclass(frozen=True)
class Comparison:
    """One difference of the paper, and ours."""

    arm: str
    column: str
    measure: Measure
    paper: float
    ours: Difference

    @property
    def verdict(self) -> Verdict:
        """The same sign outside the noise, the other sign, or neither."""
        if self.ours.is_outside_noise is None:
            return "too few seeds"
        if not self.ours.is_outside_noise:
            return "within the noise"
        return "agrees" if (self.ours.value > 0) == (self.paper > 0) else "disagrees"


def compare_with_paper(result: StudyResult) -> list[Comparison]:
    """Every figure of the paper that has a counterpart here."""
    return [found for table in result.paper for found in _of_table(result, table)]


def _of_table(result: StudyResult, table: PaperTable) -> Iterator[Comparison]:
    base = next((row for row in table.rows if row.arm == result.baseline), None)
    known = {arm.name for arm in result.arms} - {result.baseline}
    for row in table.rows if base else ():
        for column in table.columns:
            measure = measure_for(column, result.measures)
            if (
                measure is None
                or base is None
                or row.arm not in known
                or not {column} <= row.values.keys() & base.values
            ):
                continue
            ours = result.difference(row.arm, measure.name)
            paper = row.values[column] - base.values[column]
            if ours is not None and paper:
                yield Comparison(row.arm, column, measure, paper, ours)


def measure_for(column: str, measures: Sequence[Measure]) -> Measure | None:
    """The measure of this name or of its other name, or the only one that begins with it."""
    same = [measure for measure in measures if measure.name == SAME.get(column, column)]
    longer = [measure for measure in measures if measure.name.startswith(f"{column} ")]
    return same[0] if same else longer[0] if len(longer) == 1 else None


def agreement_paragraphs(result: StudyResult) -> list[str]:
    """For people: the count of verdicts with each comparison, or what differs where the paper has no such table."""
    found = compare_with_paper(result)
    if not found:
        return [_without_paper(result)]
    labels = {arm.name: arm.label for arm in result.arms}
    counts = {kind: sum(one.verdict == kind for one in found) for kind in dict.fromkeys(one.verdict for one in found)}
    names = {"agrees": "the paper's way", "disagrees": "the other way", "too few seeds": "with too few seeds to say"}
    said = ", ".join(f"{count} {names.get(kind, kind)}" for kind, count in counts.items())
    many = f"Of {len(found)} differences that the paper also measured: {said}." if len(found) > 1 else ""
    listed = "; ".join(_said(one, labels[one.arm]) for one in found[:MOST_LISTED])
    more = f"; and {len(found) - MOST_LISTED} more in the tables" if len(found) > MOST_LISTED else ""
    base = f"Against {labels[result.baseline]}: "
    return [part for part in (many, f"{base}{listed}{more}.") if part]


def _said(one: Comparison, label: str) -> str:
    digits = one.measure.decimals
    p = "" if one.ours.p is None else f", p = {one.ours.p:.2g}"
    small = " (small)" if abs(one.paper) < SMALL else ""
    verdict = {"agrees": "the same way", "disagrees": "the other way"}.get(one.verdict, one.verdict)
    ours = f"{one.ours.value:+.{digits}f} here{p}"
    return f"{label}, {one.measure.name}: {one.paper:+.1f} in the paper{small}, {ours}: {verdict}"


def _without_paper(result: StudyResult) -> str:
    """What is outside the noise, where no figure of the paper corresponds."""
    labels = {arm.name: arm.label for arm in result.arms}
    base, claimed, open_ = labels[result.baseline], [], 0
    for measure in result.measures:
        for arm in result.arms:
            difference = result.difference(arm.name, measure.name) if arm.name != result.baseline else None
            if difference is None:
                continue
            if difference.is_outside_noise:
                claimed.append(
                    f"{arm.label}, {measure.name}: {difference.value:+.{measure.decimals}f} (p = {difference.p:.2g})"
                )
            open_ += difference.is_outside_noise is None
    if all(score.arm == result.baseline for score in result.scores):
        return "Too little is measured yet to compare anything."
    first = "No figure of the paper corresponds one to one."
    if not claimed:
        why = "too few seeds" if open_ else "all differences are within the noise"
        return f"{first} Nothing is claimed: {why}."
    more = f"; and {len(claimed) - MOST_LISTED} more in the table" if len(claimed) > MOST_LISTED else ""
    return f"{first} Outside the noise, against {base}: {'; '.join(claimed[:MOST_LISTED])}{more}."
