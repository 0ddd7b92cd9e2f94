"""Agreement is told from the numbers alone: signs outside the noise, and nothing where seeds are too few."""

import pytest

from bertkit.studies.findings.agreement import agreement_paragraphs, compare_with_paper, measure_for
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
    assert "left to right, SST-2 accuracy: +10.0 in the paper, -10.0 here" in text
    assert text.endswith("the other way.")


def test_one_seed_says_nothing() -> None:
    rows = (PaperRow("MLM", {"SST-2": 80.0}, "mlm"), PaperRow("x", {"SST-2": 70.0}, "once"))
    result = make_result(paper=(PaperTable("table", ("SST-2",), rows),))
    assert [one.verdict for one in compare_with_paper(result)] == ["too few seeds"]


def test_the_paragraphs_count_verdicts() -> None:
    many, listed = agreement_paragraphs(make_result())
    assert many == ("Of 2 differences that the paper also measured: 1 the paper's way, 1 within the noise.")
    assert "nearly, SST-2 accuracy: +0.1 in the paper (small), +0.0 here" in listed
    (alone,) = agreement_paragraphs(make_result(paper=()))
    assert "left to right, held-out perplexity: +3.00" in alone
    assert "nearly" not in alone
    (nothing,) = agreement_paragraphs(make_result(paper=(), scores=()))
    assert nothing == "Too little is measured yet to compare anything."
    same = tuple(score for score in make_result().scores if score.arm in ("mlm", "near"))
    (close,) = agreement_paragraphs(make_result(paper=(), scores=same))
    assert close.endswith("Nothing is claimed: all differences are within the noise.")


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
