"""Does a study agree with the paper? Told from the numbers alone: the sign of each difference, ours beside the paper's.

A row of the paper that names one of our arms is compared with the paper's row of the baseline, column by column; our
difference is that of the same arm and the measure that the column corresponds to. Beside it stands how large a
difference these spreads would have let us see, so that silence is not taken for disagreement; and where ours is many
times as large as the paper's, that it may be of another kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bertkit.studies.findings.course import course_paragraph
from bertkit.studies.study.noise import Difference
from bertkit.studies.study.result import Measure, PaperTable, StudyResult, TextTable
from bertkit.text.counted import agree

Verdict = Literal["agrees", "disagrees", "within the noise", "too few seeds"]
SAME = {  # columns of the paper whose measure has another name here
    "NER, fine-tuned": "CoNLL-2003 F1",
    "NER, frozen features": "CoNLL-2003 F1, frozen features",
    "perplexity": "held-out perplexity",
}
SAID = {
    "agrees": "the same way",
    "disagrees": "the other way",
    "within the noise": "within the noise",
    "too few seeds": "too few seeds",
}
MOST_LISTED = 6
MANY_TIMES = 5
TOLD = "told in words"


@dataclass(frozen=True)
class Comparison:
    """One difference of the paper, and ours."""

    arm: str
    column: str
    measure: Measure
    paper: float
    ours: Difference
    visible: float | None  # how large ours would have to be, to be outside the noise

    @property
    def is_hidden(self) -> bool:
        """Whether a difference as large as the paper's could not have been seen here."""
        return self.verdict == "within the noise" and self.visible is not None and abs(self.paper) < self.visible

    @property
    def is_much_larger(self) -> bool:
        """Whether ours is so much larger that the same sign need not mean the same cause."""
        return self.verdict == "agrees" and abs(self.ours.value) > MANY_TIMES * abs(self.paper)

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
                yield Comparison(
                    row.arm, column, measure, paper, ours, result.visible_difference(row.arm, measure.name)
                )


def measure_for(column: str, measures: Sequence[Measure]) -> Measure | None:
    """The measure of this name or of its other name, or the only one that begins with it."""
    same = [measure for measure in measures if measure.name == SAME.get(column, column)]
    longer = [measure for measure in measures if measure.name.startswith(f"{column} ")]
    return same[0] if same else longer[0] if len(longer) == 1 else None


def agreement_paragraphs(result: StudyResult) -> list[str]:
    """For people: how many differences go the paper's way, and what the others can and cannot mean."""
    if result.agreement:
        return list(result.agreement)
    found = compare_with_paper(result)
    course = [text for text in (course_paragraph(result),) if text]
    return [_beside_paper(result, found) if found else _without_paper(result), *course]


def _beside_paper(result: StudyResult, found: Sequence[Comparison]) -> str:
    labels = {arm.name: arm.label for arm in result.arms}
    groups = {name: group for name in SAID if (group := [one for one in found if one.verdict == name])}
    base = labels[result.baseline]
    head = f"Of {len(found)} differences from “{base}” that the paper also has"
    head = head if len(found) > 1 else f"One difference from “{base}” is also in the paper"
    said = [_group_said(name, group, labels, alone=len(found) == 1) for name, group in groups.items()]
    missed = [one for one in groups.get("within the noise", []) if not one.is_hidden]
    last = f" If as large as in the paper, these would have been seen: {_listed(missed, labels)}." if missed else ""
    larger = sum(one.is_much_larger for one in found)
    if larger:
        many = f"Of those that go the same way, {larger} {agree(larger, 'is', 'are')}"
        who = agree(len(found), "It is", many)
        last += f" {who} more than {MANY_TIMES} times as large as in the paper: the cause may be another."
    return f"{head}: {'; '.join(said)}.{last}"


def _group_said(name: str, group: Sequence[Comparison], labels: dict[str, str], *, alone: bool) -> str:
    said = SAID[name] if alone else f"{len(group)} {SAID[name]}"
    if name in ("agrees", "disagrees"):
        return f"{said}, outside the noise ({_listed(group, labels)})"
    hidden = sum(one.is_hidden for one in group)
    some = "" if hidden == len(group) else f"{hidden} of them "
    return f"{said}, {some}too small in the paper to be seen with so few seeds" if hidden else said


def _listed(group: Sequence[Comparison], labels: dict[str, str]) -> str:
    shown = [f"{labels[one.arm]} in {one.measure.name}" for one in group[:MOST_LISTED]]
    more = [f"{len(group) - MOST_LISTED} more in the table"] if len(group) > MOST_LISTED else []
    return "; ".join([*shown, *more])


def agreement_table(result: StudyResult) -> TextTable | None:
    """Every difference that the paper also has, ours beside it; None where there is none."""
    found = [] if result.agreement else compare_with_paper(result)
    if not found:
        return None
    labels = {arm.name: arm.label for arm in result.arms}
    columns = ("arm", "measure", "verdict", "#the paper", "#here", "#visible here from", "#p")
    title = f"Differences from “{labels[result.baseline]}”, the paper's and ours"
    return TextTable(title, columns, tuple(_row(one, labels[one.arm]) for one in found))


def _row(one: Comparison, label: str) -> tuple[str, ...]:
    digits = one.measure.decimals
    p = "–" if one.ours.p is None else f"{one.ours.p:.2g}"
    visible = "–" if one.visible is None else f"±{one.visible:.{digits}f}"
    paper, ours = f"{one.paper:+.1f}", f"{one.ours.value:+.{digits}f}"
    return label, one.measure.name, SAID[one.verdict], paper, ours, visible, p


def in_short(result: StudyResult) -> str:
    """For a table of contents: 2 the same way, 1 within the noise."""
    if result.agreement:
        return TOLD
    found = compare_with_paper(result)
    counts = {said: sum(one.verdict == name for one in found) for name, said in SAID.items()}
    return ", ".join(f"{count} {said}" for said, count in counts.items() if count) or "–"


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
    first = "The paper has no figures for what is measured here so far."
    if not claimed:
        why = "too few seeds" if open_ else "all differences are within the noise"
        return f"{first} Nothing is claimed: {why}."
    more = f"; and {len(claimed) - MOST_LISTED} more in the table" if len(claimed) > MOST_LISTED else ""
    return f"{first} Outside the noise, against {base}: {'; '.join(claimed[:MOST_LISTED])}{more}."
