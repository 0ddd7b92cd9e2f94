"""Does the fast path learn what the plain one learns? Held-out loss after the same steps, several seeds of each.

    python -m bench.pretrain_curves recipes/small-h200.toml --steps 1000 --seeds 3 --set data.store=FOLDER ...
    python -m bench.pretrain_curves --judge plain.json fast.json eight.json   # ways that were trained side by side

plain is torch's own bf16, fast our kernels in bf16, eight the same with most products in eight bits. A way of computing
keeps its place if its held-out losses lie within the range of the plain seeds, or below it.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bertkit.training.journal import read_journal
from bertkit.training.recipe import Recipe, read_recipe
from bertkit.training.run import run_pretraining

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"kernels": "plain", "eight_bits": False, "compile": False},
    "fast": {"kernels": "fast", "eight_bits": False},
    "eight": {"kernels": "fast", "eight_bits": True},
}


def train(recipe: Recipe) -> dict[str, Any]:
    """One run from nothing, its figures at the end."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_pretraining(recipe, Path(folder))
        rates = [line["tokens_per_second"] for line in read_journal(Path(folder)) if line["kind"] == "step"]
    assert result.evaluation is not None
    speed = median(rates)
    return {"loss": result.evaluation["mlm_loss"], "nsp": result.evaluation["nsp_accuracy"], "tokens_per_second": speed}


def judge(rows: list[dict[str, Any]]) -> str:
    """A line a way: its losses, and whether they lie within the range of the plain ones."""
    plain = [row["loss"] for row in rows if row["way"] == "plain"]
    lines = []
    for way in dict.fromkeys(row["way"] for row in rows):
        losses = [row["loss"] for row in rows if row["way"] == way]
        verdict = "no plain runs to compare with"
        if plain:
            verdict = "within" if max(losses) <= max(plain) else "BEYOND"
        mean = sum(losses) / len(losses)
        lines.append(f"{way:6} mean {mean:.4f}, {min(losses):.4f} to {max(losses):.4f}: {verdict}")
    return "\n".join(lines)


def main() -> None:
    """Train every way with every seed, then judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--judge", type=Path, nargs="+", metavar="JSON")
    given = parser.parse_args()
    if given.judge:
        print(judge([row for path in given.judge for row in json.loads(path.read_text(encoding="utf-8"))]))
        return
    if given.recipe is None:
        parser.error("give a recipe to train, or --judge what was trained")
    recipe = read_recipe(given.recipe, given.changes, minutes=1.0)
    recipe = replace(recipe, minutes=None, steps=given.steps, tensorboard=False)
    recipe = replace(recipe, evaluation=replace(recipe.evaluation, every_steps=0))
    recipe = replace(recipe, checkpoints=replace(recipe.checkpoints, every_steps=0))
    rows = []
    for way in given.ways:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            row = {"way": way, "seed": seed, **train(replace(recipe, seed=seed, **WAYS[way]))}
            rows.append(row)
            if given.json:  # anew after every run: a run that is killed leaves those before it
                given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            print(f"{way:6} seed {seed}: held-out MLM loss {row['loss']:.4f}, NSP {row['nsp']:.1%}, "
                  f"{row['tokens_per_second'] / 1e3:,.0f} k tokens/s", flush=True)  # fmt: skip
    print(judge(rows))


if __name__ == "__main__":
    main()
