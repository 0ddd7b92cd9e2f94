"""Agreement is told from the numbers alone: signs outside the noise, and nothing where seeds are too few."""

import pytest

from bertkit.studies.findings.agreement import (
    agreement_paragraphs,
    agreement_table,
    compare_with_paper,
    in_short,
    measure_for,
)
from bertkit.studies.study.result import Measure, PaperRow, PaperTable
from tests.studies.findings.made_up import make_result


def test_only_figures_with_a_counterpart_are_compared() -> None:
    found = compare_with_paper(make_result())
    assert [(one.arm, one.column) for one in found] == [("ltr", "SST-2"), ("near", "SST-2")]  # no MNLI here
    assert [one.verdict for one in found] == ["agrees", "within the noise"]
    assert found[0].paper == pytest.approx(-0.6)
    assert found[0].ours.value == pytest.approx(-10.0)


def test_the_other_sign_disagrees() -> None:
    rows = (PaperRow("MLM", {"SST-2": 80.0}, "mlm"), PaperRow("LTR", {"SST-2": 90.0}, "ltr"))
    result = make_result(paper=(PaperTable("table", ("SST-2",), rows),))
    assert [one.verdict for one in compare_with_paper(result)] == ["disagrees"]
    (text,) = agreement_paragraphs(result)
    assert text == (
        "One difference from “both sides” is also in the paper: the other way, outside the noise "
        "(left to right in SST-2 accuracy)."
    )
    table = agreement_table(result)
    assert table is not None
    assert table.rows[0][:5] == ("left to right", "SST-2 accuracy", "the other way", "+10.0", "-10.0")


def test_one_seed_says_nothing() -> None:
    rows = (PaperRow("MLM", {"SST-2": 80.0}, "mlm"), PaperRow("x", {"SST-2": 70.0}, "once"))
    result = make_result(paper=(PaperTable("table", ("SST-2",), rows),))
    assert [one.verdict for one in compare_with_paper(result)] == ["too few seeds"]


def test_the_paragraphs_count_verdicts() -> None:
    (text,) = agreement_paragraphs(make_result())
    assert text == (
        "Of 2 differences from “both sides” that the paper also has: 1 the same way, outside the noise (left to right in "
        "SST-2 accuracy); 1 within the noise, too small in the paper to be seen with so few seeds. Of those that go the "
        "same way, 1 is more than 5 times as large as in the paper: the cause may be another."
    )
    (alone,) = agreement_paragraphs(make_result(paper=()))
    assert "left to right, held-out perplexity: +3.00" in alone
    assert "nearly" not in alone
    (nothing,) = agreement_paragraphs(make_result(paper=(), scores=()))
    assert nothing == "Too little is measured yet to compare anything."
    same = tuple(score for score in make_result().scores if score.arm in ("mlm", "near"))
    (close,) = agreement_paragraphs(make_result(paper=(), scores=same))
    assert close.endswith("Nothing is claimed: all differences are within the noise.")


def test_silence_is_told_from_blindness() -> None:
    """Within the noise means little where the paper's difference could not be seen, and something where it could."""
    rows = (PaperRow("MLM", {"SST-2": 80.0}, "mlm"), PaperRow("other", {"SST-2": 70.0}, "near"))
    result = make_result(paper=(PaperTable("table", ("SST-2",), rows),))
    (one,) = compare_with_paper(result)
    assert one.visible == pytest.approx(2.08, abs=0.02)  # t of 3.22 (2.9 degrees) times sqrt((1 + 0.25) / 3)
    assert not one.is_hidden
    (text,) = agreement_paragraphs(result)
    assert text.endswith(
        "within the noise. If as large as in the paper, these would have been seen: nearly in SST-2 accuracy."
    )


def test_a_study_may_speak_for_itself() -> None:
    result = make_result(agreement=("There is nothing to agree on.",))
    assert agreement_paragraphs(result) == ["There is nothing to agree on."]
    assert agreement_table(result) is None
    assert in_short(result) == "told in words"
    assert in_short(make_result()) == "1 the same way, 1 within the noise"


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("MRPC", "MRPC F1"),
        ("SST-2 accuracy", "SST-2 accuracy"),
        ("SST-2", None),
        ("NER, fine-tuned", "CoNLL-2003 F1"),
        ("MNLI", None),
    ],
)
def test_which_measure_a_column_is(column: str, found: str | None) -> None:
    measures = [Measure("SST-2 accuracy"), Measure("SST-2 F1"), Measure("MRPC F1"), Measure("CoNLL-2003 F1")]
    measure = measure_for(column, measures)
    assert (measure.name if measure else None) == found
