"""How long a study will take, before it begins: from floating point operations and what a machine does of them.

Rough on purpose, within a factor of two; as soon as parts are done, the live line's time left counts what they took.
"""

from collections.abc import Iterable

from bertkit.model.config import BertConfig
from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.runs import PlannedRun
from bertkit.training.feeds import StepCounts
from bertkit.training.flops import step_flops
from bertkit.training.recipe import Recipe

# FLOP/s of one process: a core, or one H200 with our kernels (all processes together) and without.
CPU, GPU_FAST, GPU_PLAIN = 4e10, 2.5e14, 6e13
START = {"cpu": 3.0, "cuda": 15.0}  # seconds until a run begins: imports, the epoch's plan
FINETUNE_START = {"cpu": 2.0, "cuda": 5.0}
GPU_EXAMPLES = 2500.0  # a second, in fine-tuning of small models; several processes share the GPU well
BYTES_A_TOKEN = 4.5
TOKENS = {"classification": 40, "regression": 40, "tagging": 25, "answering": 200}  # of an example, on average


def run_seconds(run: PlannedRun, vocab_size: int) -> float:
    """Of one pre-training run that has the device for itself (on a CPU: one core)."""
    recipe, stage = run.recipe, run.recipe.stages[0]
    config = recipe.model.config(vocab_size, next_sentence=recipe.data.next_sentence)
    tokens = stage.tokens_per_batch * stage.micro_batches
    pairs = int(tokens / stage.max_length) if recipe.data.next_sentence else 0
    counts = StepCounts(int(stage.masking.rate * tokens), pairs, tokens)
    work = run.steps * step_flops(config, counts, stage.max_length)
    return START[recipe.device] + work / _speed(recipe)


def _speed(recipe: Recipe) -> float:
    if recipe.device == "cpu":
        return CPU
    return GPU_FAST if recipe.objective == "mlm" and recipe.data.next_sentence else GPU_PLAIN


def measurement_seconds(one: Measurement, config: BertConfig) -> float:
    """Of one fine-tuning or feature run."""
    task, device = one.task, one.run.recipe.device
    size = sum(one.data.task_file(name).stat().st_size for name in task.train) / BYTES_A_TOKEN
    length = TOKENS.get(task.task, 40)
    examples = min(size / length, (one.use.limit or float("inf")) * len(task.train))
    if device != "cpu":
        return FINETUNE_START[device] + task.epochs * examples / GPU_EXAMPLES * max(1.0, length / 40)
    weights = config.num_layers * 12 * config.hidden_size**2
    if one.use.way == "features":
        weights += 24 * one.use.hidden_size**2
    return FINETUNE_START[device] + task.epochs * examples * length * 6 * weights / CPU


def about_minutes(seconds: float) -> str:
    """about 7 minutes"""
    minutes = max(1, round(seconds / 60))
    return f"about {minutes} {'minute' if minutes == 1 else 'minutes'}"


def total_seconds(runs: Iterable[float], measurements: Iterable[float], device: str, workers: tuple[int, int]) -> float:
    """All of it: pre-training on one GPU is shared, not multiplied; fine-tuning leaves it half idle."""
    training, measuring = list(runs), list(measurements)
    if device == "cpu":
        return sum(training) / workers[0] + sum(measuring) / workers[1]
    starts = START["cuda"] * len(training)
    return (sum(training) - starts) + starts / workers[0] + sum(measuring) / workers[1]
