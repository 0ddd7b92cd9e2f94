"""A recipe becomes a run: from data and weights through the loop to checkpoints, journal, report and a model to use.

The folder of a run: bertkit.toml (the resolved recipe), journal.jsonl, checkpoints/ (with `last` and `best`), and at
the end model/ (an ordinary BERT folder with its card) and report.html. Only the first process writes.
"""

import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.text.folders import make_folder, only_one
from bertkit.training.budget import TimeBudget, TimedPlan, TimedSchedule, count_looks
from bertkit.training.checkpoints import Checkpoint, CheckpointFolder, fingerprint
from bertkit.training.data import RunData
from bertkit.training.determinism import deterministic_algorithms
from bertkit.training.evaluation import Evaluation, evaluate, evaluation_indices
from bertkit.training.feeds import Feed
from bertkit.training.flops import step_flops
from bertkit.training.growth import Growth
from bertkit.training.journal import Journal, mean_values
from bertkit.training.layer_watch import LayerWatch
from bertkit.training.loop import Progress, StepRecord, Trainer
from bertkit.training.optimizers.build import build_optimizers, export_state, import_state
from bertkit.training.recipe import Recipe
from bertkit.training.roles import Plan, Schedule
from bertkit.training.run_folder import prepare_folder, versions
from bertkit.training.sharding import gather_all, gather_model, shard_objective
from bertkit.training.start import fresh_model, refuse_other_text, refuse_other_tokens, warn_of_other_figures
from bertkit.training.watch import DivergedError, Guard, StopRequest, catch_signals
from bertkit.training.world import World, join_world


