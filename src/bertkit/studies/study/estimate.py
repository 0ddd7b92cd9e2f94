"""How long a study will take, before it begins: from floating point operations and what a machine does of them.

Rough on purpose, within a factor of two; as soon as parts are done, the live line's time left counts what they took.
"""

from collections.abc import Iterable

from bertkit.model.config import BertConfig
from bertkit.studies.study.config import TaskUse
from bertkit.studies.study.measuring import Measurement
from bertkit.studies.study.runs import PlannedRun
from bertkit.training.feeds import StepCounts
from bertkit.training.flops import step_flops
from bertkit.training.recipe import Recipe

CPU = 7e10  # FLOP/s of one core with AVX-512; older ones have about half
# One H200, by what it has been seen to do: mini 8.3 and small 4.3 million tokens a second with our kernels, which is so
# much for products and so much for the rest; without our kernels much less. Batches are built by processes.
GPU_FAST, GPU_PLAIN, GPU_LAYER = 4.9e14, 1.2e14, 1.75e-8  # FLOP/s, FLOP/s, seconds a token and layer
GPU_FEED = 5e6  # tokens a second, for all runs that share the machine
START = {"cpu": 3.0, "cuda": 15.0}  # seconds until a run begins: imports, the epoch's plan
FINETUNE_START = {"cpu": 2.0, "cuda": 5.0}
READING = {"answering": 10.0}  # seconds more, where there is much to tokenize
# Examples a second of mini in fine-tuning, in each of eight processes that share the GPU, and of a BiLSTM on features.
GPU_EXAMPLES, GPU_FEATURES = {"answering": 2200.0, "tagging": 2600.0}, 1500.0
GPU_OTHERS, GPU_WIDTH, GPU_DEPTH = 3300.0, 256, 4
TOKENS = {"tagging": 15, "answering": 60}  # of an example, on average
BYTES_A_TOKEN = {"tagging": 16.0}  # with its columns
OTHER_TOKENS, OTHER_BYTES = 40, 4.5


def run_seconds(run: PlannedRun, vocab_size: int) -> float:
    """Of one pre-training run that has the device for itself (on a CPU: one core)."""
    recipe, stage = run.recipe, run.recipe.stages[0]
    config = recipe.model.config(vocab_size, next_sentence=recipe.data.next_sentence)
    tokens = stage.tokens_per_batch * stage.micro_batches
    pairs = int(tokens / stage.max_length) if recipe.data.next_sentence else 0
    counts = StepCounts(int(stage.masking.rate * tokens), pairs, tokens)
    work = run.steps * step_flops(config, counts, stage.max_length)
    return START[recipe.device] + _work_seconds(recipe, work, run.steps * tokens, config.num_layers)


def _work_seconds(recipe: Recipe, flops: float, tokens: int, num_layers: int) -> float:
    if recipe.device == "cpu":
        return flops / CPU
    is_fast = recipe.objective == "mlm" and recipe.data.next_sentence
    seconds = flops / (GPU_FAST if is_fast else GPU_PLAIN) + tokens * num_layers * GPU_LAYER
    return max(seconds, tokens / GPU_FEED)


def measurement_seconds(one: Measurement, config: BertConfig) -> float:
    """Of one fine-tuning or feature run."""
    task, device = one.task, one.run.recipe.device
    size = sum(one.data.task_file(name).stat().st_size for name in task.train)
    length = TOKENS.get(task.task, OTHER_TOKENS)
    in_files = size / BYTES_A_TOKEN.get(task.task, OTHER_BYTES) / length
    examples = min(in_files, (one.use.limit or float("inf")) * len(task.train))
    if device != "cpu":
        return FINETUNE_START[device] + READING.get(task.task, 0.0) + _gpu_seconds(one, config, task.epochs * examples)
    weights, tokens = config.num_layers * 12 * config.hidden_size**2, task.epochs * examples * length
    if one.use.way == "features":  # the encoder reads training and test sentences once, forwards
        flops = 2 * examples * length * 2 * weights + tokens * 6 * _bilstm_weights(one.use, config)
    else:
        flops = tokens * 6 * weights
    return FINETUNE_START[device] + flops / CPU


def _bilstm_weights(use: TaskUse, config: BertConfig) -> int:
    """Two layers, both ways, four gates; the first reads the encoder's vectors, the second the first's."""
    return 2 * 4 * use.hidden_size * (config.hidden_size + use.hidden_size + 3 * use.hidden_size)


def _gpu_seconds(one: Measurement, config: BertConfig, examples: float) -> float:
    if one.use.way == "features":
        return examples / GPU_FEATURES
    larger: float = max(1.0, config.num_layers / GPU_DEPTH * (config.hidden_size / GPU_WIDTH) ** 0.5)
    return examples / GPU_EXAMPLES.get(one.task.task, GPU_OTHERS) * larger


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
