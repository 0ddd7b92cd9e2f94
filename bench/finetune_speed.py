"""Examples a second of fine-tuning: bertkit beside the transformers Trainer, on the same encoded examples, in one run.

Both train a fresh model of one size with dropout 0.1 in batches of 32; bf16 on a GPU, SDPA, dynamic padding and fused
AdamW in the Trainer. Rounds alternate; each begins with steps that do not count, in which graphs and caches are made.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.finetune_parity_peer import features_of, pad, start_peer
from bench.finetune_parity_runs import Setting, parity_task
from bertkit.model import BertModel, preset
from bertkit.model.formats import save_model
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.suite_run import TaskSource, prepared
from bertkit.tokenizer import Tokenizer
from bertkit.training.finetuning.data import Prepared
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.world import choose_device

TASKS = ("SST-2", "MRPC", "SQuAD")
BATCH, WARM = 32, 80
Round = Callable[[], float]  # examples a second


def measure_speed(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All tasks, both sides, in alternate rounds."""
    folder = fresh_model(arguments.data, arguments.size)
    data = DataFolder.open(arguments.data, cache_of(arguments.data))
    found = []
    for name in [task for task in TASKS if task in arguments.tasks]:
        setting = Setting(TaskSource(str(folder), None, data, parity_task(name), arguments.limit), arguments.device)
        given = prepared(setting.source)
        sides = {
            "bertkit": bertkit_round(setting, given, arguments.steps),
            "transformers Trainer": trainer_round(setting, given, arguments.steps),
        }
        speeds: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side, run in sides.items():
                speeds[side].append(run())
                print(f"{name} {side}: {speeds[side][-1]:.1f} examples/s", flush=True)
        medians = {side: statistics.median(rates) for side, rates in speeds.items()}
        ratio = medians["bertkit"] / medians["transformers Trainer"]
        found.append({"task": name, "size": arguments.size, "speeds": speeds, "medians": medians, "ratio": ratio})
    return found


def speed_table(rows: Sequence[dict[str, Any]]) -> str:
    """For docs."""
    lines = [["task", "size", "bertkit", "transformers Trainer", "ratio"], ["---"] * 5]
    for row in rows:
        medians = [f"{row['medians'][side]:,.0f}" for side in ("bertkit", "transformers Trainer")]
        lines.append([row["task"], row["size"], *medians, f"{row['ratio']:.2f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cache_of(data: Path) -> Path:
    """Beside the data, which travels and must stay small."""
    return data.with_name(f"{data.name}-cache")


def fresh_model(data: Path, size: str) -> Path:
    """A model of this size with MiniLM's vocabulary; its weights do not matter for speed."""
    folder = cache_of(data) / f"fresh-{size}"
    if not (folder / "config.json").is_file():
        torch.manual_seed(0)
        tokenizer = Tokenizer.load(data / "model")
        save_model(BertModel(preset(size, vocab_size=tokenizer.vocab_size)), folder)
        tokenizer.save(folder)
    return folder


def bertkit_round(setting: Setting, given: Prepared, steps: int) -> Round:
    """Steps of bertkit's own run."""

    def measure() -> float:
        device = choose_device(setting.device)
        run = FinetuneRun(given.base, given.data, setting.config(0, given), device)
        loop = run.loop
        loop.plain_objective.train()
        warm, timed = split_steps(steps, loop.progress.num_steps or 0)
        advance(loop, warm, run.config.log_every)
        started = time.perf_counter()
        advance(loop, timed, run.config.log_every)
        return timed * BATCH / (time.perf_counter() - started)

    return measure


def advance(loop: Any, num: int, log_every: int) -> None:
    """So many steps, their figures read as in a real run."""
    for step in range(1, num + 1):
        loop.take_step()
        if step % log_every == 0 or step == num:
            loop._collect(lambda records: None, None)


def split_steps(steps: int, most: int) -> tuple[int, int]:
    """Steps that do not count, and steps that do, where there are only so many."""
    timed = max(1, min(steps, most - 2))
    return max(1, min(WARM, most - timed)), timed


class Clock(transformers.TrainerCallback):  # type: ignore[misc]  # it comes without types
    """Times the steps after the first few."""

    def __init__(self, warm: int) -> None:
        self.warm, self.started, self.ended = warm, 0.0, 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The clock starts after the steps that do not count."""
        if state.global_step == self.warm:
            wait_for_device()
            self.started = time.perf_counter()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """And stops when the device is done."""
        wait_for_device()
        self.ended = time.perf_counter()


def wait_for_device() -> None:
    """Work that was launched is part of the time."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def trainer_round(setting: Setting, given: Prepared, steps: int) -> Round:
    """Steps of the Trainer."""
    features = [features_of(given.task, item) for chunk in given.data.train for item in chunk.items]
    config, on_gpu = setting.config(0, given), choose_device(setting.device).type == "cuda"

    def measure() -> float:
        torch.manual_seed(0)
        model = start_peer(str(given.base.path), given.task, given.task.configure(given.base.encoder))
        warm, timed = split_steps(steps, config.epochs * -(-len(features) // BATCH))
        clock = Clock(warm)
        arguments = transformers.TrainingArguments(
            output_dir=str(setting.source.data.cache / "trainer"),
            per_device_train_batch_size=BATCH,
            max_steps=warm + timed,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            report_to="none",
            save_strategy="no",
            logging_steps=config.log_every,
            disable_tqdm=True,
        )
        transformers.Trainer(model, arguments, data_collator=pad, train_dataset=features, callbacks=[clock]).train()
        return timed * BATCH / (clock.ended - clock.started)

    return measure