class Observer(Protocol):
    """Somebody who watches a run."""

    def on_step(self, values: dict[str, Any], progress: Progress) -> None:
        """New figures of the last steps."""

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """New figures on held-out text."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    folder: str
    step: int
    num_steps: int | None
    stopped_by: str | None  # None: it reached its end
    tokens: int
    seconds: float  # of training steps, over all resumptions
    evaluation: dict[str, Any] | None
    weights_sha256: str
    optimizer_sha256: str


def run_pretraining(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    data: RunData | None = None,
    observer: Observer | None = None,
) -> RunResult:
    """Train as the recipe says, or go on where the run in `out` was when it was killed."""
    started = time.monotonic()  # a time budget covers everything from here on
    with join_world(recipe.device) as world, catch_signals() as stop:
        resolved = recipe.resolve(world.device)
        with deterministic_algorithms(bool(resolved.deterministic)):
            if data is None:
                from bertkit.training.opening import open_data

                data = open_data(resolved)
            try:
                with only_one(make_folder(Path(out))) if world.is_first else nullcontext():
                    return Run(resolved, Path(out), data, world, observer, resume=resume, started=started).run(stop)
            except torch.OutOfMemoryError as error:
                raise BertkitError(
                    "out of GPU memory: halve tokens_per_batch of the stages, double micro_batches and begin a new run "
                    "with another --out"  # a run that has begun keeps its stages
                ) from error


class Run:
    """One run in one process."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        data: RunData,
        world: World,
        observer: Observer | None,
        *,
        resume: bool,
        started: float,
    ) -> None:
        self.recipe, self.out, self.data, self.world, self.observer = recipe, out, data, world, observer
        self.started = started
        self.watch: LayerWatch | None = None
        self.checkpoints = CheckpointFolder(out / "checkpoints", recipe.checkpoints.keep)
        if world.is_first:
            prepare_folder(recipe, out, self.checkpoints, resume=resume)
        world.agree(0)  # the others wait for the folder
        found = self.checkpoints.load() if resume else None
        if found:
            last = self.checkpoints.folder / "last"
            refuse_other_tokens(str(last), last, found.model.config, data.tokenizer)
            refuse_other_text(found.state.get("text"), data.content, out)
            warn_of_other_figures(found.state.get("held_out_texts"), data.held_out_contents, out)
        self.model = (found.model if found else fresh_model(recipe, data.tokenizer)).to(world.device)
        sharded = recipe.parallel == "fsdp" and world.size > 1
        self.objective = shard_objective(self.model, world.device, recipe.dtype) if sharded else None
        self.trainer = self._make_trainer(found)
        self.best = math.inf if found is None else _or_infinite(found.state["best_loss"])
        self.evaluation: dict[str, Any] | None = found.state["evaluation"] if found else None
        self.saved_step = found.state["step"] if found else -1
        self.journal: Journal | None = None
        if world.is_first:
            position = found.state["journal_bytes"] if found else 0
            begins = found.state["step"] + 1 if found else 0  # the step of the first line to come
            self.journal = Journal(out, position, tensorboard=recipe.tensorboard, step=begins)

    def _make_trainer(self, found: Checkpoint | None) -> Trainer:
        recipe = self.recipe
        progress, guard = Progress(recipe.steps), Guard()
        optimizers = build_optimizers(self.model, recipe.optimizer)
        if found:
            import_state(optimizers, self.model, self._stored_state(found))
            state = found.state
            progress = Progress(**{name: state[name] for name in Progress.__dataclass_fields__ if name in state})
            guard = Guard.from_json(state["guard"])
        plan, schedule, budget = self._lengths(progress)
        parts = (self.model, self.data.train, plan, optimizers, schedule)
        trainer = Trainer(*parts, recipe.loop_options, progress, self.world, guard, self.objective, budget)
        trainer.loss_scale = found.state.get("loss_scale") if found else None
        trainer.lengths = tuple(stage.max_length for stage in recipe.stages)
        trainer.repeats_positions = recipe.model.positions == "repeated"
        if recipe.growth.layers:
            trainer.growth = Growth(recipe.growth, recipe.num_layers, recipe.optimizer)
        if recipe.log_layers and self.world.is_first:
            trainer.watch = self.watch = LayerWatch(self.model, recipe.log_layers)
        return trainer

    def _stored_state(self, found: Checkpoint) -> Mapping[str, Tensor]:
        if not found.shards:
            return found.optimizer
        from bertkit.training.checkpoint_shards import read_shards  # slow to import

        return read_shards(found.shards, self.model)

    def _lengths(self, progress: Progress) -> tuple[Plan, Schedule, TimeBudget | None]:
        """By steps, or by time."""
        recipe = self.recipe
        if recipe.minutes is None:
            return recipe.plan, recipe.schedule, None
        looks = count_looks(recipe.evaluation.every_steps, recipe.checkpoints.every_steps)
        budget = TimeBudget(60.0 * recipe.minutes, progress, looks, started=self.started)
        return TimedPlan(recipe.plan, progress), TimedSchedule(recipe.schedule, progress), budget

    def run(self, stop: StopRequest) -> RunResult:
        """To the end, to a signal, or to an error that leaves the last checkpoint good."""
        trainer, progress = self.trainer, self.trainer.progress
        try:
            if self.saved_step < 0:  # measured and saved before anything is trained
                trainer.begin_feeding()
                self._look(0)
                if trainer.budget:
                    trainer.budget.looked()
            trainer.run(self._on_records, self._is_due, self._look, stop)
            if self.saved_step < progress.step:
                self._save(is_best=False)
        except DivergedError as error:
            last = self.checkpoints.last_step()
            raise BertkitError(
                f"{error}; the last good checkpoint is step {last} in {self.checkpoints.folder}"
            ) from None
        finally:
            trainer.source.close()
            if self.journal:
                self.journal.close()
        if trainer.is_finished:
            self._finish()
        return self._result()

    def _finish(self) -> None:
        """Write the model, its card and the report."""
        if self.trainer.growth:
            self.trainer.growth.refuse_half_grown(self.model)
        model = gather_model(self.model, keep=self.world.is_first)
        if model is None:
            return
        from bertkit.training.finish import finish_run

        try:
            finish_run(self.recipe, self.out, model, self.data, self.trainer.progress)
        except (OSError, BertkitError) as error:
            why = getattr(error, "strerror", None) or error
            raise BertkitError(
                f"the run is done, but its model cannot be written to {self.out}: {why}; make room, then --resume"
            ) from error

    def _on_records(self, records: list[StepRecord]) -> None:
        if not self.journal:
            return
        lengths = [self.recipe.stages[self._stage(record.step)].max_length for record in records]
        flops = [step_flops(self.model.config, r.counts, n) for r, n in zip(records, lengths, strict=True)]
        values = mean_values(records, flops)
        self.journal.write("step", values)
        for line in self.watch.take() if self.watch else ():
            self.journal.write("layers", line)
        if self.observer:
            self.observer.on_step(values, self.trainer.progress)

    def _stage(self, step: int) -> int:
        return self.trainer.plan.locate(step, self.trainer.progress.num_steps).stage

    def _is_due(self, step: int) -> bool:
        every = (self.recipe.evaluation.every_steps, self.recipe.checkpoints.every_steps)
        return self.trainer.is_finished or any(n and step % n == 0 for n in every)

    def _look(self, step: int) -> None:
        """Evaluate and save, as far as they are due after this step."""
        ends = step == 0 or self.trainer.is_finished
        evaluations, checkpoints = self.recipe.evaluation.every_steps, self.recipe.checkpoints.every_steps
        is_best = False
        if self.data.held_out and (ends or (evaluations and step % evaluations == 0)):
            is_best = self._evaluate(step)
        if ends or is_best or (checkpoints and step % checkpoints == 0):
            self._save(is_best=is_best)

    def _evaluate(self, step: int) -> bool:
        """Measure held-out text; True where it is the best yet."""
        assert self.data.held_out is not None
        found = self._measure(self.data.held_out)
        values = {"step": step, **found.to_json()}
        if self.data.old_held_out:
            old = self._measure(self.data.old_held_out).to_json()
            values |= {f"old_{name}": value for name, value in old.items()}
        self.evaluation = values
        if self.journal:
            self.journal.write("evaluation", values)
            if self.observer:
                self.observer.on_evaluation(values)
        is_best, self.best = found.loss < self.best, min(self.best, found.loss)
        return is_best

    def _measure(self, feed: Feed) -> Evaluation:
        indices = evaluation_indices(feed, self.recipe.evaluation)
        return evaluate(self.trainer.plain_objective, feed, indices, self.world)

    def _save(self, *, is_best: bool) -> None:
        progress = self.trainer.progress
        self.saved_step = progress.step
        model, optimizer = self._gather()
        if not self.journal or model is None:
            return
        place = self.trainer.plan.locate(progress.step, progress.num_steps)
        state = {
            **asdict(progress),
            "data": {"stage": place.stage, "micro_batch": place.first},
            "text": self.data.content,
            "held_out_texts": list(self.data.held_out_contents),
            "random": {"seed": self.recipe.seed, "rule": "dropout is keyed by (seed, stage, micro-batch)"},
            "best_loss": self.best if math.isfinite(self.best) else None,
            "evaluation": self.evaluation,
            "loss_scale": self.trainer.loss_scale,
            "guard": self.trainer.guard.to_json(),
            "journal_bytes": self.journal.position(),
            "world_size": self.world.size,
            "versions": versions(),
        }
        self.checkpoints.save(model, self.data.tokenizer, optimizer, state, is_best=is_best)

    def _gather(self) -> tuple[BertModel | None, dict[str, Tensor] | None]:
        """The whole model for the process that writes, and the optimizer's state, unless all write their shards of it."""
        tensors = export_state(self.trainer.optimizers, self.model)
        model = gather_model(self.model, keep=self.world.is_first)
        if self.objective and self.recipe.checkpoints.sharded:
            self.checkpoints.save_shards(tensors, self.trainer.progress.step, self.world)
            return model, None
        return model, gather_all(tensors, keep=self.world.is_first) if self.objective else tensors

    def _result(self) -> RunResult:
        progress = self.trainer.progress
        return RunResult(
            folder=str(self.out),
            step=progress.step,
            num_steps=progress.num_steps,
            stopped_by=self.trainer.stopped_by,
            tokens=progress.tokens,
            seconds=progress.seconds,
            evaluation=self.evaluation,
            weights_sha256=fingerprint(self.model.named_parameters()),
            optimizer_sha256=fingerprint(export_state(self.trainer.optimizers, self.model).items()),
        )


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
