"""One fine-tuning run: a checkpoint, a task and its examples in, the best weights by the development score out.

With a folder it may be killed and goes on where its last checkpoint was: journal.jsonl and checkpoints/ lie there.
Without one nothing is written, and the best weights are kept in memory.
"""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.dropout import set_dropout
from bertkit.model.formats import LoadReport
from bertkit.training.checkpoints import Checkpoint, CheckpointFolder
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.evaluation import (
    TaskEvaluation,
    better,
    evaluate_task,
    find_collapse,
    guessing_loss,
)
from bertkit.training.finetuning.feed import TaskFeed
from bertkit.training.finetuning.graphs import Graphs, shape_for
from bertkit.training.finetuning.loop import TaskLoop, TaskObjective, half_copy
from bertkit.training.finetuning.memory import FinetuneMemory, estimate_memory
from bertkit.training.finetuning.narrow import NarrowStep
from bertkit.training.finetuning.records import Outcome, RunSummary, TaskData, Watcher, step_values
from bertkit.training.finetuning.start import Base, start_lines, start_model
from bertkit.training.journal import Journal
from bertkit.training.loss_loop import LossRecord
from bertkit.training.objective import make_objective
from bertkit.training.optimizers.build import build_optimizers, export_state, import_state
from bertkit.training.stepping import LoopOptions, Progress
from bertkit.training.used_rows import UsedRows
from bertkit.training.watch import Guard, StopRequest
from bertkit.training.world import World

TAIL = 0.2  # the share of steps at the end whose loss says what was learned
EARLY = "early stopping"
AHEAD = 1  # threads that build batches while a GPU computes
NO_RISE = float("inf")  # losses of small batches jump; only what is no number stops a run


