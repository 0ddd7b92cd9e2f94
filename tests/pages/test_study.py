"""The page of studies: figures and verdicts, curves that can be compared by pointer and keys, guesses, hostile text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import BertkitError
from bertkit.pages.study import StudyFigures, study_page
from tests.pages.reading import assert_self_contained
from tests.pages.test_browser import ask
from tests.pages.test_pages import HOSTILE


def cell(mean: float, **changes: Any) -> dict[str, Any]:
    plain = {
        "mean": mean, "spread": 1.0, "num_seeds": 3, "interval": None, "values": [mean - 1, mean, mean + 1], "difference": 0.0, "p": 1.0,
        "outside": False, "better": False, "is_best": False, "behind_best": False,
    }  # fmt: skip
    return {**plain, **changes}


def figures(text: str = "plain", name: str = "direction") -> StudyFigures:
    return StudyFigures(
        name=name,
        scale="minutes",
        question=f"Both sides or one? {text}",
        claim=f"Both. {text}",
        paper=[{"source": "table 5", "columns": ["SST-2"], "rows": [{"label": text, "values": {"SST-2": 92.7}, "arm": "mlm"}]}],
        arms=[
            {"name": "mlm", "label": f"both {text}", "settings": ""},
            {"name": "ltr", "label": "left to right", "settings": "objective = ltr"},
            {"name": "near", "label": "nearly", "settings": ""},
        ],
        baseline="mlm",
        measures=[
            {"name": "next-token perplexity", "unit": "", "lower_is_better": True, "decimals": 2},
            {"name": "SST-2 accuracy", "unit": "points", "lower_is_better": False, "decimals": 1},
        ],
        cells={
            "mlm": {"SST-2 accuracy": cell(81.0, is_best=True)},
            "ltr": {
                "SST-2 accuracy": cell(71.0, difference=-10.0, p=0.001, outside=True, behind_best=True),
                "next-token perplexity": cell(55.0, difference=None, p=None, outside=None, is_best=True),
            },
            "near": {"SST-2 accuracy": cell(80.5, num_seeds=1, values=[80.5], interval=[78.5, 82.5])},
        },
        curves=[
            {"arm": arm, "measure": "loss", "x_name": "steps", "unit": "nats", "lower_is_better": True,
             "points": [{"x": x, "values": {"0": level / x, "1": level / x + 0.5}} for x in (1, 10, 100)]}
            for arm, level in (("mlm", 8.0), ("ltr", 6.0))
        ],
        tables=[{"title": text, "columns": ["a", "#b"], "rows": [[text, "1"]]}],
        agreement=[text],
        in_short=f"1 the same way {text}",
        course={"title": text, "columns": ["arm", "#after 10 steps"], "rows": [[text, "+1.0 ▲"]]},
        remark=text,
        notes=[text],
        command=f"bertkit study {text}",
        about=[("device", text)],
        test="Welch's t-test",
    )  # fmt: skip


def test_hostile_text_stays_text() -> None:
    page = assert_self_contained(study_page([figures(HOSTILE)]))
    assert page.data["studies"][0]["claim"] == f"Both. {HOSTILE}"
    assert page.text["title"] == "Why BERT works: its findings, run again"


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(BertkitError, match="no results"):
        study_page([])
    with pytest.raises(BertkitError, match="41 arms"):
        replace(figures(), arms=[{"name": str(number)} for number in range(41)])


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    script = """
        const card = document.getElementById('study-direction'), text = (selector) => card.querySelector(selector).textContent;
        const said = () => card.querySelector('.curves + output').textContent, places = () => [...card.querySelectorAll('.curve circle')].map((dot) => Number(dot.getAttribute('cx')));
        const last = said(), linear = places(), lines = card.querySelectorAll('.curve .mean').length;
        key(card.querySelector('.curve'), 'Home');
        const first = said();
        card.querySelector('.switch.log').click();
        const log = places();
        card.querySelector('.switch.seeds').click();
        const seeds = card.querySelectorAll('.curve .seed').length;
        card.querySelectorAll('.toggle')[0].click();
        const alone = card.querySelectorAll('.curve .mean').length, hidden = said();
        card.querySelectorAll('.toggle')[1].click();
        const none = text('.curves');
        const quiet = getComputedStyle(card.querySelector('.guess')).display;
        document.getElementById('guess-first').click();
        const covered = getComputedStyle(card.querySelector('table').closest('.scroll')).display, hushed = getComputedStyle(document.querySelector('#contents td:last-child')).visibility, listed = getComputedStyle(document.querySelector('#contents table')).display;
        card.querySelectorAll('.choice')[1].click();
        const guess = text('.verdict'), open = getComputedStyle(card.querySelector('table').closest('.scroll')).display;
        card.querySelectorAll('.choice')[2].click();
        const close = text('.verdict');
        return {hushed, listed, quiet, asked: getComputedStyle(card.querySelector('.guess')).display, measure: card.querySelector('.dot-measure').value, contents: document.getElementById('contents').textContent, course: [...card.querySelectorAll('table')].some((one) => one.textContent.includes('after 10 steps')), last, first, linear, log, lines, seeds, alone, hidden, none, covered, guess, open, close, table: text('table'), pressed: card.querySelectorAll('.toggle')[0].getAttribute('aria-pressed'),
            dots: card.querySelectorAll('.dots circle').length, intervals: card.querySelectorAll('.dots .interval').length, links: document.querySelectorAll('#contents a').length, wide: document.documentElement.scrollWidth <= innerWidth, images: document.images.length};
    """
    shown = ask(study_page([figures(HOSTILE), figures(name="other")]), script, tmp_path)["answer"]
    assert shown["last"].startswith("steps 100: both ")
    assert "left to right 0.310 ± 0.354" in shown["last"]
    assert "left to right 6.250 ± 0.354" in shown["first"]
    assert (shown["lines"], shown["alone"], shown["seeds"]) == (2, 1, 4)
    start, middle, end = shown["linear"][:3]
    assert (middle - start) / (end - start) == pytest.approx(9 / 99, abs=1e-3)
    start, middle, end = shown["log"][:3]
    assert (middle - start) / (end - start) == pytest.approx(0.5, abs=1e-3)
    assert shown["pressed"] == "false"
    assert "both" not in shown["hidden"]
    assert shown["none"] == "Switch an arm on to see its curve."
    assert "71.0 ± 1.0 ▼" in shown["table"]
    assert "80.5 ± 1.0 ≈" in shown["table"]
    assert "55.00 ± 1.00" in shown["table"]
    assert "55.00 ± 1.00 ?" not in shown["table"]  # no arm has it to compare with
    assert (shown["quiet"], shown["asked"], shown["measure"]) == ("none", "block", "SST-2 accuracy")
    assert "Both sides or one? plain1 the same way plain" in shown["contents"]
    assert shown["course"]
    assert (shown["hushed"], shown["listed"]) == ("hidden", "table")  # the list stays, its verdicts do not
    assert (shown["covered"], shown["open"]) == ("none", "block")
    assert shown["guess"].startswith("Not here: both")
    assert shown["close"].startswith("Too close to call")
    assert (shown["dots"], shown["intervals"]) == (
        7,
        1,
    )  # one finished model: one dot, and how far draws of examples go
    assert (shown["links"], shown["wide"], shown["images"]) == (2, True, 0)
