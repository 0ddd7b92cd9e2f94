"""Can this model learn? What it loses before its first step, whether gradients reach every layer, and whether it learns
one batch by heart, which any sound model, loss and optimizer do in a few hundred steps.

What enters: a model as a run would begin with, and micro-batches. What leaves: Findings; the model is changed.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.text.findings import Finding, Level
from bertkit.training.doctor.batches import shorten
from bertkit.training.feeds import Feed, StepCounts, count_batch
from bertkit.training.loop import LoopOptions, Progress, StepRecord, Trainer
from bertkit.training.objective import Objective, make_objective
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import StepPlan
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.watch import DivergedError

MOST_AWAY = 0.3  # nats between the first loss and that of a fair guess
LEAST_MASKED, MOST_BATCHES = 1000, 32  # for the first loss
FAINTEST = 1e-4  # of the strongest layer's gradient, below which a layer hardly learns
LEARNED = 0.1  # of the first MLM loss: this little is left of a batch known by heart
MOST_STEPS, MOST_SECONDS = 300, 60.0
STEADY = ScheduleConfig(shape="wsd", warmup_share=0.03, decay_share=0.0)
SAFE = OptimizerConfig(learning_rate=1e-3)

Progressed = Callable[[str], None]


@dataclass(frozen=True)
class Patient:
    """A model and how it is run."""

    model: BertModel
    dtype: torch.dtype | None = None
    is_fresh: bool = True  # False: it goes on from a checkpoint, so it should know something

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.model.device

    def objective(self) -> nn.Module:
        """Its loss in the run's precision."""
        return make_objective(Objective(self.model), self.dtype)


@torch.no_grad()
def first_losses(patient: Patient, feed: Feed, max_tokens: int) -> tuple[float, float | None]:
    """Mean MLM and NSP loss before any step, dropout off, over about a thousand masked tokens."""
    objective, ones = patient.objective().eval(), torch.ones(2, device=patient.device)
    sums = torch.zeros(4, device=patient.device)
    num_masked = num_pairs = 0
    for index in range(MOST_BATCHES):
        batch = shorten(feed.micro_batch(index), max_tokens)
        sums += objective(batch.to(patient.device), ones)[1]
        counts = count_batch(batch)
        num_masked, num_pairs = num_masked + counts.num_masked, num_pairs + counts.num_pairs
        if num_masked >= LEAST_MASKED:
            break
    mlm, nsp, *_ = sums.tolist()
    return mlm / max(1, num_masked), nsp / num_pairs if num_pairs else None


def start_findings(patient: Patient, feed: Feed, max_tokens: int) -> list[Finding]:
    """Whether the first losses are those of a fair guess, or better for a model that was trained before."""
    mlm, nsp = first_losses(patient, feed, max_tokens)
    guesses = [("first MLM loss", mlm, patient.model.config.vocab_size, "vocabulary")]
    guesses += [] if nsp is None else [("first NSP loss", nsp, 2, "2")]
    return [_judge_start(patient, name, loss, size, of) for name, loss, size, of in guesses]


def _judge_start(patient: Patient, name: str, loss: float, size: int, of: str) -> Finding:
    guess = math.log(size)
    away = loss - guess if not patient.is_fresh else abs(loss - guess)
    level: Level = "ok" if away <= MOST_AWAY else "problem"  # what is no number is not below
    figure = f"{loss:.2f}; a fair guess loses log({of}) = {guess:.2f}"
    advice = ""
    if level == "problem" and patient.is_fresh:
        advice = "the weights begin too large or broken: check model.changes, above all initializer_range (0.02)"
    elif level == "problem":
        advice = "this checkpoint is worse than guessing here: is it for another vocabulary, or broken?"
    return Finding(name, level, figure, advice, {"loss": loss, "guess": guess})


def gradient_finding(patient: Patient, batch: PretrainingBatch) -> Finding:
    """Whether every matrix of every layer gets a gradient that is a number and not zero."""
    objective = patient.objective().train()
    counts = count_batch(batch)
    whole = torch.tensor(counts.denominators, dtype=torch.float32, device=patient.device)
    patient.model.zero_grad(set_to_none=True)
    loss, _ = objective(batch.to(patient.device), whole)
    loss.backward()
    norms = {name: _norm(p) for name, p in patient.model.named_parameters()}
    patient.model.zero_grad(set_to_none=True)
    return _judge_gradients(norms, {name for name, p in patient.model.named_parameters() if p.dim() > 1})


def _norm(p: nn.Parameter) -> float:
    return 0.0 if p.grad is None else float(p.grad.float().norm())


