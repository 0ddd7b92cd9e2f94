"""Where a shipped model comes from: a pre-training run's folder in; its model, recipe, minutes and scores out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.training.journal import read_journal
from bertkit.training.recipe import NAME as RECIPE


@dataclass(frozen=True)
class Origin:
    """A pre-training run: its model's folder, how long it took, and what the suite measured."""

    model: Path
    recipe: str  # TOML
    steps: int | None
    tokens: int | None
    minutes: float | None
    suite: dict[str, Any] | None

    @classmethod
    def read(cls, source: str, minutes: float | None = None, suite: str | None = None) -> "Origin":
        """From a run's folder or its model's; results.json is looked for in the run's suite/ unless it is named."""
        given = Path(source)
        model = given / "model" if (given / "model" / "config.json").is_file() else given
        if not (model / "config.json").is_file():
            raise BertkitError(f"{source} is no run and no model: there is no config.json; name a pre-training run")
        recipe = model / RECIPE
        steps = [line for line in _journal(model.parent) if line["kind"] == "step"]
        results = Path(suite) if suite else model.parent / "suite" / "results.json"
        if suite and not results.is_file():
            raise BertkitError(f"no file {suite}; name the results.json that `bertkit evaluate --suite` wrote")
        spent = sum(line["seconds"] for line in steps) / 60 if steps else None
        return cls(
            model=model,
            recipe=recipe.read_text(encoding="utf-8") if recipe.is_file() else "",
            steps=steps[-1]["step"] if steps else None,
            tokens=sum(line["tokens"] for line in steps) if steps else None,
            minutes=minutes if minutes is not None else spent,
            suite=json.loads(results.read_text(encoding="utf-8")) if results.is_file() else None,
        )


def _journal(folder: Path) -> list[dict[str, Any]]:
    return read_journal(folder) if (folder / "journal.jsonl").is_file() else []
