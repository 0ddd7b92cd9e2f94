"""From a name to a Bert: a folder, a TF1 checkpoint, a bundled model or a name on the hub; and between formats."""

import shutil
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.engines.choose import use_engine
from bertkit.model.config import Head
from bertkit.model.formats import LoadReport, load_model, resolve
from bertkit.model.formats.sentence_transformers import SENTENCE_FILES, SentenceStyle, part_folders, read_style
from bertkit.tasks.feature_heads import is_head
from bertkit.tasks.registry import read_task
from bertkit.tokenizer import Tokenizer

CARD = "README.md"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def load(
    source: str | Path,
    *,
    device: str = "auto",
    dtype: torch.dtype | str | None = None,
    heads: Iterable[Head] | None = None,
    labels: Sequence[str] | None = None,
    lowercase: bool | None = None,
    engine: str = "auto",
    threads: int | None = None,
) -> Bert:
    """Open a checkpoint for use: a folder, a TF1 checkpoint, a bundled name such as small-en, or one on the hub.

    dtype: float32 on CPUs and half precision on GPUs unless you name one. heads, labels: those to have, new where the
    file lacks them; its own unless said. lowercase: overrides the stored casing.
    engine: torch, on CPUs also onnx (float32) or int8, on GPUs also float8 for large batches (vectors a little off);
    auto: what the folder was exported for, else torch.
    """
    place = choose_device(device)
    bert = open_checkpoint(source, dtype=choose_dtype(place, dtype), lowercase=lowercase, heads=heads, labels=labels)
    bert.model.to(place)
    path = Path(source).expanduser()
    return use_engine(bert, engine, folder=path if path.is_dir() else None, threads=threads)


def open_checkpoint(
    source: str | Path, *, dtype: torch.dtype | None, lowercase: bool | None = None, **options: Any
) -> Bert:
    """A checkpoint on the CPU, in its stored precision where dtype is None and its stored casing where lowercase is."""
    if not str(source):
        raise BertkitError(
            "no checkpoint is named: give --model or set BERTKIT_MODEL (`bertkit info` lists what comes with bertkit)"
        )
    path = resolve(str(source))
    if is_head(path):
        raise BertkitError(
            f"{source} is a head on frozen features, not a checkpoint; `bertkit predict` takes one that labels texts, "
            "and load_head in Python takes all"
        )
    model, report = load_model(path, dtype=dtype, **options)
    folder = folder_of(path)
    tokenizer = Tokenizer.load(folder, lowercase=lowercase)
    return Bert(model, tokenizer, report, find_style(folder, tokenizer), read_task(folder))


def folder_of(checkpoint: Path) -> Path:
    """Where tokenizer, task and style lie: the folder itself, or the one of a weights file or TensorFlow prefix."""
    return checkpoint if checkpoint.is_dir() else checkpoint.parent


def find_style(folder: Path, tokenizer: Tokenizer) -> SentenceStyle | None:
    """How a folder of sentence-transformers makes its vectors; what bertkit would do otherwise is told."""
    style, departures = read_style(folder)
    for departure in departures:
        warnings.warn(
            f"sentence vectors of {folder} will differ from sentence-transformers': {departure}", stacklevel=3
        )
    if style is not None and style.max_length is None:
        return replace(style, max_length=tokenizer.max_length)  # where newer versions keep it
    return style


def convert(
    source: str | Path,
    target: str | Path,
    *,
    dtype: str | None = None,
    lowercase: bool | None = None,
    **options: Any,
) -> LoadReport:
    """Read any checkpoint and write it in another layout, bit for bit unless another dtype, or int8, is asked for.

    layout="safetensors" | "sharded" | "bin" | "tf1" | "int8", and the other options of save_model.
    """
    bert = open_checkpoint(source, dtype=None if dtype is None else named_dtype(dtype), lowercase=lowercase)
    bert.save(target, **options)
    origin = folder_of(resolve(str(source)))
    carry_along(origin, Path(target))
    if (origin / CARD).is_file() and not (Path(target) / CARD).exists():
        shutil.copyfile(origin / CARD, Path(target) / CARD)  # with its licence
    assert bert.report is not None  # every opened checkpoint has one
    return bert.report


def carry_along(source: Path, target: Path) -> None:
    """Copy how sentence-transformers makes its vectors, where the source folder says it, parts of other kinds too."""
    if source.resolve() == target.resolve():
        return  # written in place
    for name in SENTENCE_FILES:
        if (source / name).is_file():
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, target / name)
    for part in part_folders(source):
        shutil.copytree(part, target / part.name, dirs_exist_ok=True)


def choose_device(device: str) -> torch.device:
    """The device of this name; auto takes a GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise BertkitError(f"no device is named {device!r}; use cpu, cuda, cuda:1 or auto") from None
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (place.index or 0) >= here.get(place.type, 0):
        raise BertkitError(f"no device {device!r} here; use --device cpu or auto")
    return place


def choose_dtype(device: torch.device, dtype: torch.dtype | str | None) -> torch.dtype:
    """The dtype asked for, else the fastest that loses nothing that matters on this device."""
    if dtype is not None:
        return named_dtype(dtype) if isinstance(dtype, str) else dtype
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def named_dtype(name: str) -> torch.dtype:
    """float32, float16 or bfloat16."""
    if name not in DTYPES:
        raise BertkitError(f"unknown dtype {name!r}; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]
