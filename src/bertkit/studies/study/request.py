"""What a study is asked to do, and what comes of it: the one form in which the registry calls every study."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from bertkit.studies.data_folder import DataFolder
from bertkit.studies.study.config import Scale, StudyRecipe
from bertkit.studies.study.result import StudyResult
from bertkit.studies.suite_config import Suite


@dataclass(frozen=True)
class Text:
    """What is pre-trained on, as folders; held-out text is never trained on."""

    store: str
    tokenizer: str
    held_out: str


@dataclass(frozen=True)
class StudyRequest:
    """One study at one scale. `out` is shared by studies: parts/ and runs/ lie there, and NAME/ with the result."""

    recipe: StudyRecipe
    scale_name: str
    data: DataFolder
    out: Path
    suite: Suite
    text: Text | None = None  # given stores; None: the scale says how text is made
    device: str = "auto"
    workers: int = 0  # processes that share the device; 0 chooses
    models: tuple[str, ...] = ()  # finished checkpoints in the place of those that the scale names or pre-trains
    command: str = ""
    ends_at: float | None = None  # of time.monotonic: no work after this; the same command goes on later
    shown: bool = True
    started: float = field(default_factory=time.monotonic)

    @property
    def scale(self) -> Scale:
        """The settings of this scale."""
        return self.recipe.at(self.scale_name)

    @property
    def finished_models(self) -> tuple[str, ...]:
        """Checkpoints that are measured as they are; none: models are pre-trained."""
        return self.models or self.scale.models

    @property
    def folder(self) -> Path:
        """Where this study's result goes."""
        return self.out / self.recipe.name

    @property
    def parts(self) -> Path:
        """Small files, one for each finished part, shared by all studies: all that is needed to go on elsewhere."""
        return self.out / "parts"

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.ends_at is not None and time.monotonic() >= self.ends_at


@dataclass(frozen=True)
class StudyOutcome:
    """What was found, and what is missing where the study was stopped before its end."""

    result: StudyResult
    folder: Path
    missing: tuple[str, ...] = ()
    stopped_by: str | None = None
