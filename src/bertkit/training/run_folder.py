"""The folder of a run, made or checked before anything is trained, and what else a repetition must have alike."""

import platform
from pathlib import Path

import torch

import bertkit
from bertkit.errors import BertkitError
from bertkit.training.checkpoints import CheckpointFolder
from bertkit.training.recipe import NAME, Recipe, read_recipe, refuse_changes


def prepare_folder(recipe: Recipe, out: Path, checkpoints: CheckpointFolder, *, resume: bool) -> None:
    """Check that the folder is free or holds this run; the recipe is written beside its checkpoints."""
    begun = checkpoints.last_step() is not None
    if begun and not resume:
        raise BertkitError(f"{out} already holds a run; go on with --resume, or choose another folder with --out")
    if not begun and (out / "config.json").is_file():
        raise BertkitError(f"{out} holds a model; choose another folder for the run with --out")
    if begun:
        refuse_changes(read_recipe(out / NAME), recipe)
    try:
        checkpoints.clean()
        fresh = out / f".writing-{NAME}"
        fresh.write_text(recipe.to_toml(), encoding="utf-8")
        fresh.replace(out / NAME)  # never half-written
    except OSError as error:
        raise BertkitError(f"{out} cannot be written: {error.strerror or error}; choose another with --out") from None


def versions() -> dict[str, str]:
    """What a bit-for-bit repetition needs to be equal."""
    return {"bertkit": bertkit.__version__, "torch": torch.__version__, "python": platform.python_version()}
