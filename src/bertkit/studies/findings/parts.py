"""Models for the studies of finished models: those given, or one a seed, pre-trained by the study's own recipe.

In: a request. Out: checkpoints in the place of runs, so that whatever measures runs measures them too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.inference.loading import open_checkpoint
from bertkit.model.config import BertConfig
from bertkit.model.formats import resolve
from bertkit.studies.jobs import Job
from bertkit.studies.study.config import ArmRecipe
from bertkit.studies.study.request import StudyRequest, Text
from bertkit.studies.study.runs import PlannedRun, plan_run
from bertkit.studies.study.wording import about_runs, names_of
from bertkit.studies.study.work import train_and_measure
from bertkit.tokenizer import Tokenizer
from bertkit.training.checkpoints import fingerprint
from bertkit.training.recipe import Recipe
from bertkit.training.world import choose_device

PLAIN = ArmRecipe("bert", "BERT")


@dataclass(frozen=True)
class GivenModel(PlannedRun):
    """A finished checkpoint in the place of a run."""

    model: str = ""

    def weights(self, look: float = 1.0) -> Path:
        """The checkpoint itself."""
        return Path(self.model)

    @property
    def has_weights(self) -> bool:
        """Nothing has to be trained."""
        return True


def plan_models(request: StudyRequest, text: Text | None, num_given: int = 1) -> list[PlannedRun]:
    """A model for every seed: those given, taken in turn, at least `num_given`; or runs of the scale's recipe."""
    if models := request.finished_models:
        numbers = range(max(num_given, len(models)))
        return [_given(request, models[seed % len(models)], seed) for seed in numbers]
    assert text is not None  # whoever pre-trains has text
    return [plan_run(request, text, PLAIN, seed) for seed in range(request.scale.seeds)]


def _given(request: StudyRequest, model: str, seed: int) -> GivenModel:
    stored = open_checkpoint(model, dtype=None)
    name = f"given-{Path(model).name}-{fingerprint(stored.model.named_parameters())[:10]}-seed{seed}"
    device = choose_device(request.device).type
    recipe = Recipe(steps=1, device="cuda" if device == "cuda" else "cpu")
    return GivenModel(PLAIN.name, seed, recipe, name, request.out, str(resolve(model).resolve()))


def config_of(run: PlannedRun, text: Text | None) -> BertConfig:
    """The shape of a model, before it is trained."""
    if isinstance(run, GivenModel):
        return open_checkpoint(run.model, dtype=None).config
    assert text is not None
    vocab_size = Tokenizer.load(text.tokenizer).vocab_size
    return run.recipe.model.config(vocab_size, next_sentence=run.recipe.data.next_sentence)


def measure_models(
    request: StudyRequest, runs: Sequence[PlannedRun], parts: Sequence[tuple[Job, PlannedRun | None]], vocab_size: int
) -> str | None:
    """Do what is open, and train only the models that it needs; what stopped it, where something did."""
    needed = {run.name for _, run in parts if run is not None}
    absent = [run for run in runs if run.name in needed and not run.has_weights]
    return train_and_measure(request, absent, parts, vocab_size)


def scale_notes(request: StudyRequest) -> tuple[str, ...]:
    """What the scale can show; of given checkpoints it cannot speak."""
    if not request.models and request.scale.notes:
        return request.scale.notes
    names = names_of(request.finished_models)
    return (f"Measured on finished checkpoints ({names}), not on models that the study trained.",) if names else ()


def about_models(runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """What the models are, for `about`."""
    given = [run.model for run in runs if isinstance(run, GivenModel)]
    return {"models": names_of(given)} if given else about_runs(runs)
