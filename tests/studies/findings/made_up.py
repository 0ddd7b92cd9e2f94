"""A result with known figures: left to right is worse outside the noise, a third arm is not, a fourth has one seed."""

from typing import Any

from bertkit.studies.study.result import (
    Arm,
    Curve,
    Measure,
    PaperRow,
    PaperTable,
    Point,
    Score,
    StudyResult,
    TextTable,
)

VALUES: dict[str, dict[str, tuple[float, ...]]] = {  # by arm and measure, a value a seed
    "mlm": {"SST-2 accuracy": (80.0, 81.0, 82.0), "held-out perplexity": (9.0, 9.2, 9.1)},
    "ltr": {"SST-2 accuracy": (70.0, 71.0, 72.0), "held-out perplexity": (12.0, 12.1, 12.2)},
    "near": {"SST-2 accuracy": (80.5, 81.0, 81.5), "held-out perplexity": (9.0, 9.1, 9.2)},
    "once": {"SST-2 accuracy": (60.0,)},
}
MEASURES = (Measure("SST-2 accuracy", "points"), Measure("held-out perplexity", "", lower_is_better=True, decimals=2))


def make_result(**changes: Any) -> StudyResult:
    """The result, with any field changed."""
    scores = [
        Score(arm, measure, seed, value)
        for arm, by_measure in VALUES.items()
        for measure, values in by_measure.items()
        for seed, value in enumerate(values)
    ]
    curves = [
        Curve(arm, name, tuple(Point(x, {"0": level / x, "1": level / x + 1}) for x in (1, 10, 100)), unit=unit)
        for arm, level in (("mlm", 100.0), ("ltr", 50.0))
        for name, unit in (("MLM loss", "nats"), ("SST-2 accuracy", "points"))
    ]
    rows = (
        PaperRow("MLM", {"SST-2": 92.7, "MNLI": 84.0}, "mlm"),
        PaperRow("LTR", {"SST-2": 92.1, "MNLI": 82.1}, "ltr"),
        PaperRow("other", {"SST-2": 92.8}, "near"),
    )
    fields: dict[str, Any] = {
        "name": "direction",
        "scale": "minutes",
        "question": "Is it better to see both sides?",
        "claim": "Bidirectional pre-training beats left to right.",
        "paper": (PaperTable("table 5 of the paper", ("MNLI", "SST-2"), rows),),
        "arms": (
            Arm("mlm", "both sides"),
            Arm("ltr", "left to right", {"objective": "ltr"}),
            Arm("near", "nearly"),
            Arm("once", "one seed"),
        ),
        "baseline": "mlm",
        "measures": MEASURES,
        "scores": tuple(scores),
        "curves": tuple(curves),
        "tables": (TextTable("Losses", ("arm", "loss"), (("a|b", "1.0"),)),),
        "notes": ("Too small to show much.",),
        "remark": "Written by hand.",
        "command": "bertkit study direction --scale minutes -o out",
        "about": {"device": "CPU", "minutes": 9.5},
    }
    return StudyResult(**{**fields, **changes})
