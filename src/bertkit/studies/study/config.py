"""A study as one TOML file: its question, the paper's rows, its arms, and what each scale makes of them.

In: recipes/studies/NAME.toml (they come with bertkit) and `--set key=value`. Out: frozen dataclasses, checked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from bertkit.errors import BertkitError
from bertkit.studies.study.result import PaperTable
from bertkit.studies.suite_config import FinetunedTask, Suite
from bertkit.training.recipe import Recipe
from bertkit.training.toml_text import read_toml, set_value, to_dataclass, unknown_key

ScaleName = Literal["minutes", "gpu"]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)
FOLDER = "recipes"
LOOKS = (0.125, 0.25, 0.5, 1.0)  # shares of a run at which weights are kept: the same for all, so that runs are shared
NUM_LOOKS = round(1 / min(LOOKS))  # equal stretches of a run, at whose ends they lie


@dataclass(frozen=True)
class ArmRecipe:
    """One of the settings that are compared: changes of the pre-training recipe, `table.key` by `table.key`."""

    name: str
    label: str
    set: dict[str, Any] = field(default_factory=dict)  # {"stages.0.masking.rate" = 0.4}


@dataclass(frozen=True)
class TaskUse:
    """A task of the suite as a study uses it; what is not said is as in suite.toml."""

    name: str
    way: Literal["finetune", "features"] = "finetune"  # features: the encoder is frozen, a BiLSTM reads it (tagging)
    limit: int | None = None  # examples of the training files, and of the test set
    learning_rate: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    max_length: int | None = None
    layer: str = "concat-last-4"  # of features
    hidden_size: int = 256  # of the BiLSTM, each way; the paper's has 768

    def __post_init__(self) -> None:
        if self.way not in ("finetune", "features"):
            raise BertkitError(f"task {self.name}: way is finetune or features, not {self.way!r}")
        if self.limit is not None and self.limit < 2:
            raise BertkitError(f"task {self.name}: limit is {self.limit}; give at least 2 examples")

    def of(self, suite: Suite) -> FinetunedTask:
        """The suite's task with these changes."""
        names = [task.name for task in suite.tasks]
        if self.name not in names:
            raise BertkitError(f"no task is named {self.name!r}; choose one of {', '.join(names)}")
        given = {"learning_rate", "batch_size", "epochs", "max_length"}
        changes = {name: getattr(self, name) for name in given if getattr(self, name) is not None}
        return replace(suite.task(self.name), **changes)


@dataclass(frozen=True)
class SmallText:
    """Text and vocabulary that a study makes for itself from the data folder, where no store is given."""

    files: tuple[str, ...] = ("wikipedia-simple.txt",)  # in corpus/
    megabytes: float = 8.0  # of each, from its beginning
    vocab_size: int = 4000
    held_out: str = "validation.txt"

    def __post_init__(self) -> None:
        if not self.files or self.megabytes <= 0:
            raise BertkitError("text: name files of corpus/ and how many megabytes of each to take")


@dataclass(frozen=True)
class Scale:
    """How large a study is."""

    seeds: int = 3
    arms: tuple[str, ...] = ()  # those of the study that this scale has; none: all
    pretrain: dict[str, Any] = field(default_factory=dict)  # a pre-training recipe, without its data
    models: tuple[str, ...] = ()  # finished checkpoints: `features` and `context` measure these and pre-train nothing
    looks: tuple[float, ...] = (1.0,)  # shares of a run at which tasks are measured
    tasks: tuple[TaskUse, ...] = ()
    text: SmallText | None = None
    notes: tuple[str, ...] = ()  # what this scale can show and what it cannot
    remark: str = ""  # a paragraph by hand on what was found; written up without running anything again
    options: dict[str, Any] = field(default_factory=dict)  # of studies that do more than pre-train and measure

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise BertkitError(f"seeds is {self.seeds}; it must be at least 1")
        if not set(self.looks) <= set(LOOKS):
            raise BertkitError(f"looks are some of {', '.join(map(str, LOOKS))}, the shares at which weights are kept")
        if twice := [use for use, times in Counter((use.name, use.way) for use in self.tasks).items() if times > 1]:
            raise BertkitError(
                f"task {twice[0][0]} is named twice with way = {twice[0][1]!r}; one study measures it once"
            )


@dataclass(frozen=True)
class Scales:
    """One table a scale."""

    minutes: Scale
    gpu: Scale


