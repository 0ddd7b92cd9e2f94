"""Makes the models that come with bertkit out of two pre-training runs, with one command:

    python -m bench.ship --small RUN --mini RUN --data DATA -o src/bertkit/bundled

small-en is the first run's model in half precision; the task models are the second run's encoder, fine-tuned as
ship.toml says and stored in eight bits. Each folder gets its card, with scores before and after the rounding.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.ship_cards import small_card, task_card
from bench.ship_origin import Origin
from bench.ship_tasks import MadeTask, TaskModel, make_task_model
from bertkit.bundled import MODELS
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load, open_checkpoint
from bertkit.model.dropout import set_dropout
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.held_out import measure_held_out
from bertkit.studies.suite_config import HeldOutConfig, read_suite
from bertkit.training.recipe import NAME as RECIPE
from bertkit.training.toml_text import read_toml, to_dataclass, to_plain, write_toml

SETTINGS = Path(__file__).with_name("ship.toml")
SMALL = "small-en"
MOST_SMALL, MOST_ALL = 60_000_000, 100_000_000  # bytes


@dataclass(frozen=True)
class ShipSettings:
    """ship.toml."""

    models: tuple[TaskModel, ...]
    dropout: float = 0.1


@dataclass(frozen=True)
class Shipment:
    """One call: where things come from and go."""

    small: Origin
    mini: Origin
    data: DataFolder
    out: Path
    settings: ShipSettings
    only: tuple[str, ...] = ()
    device: str = "auto"
    trained_on: str = "one NVIDIA H200"
    limit: int | None = None  # examples of each set, to try the way; cards then say so

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in MODELS:
                raise BertkitError(f"no bundled model is named {name!r}; choose from {', '.join(MODELS)}")


def ship(shipment: Shipment, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Make every model asked for; what was measured comes back."""
    measured: dict[str, Any] = {}
    makers = {model.name: partial(make_task, shipment, model) for model in shipment.settings.models}
    makers = {SMALL: partial(make_small, shipment), **makers}
    shipment.out.mkdir(parents=True, exist_ok=True)
    for name, make in makers.items():
        if shipment.only and name not in shipment.only:
            continue
        with tempfile.TemporaryDirectory(prefix=".making-", dir=shipment.out) as aside:
            folder = Path(aside) / name
            measured[name] = make(folder)
            shutil.rmtree(shipment.out / name, ignore_errors=True)
            folder.rename(shipment.out / name)
        measured[name]["bytes"] = folder_bytes(shipment.out / name)
        say(f"{name}: {json.dumps(measured[name])}")
    check_sizes(shipment.out)
    return measured


def make_small(shipment: Shipment, folder: Path) -> dict[str, Any]:
    """The encoder in half precision, with the dropout that fine-tuning wants in its config."""
    origin = shipment.small
    bert = open_checkpoint(origin.model, dtype=torch.float32)
    set_dropout(bert.model, shipment.settings.dropout)
    bert.save(folder, dtype=torch.float16)
    (folder / RECIPE).write_text(origin.recipe, encoding="utf-8")
    before, after = (held_out(shipment, place) for place in (origin.model, folder))
    card = small_card(origin, bert.config, before, after, shipment.trained_on, shipment.limit)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return {"before": before, "after": after}


def held_out(shipment: Shipment, model: Path) -> dict[str, Any]:
    """The first length's figures on held-out text, in float32."""
    bert: Bert = load(model, device=shipment.device, dtype="float32")
    whole: HeldOutConfig = read_suite().held_out
    config = replace(whole, lengths=whole.lengths[:1])
    store = shipment.data.store(config.file, bert.tokenizer)
    found = measure_held_out(bert, store, config, shipment.limit)
    return {name: value for name, value in found.items() if name != "lengths"}


def make_task(shipment: Shipment, model: TaskModel, folder: Path) -> dict[str, Any]:
    """A task model, its settings and its card."""
    mini, settings = shipment.mini, shipment.settings
    made: MadeTask = make_task_model(
        model,
        str(mini.model),
        shipment.data,
        folder,
        dropout=settings.dropout,
        device=shipment.device,
        limit=shipment.limit,
    )
    (folder / RECIPE).write_text(write_toml(to_plain(model.setting)), encoding="utf-8")
    card = task_card(model, mini, made, shipment.trained_on, shipment.limit)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return {"before": made.before.scores, "after": made.after.scores, "agreement": made.agreement}


def folder_bytes(folder: Path) -> int:
    """Of all its files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check_sizes(out: Path) -> None:
    """What ships stays small."""
    sizes = {name: folder_bytes(out / name) for name in MODELS if (out / name).is_dir()}
    if sizes.get(SMALL, 0) >= MOST_SMALL or sum(sizes.values()) >= MOST_ALL:
        told = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items())
        raise BertkitError(f"too large to ship: {told}; {SMALL} stays under 60 MB and all under 100 MB")


def parse(arguments: Sequence[str] | None = None) -> Shipment:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.ship", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", required=True, help="the pre-training run (or model folder) of small-en")
    parser.add_argument("--mini", required=True, help="the pre-training run (or model folder) of the task models")
    parser.add_argument("--data", help="the folder with corpus/ and tasks/; else BERTKIT_DATA")
    parser.add_argument("-o", "--out", default="src/bertkit/bundled", type=Path)
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME", help="make these alone")
    for name in ("small", "mini"):
        parser.add_argument(f"--{name}-suite", help="results.json of its evaluation; else RUN/suite/results.json")
        parser.add_argument(f"--{name}-minutes", type=float, help="of its pre-training; else the journal's")
    parser.add_argument("--trained-on", default=Shipment.trained_on, help="the pre-training's device, for the cards")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, help="examples of each set, to try the way")
    parser.add_argument("--settings", default=SETTINGS, type=Path)
    given = parser.parse_args(arguments)
    return Shipment(
        small=Origin.read(given.small, given.small_minutes, given.small_suite),
        mini=Origin.read(given.mini, given.mini_minutes, given.mini_suite),
        data=DataFolder.open(given.data),
        out=given.out,
        settings=to_dataclass(ShipSettings, read_toml(given.settings)),
        only=tuple(given.only),
        device=given.device,
        trained_on=given.trained_on,
        limit=given.limit,
    )


def main() -> None:
    """Run; bad input is one line."""
    try:
        ship(parse())
    except BertkitError as error:
        sys.exit(f"bench.ship: {error}")


if __name__ == "__main__":
    main()
