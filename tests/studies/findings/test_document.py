"""docs/findings.md and its plots: every figure beside the paper's, the same bytes for the same result."""

from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.studies.findings.document import write_findings
from bertkit.studies.findings.figures import best_arm, study_figures
from bertkit.studies.study.result import Draws
from tests.pages.reading import assert_self_contained
from tests.studies.findings.made_up import MEASURES, make_result


def test_the_document_has_every_figure(tmp_path: Path) -> None:
    text = write_findings([make_result()], tmp_path).read_text()
    for line in (
        "| **MLM** | 84.0 | 92.7 |",
        "| other | – | 92.8 |",
        "| **both sides** | 81.0 ± 1.0 | 9.10 ± 0.10 |",
        "| left to right | 71.0 ± 1.0 ▼ | 12.10 ± 0.10 ▼ |",
        "| nearly | 81.0 ± 0.5 ≈ | 9.10 ± 0.10 ≈ |",
        "| one seed | 60.0 ? | – |",
        "| arm | SST-2 accuracy (points) | held-out perplexity ↓ |",
        "| a\\|b | 1.0 |",
        "![direction scores](findings/direction-scores.svg)",
        "    bertkit study direction --scale minutes -o out",
        "Remark: Written by hand.",
        "Made with device CPU; minutes 9.5.",
        "(findings/index.html)",
    ):
        assert line in text
    assert {path.name for path in (tmp_path / "findings").iterdir()} == {
        "direction-scores.svg",
        "direction-curves.svg",
        "index.html",
    }
    assert_self_contained((tmp_path / "findings" / "index.html").read_text())


def test_figures_with_noise_of_their_own_say_so(tmp_path: Path) -> None:
    name = MEASURES[0].name
    near, once = (
        Draws(arm, name, tuple(base + step / 10 for step in range(-10, 11)))
        for arm, base in (("mlm", 81.0), ("once", 60.0))
    )
    text = write_findings([make_result(draws=(near, once), test="draws of words")], tmp_path).read_text()
    assert "The noise in this study: draws of words." in text
    assert "| one seed | 60.0 ± 0.6 ▼ | – |" in text
    assert "The noise in this study" not in write_findings([make_result()], tmp_path).read_text()


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_findings([make_result(), make_result(name="other", curves=())], tmp_path / name)
    for first in (tmp_path / "a").rglob("*.*"):
        assert first.read_bytes() == (tmp_path / "b" / first.relative_to(tmp_path / "a")).read_bytes()
    assert not (tmp_path / "a" / "findings" / "other-curves.svg").exists()


def test_plots_name_arms_and_measures(tmp_path: Path) -> None:
    write_findings([make_result(question="What costs $5 and $6?")], tmp_path)
    scores = (tmp_path / "findings" / "direction-scores.svg").read_text()
    curves = (tmp_path / "findings" / "direction-curves.svg").read_text()
    assert "both sides" in scores
    assert "held-out perplexity" in scores
    assert "MLM loss (nats)" in curves
    assert "nearly" not in curves  # it has none


def test_nothing_to_write_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="no results to show"):
        write_findings([], tmp_path)
    with pytest.raises(BertkitError, match="cannot write"):
        write_findings([make_result()], Path("/proc/nowhere"))


def test_verdicts_of_the_page() -> None:
    result = make_result()
    cells = study_figures(result).cells
    worse = cells["ltr"]["held-out perplexity"]
    assert (worse["outside"], worse["better"], worse["is_best"], worse["behind_best"]) == (True, False, False, True)
    assert cells["once"]["SST-2 accuracy"]["outside"] is None
    assert "held-out perplexity" not in cells["once"]
    assert best_arm(result, MEASURES[1]) == "mlm"
    assert best_arm(make_result(scores=()), MEASURES[0]) is None
