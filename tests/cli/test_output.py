"""What commands print for programs."""

import json

import pytest

from bertkit.cli.output import print_json


def test_json_has_no_nan_and_no_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"scores": [float("nan"), (float("inf"), 0.5)], "é": -float("inf")})
    shown = capsys.readouterr().out
    assert json.loads(shown, parse_constant=pytest.fail) == {"scores": [None, [None, 0.5]], "é": None}


def test_json_is_one_document_with_its_texts_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"é": [1, 0.25, "中"]})
    assert capsys.readouterr().out == '{\n  "é": [\n    1,\n    0.25,\n    "中"\n  ]\n}\n'
