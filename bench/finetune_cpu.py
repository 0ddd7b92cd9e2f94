"""Fine-tuning MiniLM on this machine's CPU: examples a second of bertkit and of transformers, on the same batches.

    python -m bench.finetune_cpu [--rounds 5] [--steps 10] [--json out.json]

Batches of 32 drawn alike, dropout as in the checkpoint, AdamW, clipping, linear decay; float32, and bfloat16 where the CPU
has it. Rounds alternate, so that a busy moment hits all alike. The peer is the loop that the transformers Trainer runs
(dynamic padding, SDPA, fused AdamW) without the Trainer's bookkeeping; with `accelerate` installed the Trainer itself is
measured too.
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.data import MINILM, glue_lines
from bench.versions import versions
from bertkit.cores import has_bfloat16
from bertkit.tasks.classification.task import classification_for
from bertkit.tasks.predicting import encode_chunks
from bertkit.tasks.reading.examples import TextExample
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.records import TaskData
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.finetuning.start import open_base
from bertkit.training.precision import Precision

BATCH, MAX_LENGTH, NUM_EXAMPLES, WARM = 32, 128, 8192, 2
Advance = Callable[[int], None]  # trains so many further steps


@dataclass(frozen=True)
class Result:
    """One contender's rounds on one task."""

    task: str
    name: str
    examples_per_second: list[float]
    median: float
    ratio: float  # to the plain transformers loop


def sst2() -> list[TextExample]:
    """The first sentences and phrases of SST-2's training set."""
    rows = (line.rsplit("\t", 1) for line in glue_lines("SST-2/train.tsv")[1 : NUM_EXAMPLES + 1])
    return [TextExample(text.strip(), None, label) for text, label in rows]


def mrpc() -> list[TextExample]:
    """MRPC's training pairs."""
    rows = (line.rstrip("\r").split("\t") for line in glue_lines("MRPC/train.tsv")[1:])
    return [TextExample(row[3], row[4], row[0]) for row in rows]


def start_bertkit(examples: list[TextExample], precision: Precision) -> FinetuneRun:
    """A run whose steps are taken one by one."""
    base = open_base(MINILM)
    task = classification_for(examples)
    chunks = list(encode_chunks(task, examples, base.tokenizer, base.limit(MAX_LENGTH, "truncate")))
    config = FinetuneConfig(batch_size=BATCH, device="cpu", epochs=1, precision=precision)
    return FinetuneRun(base, TaskData(task, chunks), config, torch.device("cpu"))


def bertkit_advance(run: FinetuneRun) -> Advance:
    """Steps of bertkit's loop, its figures read as in a real run."""
    run.loop.plain_objective.train()

    def advance(num: int) -> None:
        for _ in range(num):
            run.loop.take_step()
        run.loop._collect(lambda records: None, None)

    return advance


def plain_advance(run: FinetuneRun, examples: list[TextExample]) -> Advance:
    """Steps of a plain loop over transformers, padded to the longest of each batch."""
    model, tokenizer, encoded = peer(examples)
    named = list(model.named_parameters())
    spared = [p for name, p in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in named if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": spared, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-5, fused=True)
    num_steps = run.feed.steps_per_epoch
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, num_steps // 10, num_steps)
    collate = transformers.DataCollatorWithPadding(tokenizer)
    step = 0

    def advance(num: int) -> None:
        nonlocal step
        for _ in range(num):
            batch = collate([encoded[index] for index in run.feed.examples_of(step)])
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
        loss.item()

    return advance


def peer(examples: list[TextExample]) -> tuple[Any, Any, list[dict[str, Any]]]:
    """The reference model in training mode, its tokenizer, and the examples as it takes them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(MINILM, attn_implementation="sdpa")
    encoded = [
        {**tokenizer(e.text, e.pair, truncation=True, max_length=MAX_LENGTH), "labels": int(str(e.label))}
        for e in examples
    ]
    return model.train(), tokenizer, encoded


def trainer_advance(examples: list[TextExample], *, bf16: bool) -> Advance:
    """Steps of the Trainer itself; every call is a short training of its own, on the next examples."""
    model, tokenizer, encoded = peer(examples)
    start = 0

    def advance(num: int) -> None:
        nonlocal start
        arguments = transformers.TrainingArguments(
            output_dir="build/bench-trainer",
            per_device_train_batch_size=BATCH,
            max_steps=num,
            learning_rate=3e-5,
            weight_decay=0.01,
            report_to="none",
            save_strategy="no",
            logging_steps=10,
            disable_tqdm=True,
            use_cpu=True,
            bf16=bf16,
        )
        part = encoded[start : start + num * BATCH]
        start += num * BATCH
        collator = transformers.DataCollatorWithPadding(tokenizer)
        transformers.Trainer(model=model, args=arguments, train_dataset=part, data_collator=collator).train()

    return advance


def measure(task: str, examples: list[TextExample], rounds: int, steps: int) -> list[Result]:
    """Alternate rounds after a few steps to warm up."""
    run = start_bertkit(examples, "float32")
    contenders = {"transformers, plain loop": plain_advance(run, examples), "bertkit": bertkit_advance(run)}
    has_trainer = importlib.util.find_spec("accelerate") is not None
    if has_trainer:
        contenders["transformers Trainer"] = trainer_advance(examples, bf16=False)
    if has_bfloat16():
        contenders["bertkit, bfloat16"] = bertkit_advance(start_bertkit(examples, "bfloat16"))
        if has_trainer:
            contenders["transformers Trainer, bf16"] = trainer_advance(examples, bf16=True)
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for advance in contenders.values():
        advance(WARM)
    for _ in range(rounds):
        for name, advance in contenders.items():
            started = time.perf_counter()
            advance(steps)
            speeds[name].append(steps * BATCH / (time.perf_counter() - started))
    base = statistics.median(next(iter(speeds.values())))
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    return [Result(task, name, found, medians[name], medians[name] / base) for name, found in speeds.items()]


def main() -> None:
    """Measure and print a table; also JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=["SST-2", "MRPC"], choices=["SST-2", "MRPC"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sources = {"SST-2": sst2, "MRPC": mrpc}
    results = [
        row for task in arguments.tasks for row in measure(task, sources[task](), arguments.rounds, arguments.steps)
    ]
    about = {**versions("transformers"), "threads": str(torch.get_num_threads())}
    print(f"MiniLM, {arguments.rounds} rounds of {arguments.steps} steps; " + ", ".join(map(" ".join, about.items())))
    print("\n| task | contender | examples/s (median) | slowest to fastest | ratio |\n|---|---|---|---|---|")
    for row in results:
        spread = f"{min(row.examples_per_second):.1f} to {max(row.examples_per_second):.1f}"
        print(f"| {row.task} | {row.name} | {row.median:.1f} | {spread} | {row.ratio:.2f} |")
    if arguments.json:
        record = {"versions": about, "results": [asdict(row) for row in results]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