def _judge_gradients(norms: dict[str, float], matrices: set[str]) -> Finding:
    broken = [name for name, norm in norms.items() if not math.isfinite(norm)]
    dead = [name for name in norms if name in matrices and norms[name] == 0.0]
    layers: dict[str, float] = {}
    for name, norm in norms.items():
        layers[layer_of(name)] = math.hypot(layers.get(layer_of(name), 0.0), norm)
    faintest, strongest = min(layers, key=layers.__getitem__), max(layers, key=layers.__getitem__)
    ratio = layers[faintest] / layers[strongest] if layers[strongest] else 0.0
    level: Level = "problem" if broken or dead else "warning" if ratio < FAINTEST else "ok"
    figure = (
        f"finite and not zero in all of {len(layers)} parts; the faintest, {faintest}, is {ratio:.2g} of {strongest}"
    )
    advice = ""
    if broken:
        figure, advice = f"not finite in {_some(broken)}", "lower the initial weights, or use float32 to find where"
    elif dead:
        figure = f"zero in {_some(dead)}"
        advice = "these weights cannot learn: a layer is dead (all zero) or cut off, so check the checkpoint or init"
    elif level == "warning":
        advice = "that part will hardly learn at first: smaller weights or a longer warm-up may help"
    return Finding("gradients", level, figure, advice, {"layers": layers, "broken": broken, "dead": dead})


def layer_of(name: str) -> str:
    """encoder.layers.3.qkv.weight -> layer 3; mlm.norm.bias -> mlm; encoder.embeddings.token.weight -> embeddings."""
    parts = name.removeprefix("encoder.").split(".")
    return f"layer {parts[1]}" if parts[0] == "layers" else parts[0]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class OneBatch:
    """A feed that always gives the same micro-batch."""

    def __init__(self, batch: PretrainingBatch) -> None:
        self.batch, self._counts = batch, count_batch(batch)

    def micro_batch(self, index: int) -> PretrainingBatch:
        """The batch."""
        return self.batch

    def counts(self, index: int) -> StepCounts:
        """Its counts."""
        return self._counts


@dataclass(frozen=True)
class Cramming:
    """How learning one batch by heart went."""

    first: float
    last: float
    num_steps: int
    seconds: float

    @property
    def is_learned(self) -> bool:
        """Whether hardly anything is left of the loss."""
        return self.last <= LEARNED * self.first


def cram(patient: Patient, batch: PretrainingBatch, optimizer: OptimizerConfig, progress: Progressed) -> Cramming:
    """Train on one batch, dropout off, until it is known, or the steps or the time are over."""
    for module in patient.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, Layer):
            module.attention_dropout = 0.0
    losses: list[float] = []
    started = time.perf_counter()
    state = Progress(MOST_STEPS)

    def note(records: list[StepRecord]) -> None:
        losses.extend(record.mlm_loss for record in records)
        progress(f"one batch by heart: step {len(losses)}, MLM loss {losses[-1]:.2f}")
        known = losses[-1] <= LEARNED * losses[0]
        if known or time.perf_counter() - started > MOST_SECONDS:
            state.num_steps = state.step

    steady = replace(optimizer, weight_decay=0.0)
    options = LoopOptions(clip_norm=optimizer.clip_norm, dtype=patient.dtype)
    trainer = Trainer(
        patient.model, [OneBatch(batch)], StepPlan(), build_optimizers(patient.model, steady), STEADY, options, state
    )
    try:
        trainer.run(note)
    except DivergedError:
        losses.append(math.inf)
    return Cramming(losses[0], losses[-1], len(losses), time.perf_counter() - started)


def overfit_finding(
    make: Callable[[], Patient],
    batch: PretrainingBatch,
    optimizer: OptimizerConfig,
    progress: Progressed = lambda line: None,
    shortened: str = "",
) -> Finding:
    """Whether one batch is learned with the recipe's optimizer, and if not, whether a plain one would do better."""
    found = cram(make(), batch, optimizer, progress)
    size = f"{batch.inputs.num_tokens:,} tokens, sequences: {len(batch.inputs)}{shortened}"
    figure = f"MLM loss {found.first:.2f} to {found.last:.2f} in {found.num_steps} steps on {size}"
    values = {"first": found.first, "last": found.last, "num_steps": found.num_steps}
    if found.is_learned:
        return Finding("one batch", "ok", figure, "", values)
    if found.seconds > MOST_SECONDS and found.last < 0.8 * found.first:
        return Finding("one batch", "ok", f"{figure}; it was still falling when time was over", "", values)
    again = cram(make(), batch, SAFE, progress)
    if again.is_learned or again.last < min(found.last, 0.8 * again.first):
        plain = f"plain AdamW at {SAFE.learning_rate:g} reaches {again.last:.2f}"
        advice = f"the model learns, but not with this optimizer: {plain}, so change optimizer.learning_rate"
        return Finding("one batch", "problem", figure, advice, values)
    advice = "the model cannot learn even one batch: look at the first loss and the gradients, and at the vocabulary"
    return Finding("one batch", "problem", figure, advice, values)