@dataclass(frozen=True)
class StudyRecipe:
    """One study."""

    name: str
    question: str
    claim: str  # what the paper found
    scale: Scales
    arms: tuple[ArmRecipe, ...] = ()
    baseline: str = ""
    looks_are_arms: bool = False  # one run, and what is compared are its moments
    paper: tuple[PaperTable, ...] = ()
    notes: tuple[str, ...] = ()  # at every scale

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise BertkitError(f"study {self.name}: two arms have the same name; give each its own")
        for scale in (self.scale.minutes, self.scale.gpu):
            for name in scale.arms:
                if name not in names:
                    raise BertkitError(unknown_key(name, name, names, "no arm is"))

    def at(self, name: str) -> Scale:
        """The scale of this name."""
        if name not in SCALES:
            raise BertkitError(f"unknown scale {name!r}; choose one of {', '.join(SCALES)}")
        found: Scale = getattr(self.scale, name)
        return found

    def arms_at(self, name: str) -> tuple[ArmRecipe, ...]:
        """The arms that this scale has."""
        wanted = self.at(name).arms
        return tuple(arm for arm in self.arms if not wanted or arm.name in wanted)


def study_names() -> list[str]:
    """All studies that come with bertkit."""
    folder = resources.files(__package__).joinpath(FOLDER)
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_study(
    name: str, changes: Iterable[str] = (), *, path: str | Path | None = None, seeds: int | None = None
) -> StudyRecipe:
    """The study of this name, or of a TOML file; `--set scale.minutes.pretrain.steps=20` changes a key."""
    if path is None and name not in study_names():
        raise BertkitError(unknown_key(name, name, study_names(), "no study is"))
    plain = {"name": name, **(read_toml(Path(path)) if path else _own(FOLDER, f"{name}.toml"))}
    common = _own("scales.toml")
    plain["scale"] = {scale: _merge_scale(common[scale], plain.get("scale", {}).get(scale, {})) for scale in SCALES}
    written = {scale: plain["scale"][scale].get("models", []) for scale in SCALES}
    for change in changes:
        set_value(plain, change)
    for scale in SCALES:
        if plain["scale"][scale].get("models", []) != written[scale]:
            plain["scale"][scale] |= {"notes": [], "remark": ""}  # they speak of the models that they were written for
        plain["scale"][scale]["tasks"] = _known_tasks(plain["scale"][scale].get("tasks", []), common[scale]["tasks"])
        plain["scale"][scale] |= {"seeds": seeds} if seeds is not None else {}
    return to_dataclass(StudyRecipe, plain)


def _own(*path: str) -> dict[str, Any]:
    """A TOML file that comes with bertkit."""
    with resources.as_file(resources.files(__package__).joinpath(*path)) as file:
        return read_toml(file)


def _merge_scale(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What all studies of a scale share, under what this one says; its tasks are named or written out."""
    shared = {key: value for key, value in common.items() if key != "tasks"}
    return {**_merge(shared, own), "tasks": _known_tasks(own.get("tasks", []), common["tasks"])}


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Tables key by key; anything else is replaced."""
    merged: dict[str, Any] = _copy(under)
    for key, value in over.items():
        is_table = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if is_table else _copy(value)
    return merged


def _known_tasks(tasks: list[Any], known: dict[str, Any]) -> list[dict[str, Any]]:
    """Tables for names."""
    for task in tasks:
        if isinstance(task, str) and task not in known:
            raise BertkitError(unknown_key(task, task, list(known), "no task is"))
    return [{"name": task, **known[task]} if isinstance(task, str) else dict(task) for task in tasks]


def pretraining_recipe(scale: Scale, arm: ArmRecipe, seed: int, data: Mapping[str, str]) -> Recipe:
    """The run of one arm and one seed: everything that the scale says, then what the arm changes."""
    plain = _copy(scale.pretrain)
    plain.setdefault("stages", [{}])
    for key, value in arm.set.items():
        _put(plain, key, value)
    plain["data"] = {**plain.get("data", {}), **data}
    plain["seed"] = seed
    steps = plain.get("steps")
    if not isinstance(steps, int) or steps % NUM_LOOKS:
        raise BertkitError(f"pretrain.steps is {steps}; give a multiple of {NUM_LOOKS}, for looks on the way")
    every = steps // NUM_LOOKS
    # The best weights so far are saved too, so looks at held-out text at other steps would push out weights to keep.
    plain["checkpoints"] = {"every_steps": every, "keep": NUM_LOOKS + 1}
    plain["evaluation"] = {**plain.get("evaluation", {}), "every_steps": every}
    return to_dataclass(Recipe, plain)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _put(plain: dict[str, Any], key: str, value: Any) -> None:
    """`table.key` or `stages.0.masking.rate`; tables on the way are made."""
    *path, last = key.split(".")
    place: Any = plain
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    place[last] = value