class FinetuneRun:
    """One run in one process."""

    says_start = True  # what of the model is new: once is enough for many runs

    def __init__(
        self,
        base: Base,
        data: TaskData,
        config: FinetuneConfig,
        device: torch.device,
        folder: Path | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.base, self.data, self.config, self.watcher = base, data, config, watcher
        self.world, self.dtype = World(device=device), config.narrow_type(device)
        self.checkpoints = None if folder is None else CheckpointFolder(folder / "checkpoints", keep=1)
        found = self._find_checkpoint()
        self.report: LoadReport | None = None
        if found:
            self.model = found.model
            self.model.config = replace(found.model.config, problem=data.task.configure(base.encoder).problem)
        else:
            self.model, self.report = start_model(base, data.task, config.seed)
        if config.dropout is not None:
            set_dropout(self.model, config.dropout)
        self.model.to(device)
        self.feed = self._make_feed()
        self.outcome = Outcome(**found.state["outcome"]) if found else Outcome()
        self.memory = self._estimate()
        # A resumed run cuts its steps as before, however much memory is free now: dropout follows the cut.
        self.outcome.micro_tokens = self.outcome.micro_tokens or self.memory.micro_tokens
        self.feed.micro_tokens = self.outcome.micro_tokens
        self.optimizers = build_optimizers(self.model, config.optimizer)
        self.loop = self._make_loop(found)
        self.best_weights: dict[str, Tensor] | None = None
        self.saved_step = found.state["step"] if found else -1
        self.journal: Journal | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.journal = Journal(folder, found.state["journal_bytes"] if found else 0)

    def _find_checkpoint(self) -> Checkpoint | None:
        if self.checkpoints is None:
            return None
        self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        self.checkpoints.clean()
        return self.checkpoints.load()

    def _make_feed(self) -> TaskFeed:
        return TaskFeed(
            self.data.task,
            self.data.train,
            batch_size=self.config.batch_size,
            seed=self.config.seed,
            micro_tokens=1,
            pads=self.dtype is None and self.world.device.type != "cpu",
            shape_for=shape_for if self.is_narrow and self.world.device.type == "cuda" else None,
        )

    @property
    def is_narrow(self) -> bool:
        """Whether steps are computed on narrow copies, and so perhaps by graphs; float16 needs a scaled loss instead."""
        return self.dtype == torch.bfloat16

    def _estimate(self) -> FinetuneMemory:
        longest = self.feed.longest
        return estimate_memory(
            self.model.config,
            self.config.optimizer,
            longest,
            longest * self.config.batch_size,
            self.world.device,
            half=self.dtype is not None,
            micro_tokens=self.config.micro_tokens,
        )

    def _make_loop(self, found: Checkpoint | None) -> TaskLoop:
        config = self.config
        progress, guard = Progress(config.epochs * self.feed.steps_per_epoch), Guard()
        if found:
            import_state(self.optimizers, self.model, found.optimizer)
            state = found.state
            progress = Progress(state["num_steps"], state["step"], state["tokens"], state["seconds"])
            guard = Guard.from_json(state["guard"])
        guard.most_rise = NO_RISE
        options = LoopOptions(
            clip_norm=config.clip_norm,
            log_every=config.log_every,
            seed=config.seed,
            dtype=self.dtype,
            workers=AHEAD if self.world.device.type == "cuda" else 0,
        )
        plain = TaskObjective(self.model, self.data.task)
        objective = plain if self.is_narrow else make_objective(plain, self.dtype)
        parts = ([self.feed], self.feed, self.optimizers, config.schedule, options, progress, self.world, guard)
        loop = TaskLoop(objective, *parts)
        loop.on_relief = self._on_relief
        loop.loss_scale = found.state.get("loss_scale") if found else None
        if loop.scaler is None:
            loop.used_rows = UsedRows.of(plain)
        if self.is_narrow:
            loop.narrow = NarrowStep(plain, torch.bfloat16, loop.used_rows)
            loop.graphs = Graphs(loop.narrow) if config.graphs and self.world.device.type == "cuda" else None
        return loop

    def run(self, stop: StopRequest | None = None) -> RunSummary:
        """To the end, to early stopping or to a signal; the model then has its best weights."""
        if self.report and self.says_start:
            for line in start_lines(self.report):
                self._note(line)
        self._note(self.memory.line())
        self._stop_early()  # where it was killed right after
        try:
            self.loop.run(self._on_records, self._is_due, self._look, stop)
            if self.saved_step < self.loop.progress.step and self._is_interrupted:
                self._save(is_best=False)
        except torch.OutOfMemoryError:
            raise BertkitError(
                f"out of memory with one text of {self.feed.longest} tokens at a time; lower max_length, or take a "
                "smaller model"
            ) from None
        finally:
            if self.journal:
                self.journal.close()
        if not self._is_interrupted:
            self._take_best()
        self.model.eval()
        return self.summary()

    @property
    def _is_interrupted(self) -> bool:
        return self.loop.stopped_by is not None and not self.loop.stopped_by.startswith(EARLY)

    def _take_best(self) -> None:
        """The weights of the best look, where there was one."""
        if self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
        elif self.checkpoints and self.outcome.best_score is not None:
            best = self.checkpoints.load("best")
            if best is not None and best.state["step"] != self.loop.progress.step:
                self.model.load_state_dict(best.model.state_dict())

    def _on_records(self, records: list[LossRecord]) -> None:
        outcome, progress = self.outcome, self.loop.progress
        assert progress.num_steps is not None
        tail = [record.loss for record in records if record.step >= (1 - TAIL) * progress.num_steps]
        outcome.tail_sum, outcome.tail_count = outcome.tail_sum + sum(tail), outcome.tail_count + len(tail)
        examples = sum(len(self.feed.examples_of(record.step)) for record in records)
        values = step_values(records, examples)
        self._write("step", values)
        if self.watcher:
            self.watcher.on_step(values, progress)

    def _is_due(self, step: int) -> bool:
        saves = self.config.save_every and step % self.config.save_every == 0
        return self._is_look(step) or bool(saves)

    def _is_look(self, step: int) -> bool:
        every = self.config.eval_every or self.feed.steps_per_epoch
        return step % every == 0 or self.loop.is_finished

    def _look(self, step: int) -> None:
        """Evaluate and save, as far as they are due; too many looks without a better score end the run."""
        is_best = self._evaluate(step) if self.data.dev and self._is_look(step) else False
        if is_best and not self.checkpoints:
            self.best_weights = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        self._save(is_best=is_best)
        self._stop_early()

    def _stop_early(self) -> None:
        patience = self.config.patience
        if patience and self.outcome.looks_since_best >= patience and not self.loop.is_finished:
            self.loop.stopped_by = f"{EARLY}: {patience} looks without a better {self.metric}"

    @property
    def metric(self) -> str:
        """The score that chooses."""
        return self.config.metric or self.data.task.metric

    def _evaluate(self, step: int) -> bool:
        started = time.perf_counter()
        model = self.model if self.dtype is None else half_copy(self.model, self.dtype)
        look = evaluate_task(self.data.task, model, self.data.dev)
        outcome = self.outcome
        outcome.last_loss, outcome.only_answer, outcome.num_dev = look.loss, look.only_answer, look.num_examples
        if self.metric not in look.scores:
            known = ", ".join(look.scores)
            raise BertkitError(f"{self.data.task.name} has no score {self.metric!r}; choose one of {known}")
        score = look.scores[self.metric]
        is_best = better(score, outcome.best_score)
        outcome.looks_since_best = 0 if is_best else outcome.looks_since_best + 1
        if is_best:
            outcome.best_score, outcome.best_step, outcome.best_scores = score, step, look.scores
        epoch = step / self.feed.steps_per_epoch
        seconds = time.perf_counter() - started
        values = {"step": step, "epoch": epoch, "loss": look.loss, **look.scores, "is_best": is_best}
        self._write("evaluation", {**values, "evaluation_seconds": seconds})
        if self.watcher:
            self.watcher.on_evaluation({**values, "metric": self.metric, "score": score})
        return is_best

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        self.outcome.history.append({"kind": kind, **values})
        if self.journal:
            self.journal.write(kind, values)

    def _note(self, line: str) -> None:
        self._write("note", {"step": self.loop.progress.step, "text": line})
        if self.watcher:
            self.watcher.on_note(line)

    def _on_relief(self, micro_tokens: int) -> None:
        self.outcome.micro_tokens = micro_tokens
        self.outcome.num_reliefs += 1
        self._note(
            f"out of memory at step {self.loop.progress.step + 1}: the step is cut into micro-batches of at most "
            f"{micro_tokens:,} tokens from here on; a step is still {self.config.batch_size} examples"
        )

    def _save(self, *, is_best: bool) -> None:
        self.saved_step = self.loop.progress.step
        if self.checkpoints is None or self.journal is None:
            return
        state = {
            **asdict(self.loop.progress),
            "outcome": asdict(self.outcome),
            "guard": self.loop.guard.to_json(),
            "loss_scale": self.loop.loss_scale,
            "journal_bytes": self.journal.position(),
        }
        optimizer = export_state(self.optimizers, self.model)
        self.checkpoints.save(self.model, None, optimizer, state, is_best=is_best)

    def summary(self) -> RunSummary:
        """How it went."""
        outcome, progress, stopped = self.outcome, self.loop.progress, self.loop.stopped_by
        train_loss = outcome.tail_sum / max(1, outcome.tail_count)
        guess = guessing_loss(self.data.task, self.feed.items)
        look = None
        if self.data.dev:
            look = TaskEvaluation({}, outcome.last_loss or 0.0, outcome.num_dev, outcome.only_answer)
        done = outcome.tail_count > 0 and not self._is_interrupted
        assert progress.num_steps is not None
        return RunSummary(
            config=asdict(self.config),
            step=progress.step,
            num_steps=progress.num_steps,
            seconds=progress.seconds,
            examples_per_second=self._num_seen(progress.step) / max(progress.seconds, 1e-9),
            scores=outcome.best_scores,
            best_step=outcome.best_step or progress.step,
            train_loss=train_loss,
            collapsed=find_collapse(train_loss, guess, look) if done else None,
            stopped_by=stopped,
            micro_tokens=self.feed.micro_tokens,
            num_reliefs=outcome.num_reliefs,
            history=outcome.history,
        )

    def _num_seen(self, step: int) -> int:
        epochs, within = divmod(step, self.feed.steps_per_epoch)
        return epochs * self.feed.num_examples + min(within * self.config.batch_size, self.feed.num_examples)
