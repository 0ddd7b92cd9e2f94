"""Is this machine fit for the run? Memory, attention and precision, disk; each as a Finding.

What is chosen is asked of the code that chooses (Recipe.resolve, model.attention.prepare), never decided again here.
"""

from dataclasses import replace
from pathlib import Path

import torch

from bertkit.cores import has_bfloat16
from bertkit.model.attention import (
    FLASH_CAPABILITY,
    PlainAttention,
    RunsAttention,
    SdpaAttention,
    VarlenAttention,
    prepare,
)
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig
from bertkit.model.packed import pack
from bertkit.text.findings import Finding, Level, grade
from bertkit.training.estimate.memory import available_memory, disk_bytes, fitting_tokens, step_memory
from bertkit.training.estimate.recipe import device_name, free_disk, num_saves
from bertkit.training.estimate.timing import make_trainer
from bertkit.training.feeds import Feed
from bertkit.training.precision import resolve_precision
from bertkit.training.recipe import Recipe

GIB = 2**30
NEARLY_FULL, FULL = 0.85, 1.0
RAN_OUT = -1  # in place of a measured peak
NAMES = {
    VarlenAttention: "varlen (flash)",
    SdpaAttention: "sdpa",
    RunsAttention: "sdpa, unpadded",
    PlainAttention: "plain",
}
ASSUMED_SAVES = 1 << 20  # of a run whose length in steps is not known


def precision_finding(recipe: Recipe, device: torch.device) -> Finding:
    """Which precision and attention a step gets on this device, and why."""
    resolved = recipe.resolve(device)
    dtype = resolved.dtype or torch.float32
    attention = prepare(pack([[0, 0], [0]]).to(device), dtype)
    backend = NAMES.get(type(attention), type(attention).__name__)
    level, why, advice = _explain(recipe, device, dtype)
    values = {"precision": resolved.precision, "attention": backend, "device": str(device)}
    figure = f"{device_name(device)}: {resolved.precision}, attention {backend}; {why}"
    return Finding("precision", level, figure, advice, values)


def _explain(recipe: Recipe, device: torch.device, dtype: torch.dtype) -> tuple[Level, str, str]:
    if device.type == "cpu":
        faster = dtype != torch.bfloat16 and has_bfloat16()
        advice = "set precision = 'bfloat16' where speed counts more than bits: this CPU has it" if faster else ""
        return "ok", "packed flash attention needs CUDA", advice
    name = ".".join(map(str, torch.cuda.get_device_capability(device)))
    if dtype == torch.bfloat16:
        old = torch.cuda.get_device_capability(device) < FLASH_CAPABILITY
        return "ok", f"capability {name} has bfloat16{' but no flash attention' if old else ' and flash attention'}", ""
    if dtype == torch.float16 and resolve_precision("auto", device) == "float16":
        return "ok", f"capability {name} has no bfloat16, so float16 with a scaled loss", ""
    best = resolve_precision("auto", device)
    advice = f"set precision = 'auto': {best} is several times faster, or safer, here"
    return "warning", f"the recipe asks for {str(dtype).removeprefix('torch.')}", advice


def memory_finding(recipe: Recipe, config: BertConfig, device: torch.device, peak: int | None = None) -> Finding:
    """Whether the largest micro-batch fits; `peak` is what a real step was measured to take, if one was tried."""
    half = recipe.resolve(device).dtype is not None
    needs = [(step_memory(config, recipe.optimizer, stage, device, half=half), stage) for stage in recipe.stages]
    need, stage = max(needs, key=lambda pair: pair[0].total)
    room = available_memory(device)
    taken = {None: need.total, RAN_OUT: room}.get(peak, peak or 0)
    level = grade(taken / max(1, room), warning=NEARLY_FULL, problem=FULL)
    kinds = ", ".join(f"{name} {size / GIB:.2f}" for name, size in need.__dict__.items() if size)
    measured = {None: "", RAN_OUT: "; a real step ran out of memory"}.get(
        peak, f"; a real step was measured to take {(peak or 0) / GIB:.2f} GiB"
    )
    figure = f"{need.total / GIB:.2f} GiB counted ({kinds}){measured}; {room / GIB:.1f} GiB are free"
    advice = ""
    if level != "ok":
        tokens = fitting_tokens(config, recipe.optimizer, stage, device, int(NEARLY_FULL * room), half=half)
        advice = _memory_advice(stage.tokens_per_batch, tokens)
    values = {**need.to_json(), "available": room, "peak": peak}
    return Finding("memory", level, figure, advice, values)


def _memory_advice(tokens: int, fitting: int | None) -> str:
    if fitting is None:
        return "not even one sequence fits: a smaller model, a larger GPU, or parallel = 'fsdp' on several"
    if fitting == tokens:
        return f"tokens_per_batch = {tokens // 2} with twice the micro_batches is the same run with room to spare"
    return f"tokens_per_batch = {fitting} with {tokens // fitting} times the micro_batches fits, and is the same run"


def measure_peak(recipe: Recipe, config: BertConfig, feeds: list[Feed], device: torch.device) -> int | None:
    """Bytes at the peak of two real steps of the largest stage, on a GPU, or RAN_OUT where they do not fit."""
    if device.type != "cuda":
        return None
    needs = [stage.tokens_per_batch for stage in recipe.stages]
    number = needs.index(max(needs))
    stage = replace(recipe.stages[number], micro_batches=1, share=1.0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    try:
        trainer = make_trainer(recipe, BertModel(config).to(device), stage, feeds[number], device)
        trainer.progress.num_steps = 2
        trainer.run(lambda records: None)
    except torch.OutOfMemoryError:
        return RAN_OUT
    return torch.cuda.max_memory_allocated(device)


def disk_finding(recipe: Recipe, config: BertConfig, out: Path) -> Finding:
    """Whether the checkpoints that are kept fit on the disk of the run's folder."""
    saves = num_saves(recipe, recipe.steps) if recipe.steps else ASSUMED_SAVES
    kept = min(recipe.checkpoints.keep, saves)
    need, free = disk_bytes(config, recipe.optimizer, kept), free_disk(out)
    level = grade(need / max(1, free), warning=NEARLY_FULL, problem=FULL)
    each = disk_bytes(config, recipe.optimizer, 1) - disk_bytes(config, recipe.optimizer, 0)
    figure = f"{need / GIB:.2f} GiB for {kept} checkpoints of {each / GIB:.2f} GiB, the best, one being written and the model"
    advice = "" if level == "ok" else "lower checkpoints.keep, or name a folder on a larger disk with --out"
    values = {"need": need, "free": free, "checkpoint": each}
    return Finding("disk", level, f"{figure}; {free / GIB:.1f} GiB are free", advice, values)
