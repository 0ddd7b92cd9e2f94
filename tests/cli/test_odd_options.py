"""Options that make no sense, alone or together: refused in one line before any work is done."""

from pathlib import Path
from typing import Any

import pytest

from bertkit.cli.serve import read_keys
from bertkit.errors import BertkitError
from tests.cli.running import refusal

HUGE = "9" * 30
MANY = {
    "prepare": ("x.txt", "-t", "x", "-o", "x"),
    "evaluate": ("-m", "x", "--suite", "-o", "x"),
    "study": ("direction", "-o", "x"),
    "serve": ("x",),
}
REFUSED: list[Any] = [
    # seeds that the random generators do not take
    (("demo", "--from-scratch", "--seed", "-1"), "--seed"),
    (("demo", "--from-scratch", "--seed", HUGE), "--seed"),
    (("explain", "a", "--mask", "--seed", HUGE), "--seed"),
    (("train-head", "x.parquet", "-o", "x", "--seed", "-1"), "--seed"),
    (("train-head", "x.parquet", "-o", "x", "--seed", HUGE), "--seed"),
    (("tune-vectors", "--train", "x", "-o", "x", "--seed", "-1"), "--seed"),
    (("finetune", "classification", "--train", "x", "-o", "x", "--set", f"seed={HUGE}"), "seed is 9"),
    # numbers that cannot be
    (("tune-vectors", "--train", "x", "-o", "x", "--max-length", "2"), "--max-length"),
    (("tune-vectors", "--train", "x", "-o", "x", "--learning-rate", "nan"), "learning_rate is nan"),
    (("tune-vectors", "--train", "x", "-o", "x", "--learning-rate", "inf"), "learning_rate is inf"),
    (("finetune", "classification", "--train", "x", "-o", "x", "--set", "learning_rate=nan"), "learning_rate is nan"),
    (("finetune", "classification", "--train", "x", "-o", "x", "--seeds", "0"), "--seeds"),
    (("finetune", "classification", "--train", "x", "-o", "x", "--grid", "big"), "no grid is named 'big'"),
    (("bench", "-m", "x", "--threads", "-1"), "--threads"),
    (("bench", "-m", "x", "--threads", "0"), "--threads"),
    (("vocab", "train", "x", "-o", "x", "--size", "99999999999"), "--size"),
    (("evaluate", "-m", "x", "--suite", "-o", "x", "--workers", "-1"), "--workers"),
    (("study", "direction", "-o", "x", "--workers", "-1"), "--workers"),
    *(((verb, *given, "--workers", HUGE), "--workers") for verb, given in MANY.items()),
    (("serve", "x", "--threads", HUGE), "--threads"),
    (("bench", "-m", "x", "--threads", HUGE), "--threads"),
    (("serve", "x", "--deadline", "nan"), "deadline is nan"),
    (("serve", "x", "--client-timeout", "0"), "--client-timeout is 0"),
    (("answer", "-m", "x", "-q", "a", "-c", "b", "--no-answer-threshold", "nan"), "--no-answer-threshold"),
    # options that would be passed over
    (("tag", "-m", "x", "a", "--long", "truncate", "--stride", "3"), "--stride is for windows"),
    (("answer", "-m", "x", "-q", "a", "-c", "b", "--long", "error", "--stride", "3"), "--stride is for windows"),
    (("explain", "a", "--not-next"), "--not-next is about a pair"),
    (("export", "-m", "x", "--column", "text=a"), "--column is about the file of --evaluate"),
    (("evaluate", "-m", "x", "--data", "x.csv", "-o", "x"), "--output is for --suite"),
    (("evaluate", "-m", "x", "--data", "x.csv", "--tasks", "CoLA"), "--tasks is for --suite"),
    (("evaluate", "-m", "x", "--data", "x.csv", "--workers", "2"), "--workers is for --suite"),
    (("evaluate", "-m", "x", "--suite", "-o", "x", "--skip-bad"), "--skip-bad is not for --suite"),
    (("evaluate", "-m", "x", "--suite", "-o", "x", "--long", "error"), "--long is not for --suite"),
    (("study", "direction", "-o", "x", "--docs", "docs"), "--docs is for"),
    (("bench",), "--model"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=lambda value: "" if isinstance(value, str) else value[0])
def test_refused_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_no_words_to_choose_from_is_not_all_words(folder: Path) -> None:
    assert "'' is not one piece" in refusal("fill-mask", "-m", str(folder), "a [MASK]", "--candidates", "")


@pytest.mark.parametrize("seed", ["-1", HUGE])
def test_a_seed_that_torch_does_not_take(seed: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("steps = 3\n")
    assert "seed below 2**63" in refusal("pretrain", str(tmp_path / "recipe.toml"), "--set", f"seed={seed}")


@pytest.mark.parametrize("minutes", ["nan", "inf"])
def test_a_time_that_never_ends_is_no_budget(minutes: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("steps = 3\n")
    assert "must be above 0" in refusal("pretrain", str(tmp_path / "recipe.toml"), "--minutes", minutes)


def test_api_keys_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    with pytest.raises(BertkitError, match="not UTF-8"):
        read_keys(tmp_path / "keys")
