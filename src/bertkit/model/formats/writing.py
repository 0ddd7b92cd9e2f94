"""A BertModel -> config and weights on disk, in Hugging Face's layouts or Google's.

Everything is written aside in the target folder and renamed when complete, weights first and config last, so that a
reader never meets a half-written file.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.formats.config import architecture_of, config_json
from bertkit.model.formats.int8_rows import NAME as INT8
from bertkit.model.formats.int8_rows import shrink
from bertkit.model.formats.names import DECODER, DECODER_BIAS, NUM_PARTS, PREFIX, Name, names_of
from bertkit.model.formats.safetensors_files import write_safetensors
from bertkit.model.formats.shards import index_json, plan_shards
from bertkit.model.formats.stored import WEIGHTS
from bertkit.model.formats.tf_bundle import write_bundle
from bertkit.model.formats.torch_bin import write_bin

Layout = Literal["safetensors", "sharded", "bin", "tf1", "int8"]
WEIGHTS_OF_LAYOUT: dict[str, str] = {
    "safetensors": "model.safetensors",
    "sharded": "model.safetensors.index.json",
    "bin": "pytorch_model.bin",
    "tf1": "bert_model.ckpt.index",
    "int8": INT8,
}
GOOGLE_PREFIX = "bert_model.ckpt"
SHARD_BYTES = 512 * 2**20


def save_model(
    model: BertModel,
    folder: Path,
    *,
    layout: Layout = "safetensors",
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write config and weights; dtype None keeps the model's. The written files come back.

    `int8` rounds matrices to eight bits, in a file that bertkit alone reads. `tf1` writes no `.meta`: that is TensorFlow's graph, and loading weights by name needs none.
    """
    if layout not in WEIGHTS_OF_LAYOUT:
        raise BertkitError(f"unknown layout {layout!r}; choose one of {', '.join(WEIGHTS_OF_LAYOUT)}")
    if {"classifier", "tagger"} <= set(model.config.heads):
        raise BertkitError("a model with both a classifier and a tagger cannot be saved: both are called `classifier`")
    if layout == "tf1" and model.config.is_causal:
        raise BertkitError("this model is left to right, which Google's code would not know; choose another layout")
    _refuse_other_weights(folder, layout)
    kept = torch.float32 if layout == "int8" else dtype or model.encoder.embeddings.token.weight.dtype

    def write(aside: Path) -> None:
        _write_weights(model, aside, layout, kept, max_shard_bytes)
        _write_json(aside / ("bert_config.json" if layout == "tf1" else "config.json"), config_json(model.config, kept))

    written = _write_aside(Path(folder), write)
    if layout == "sharded":
        for path in set(Path(folder).glob("model-*-of-*.safetensors")) - set(written):
            path.unlink()  # shards that the replaced index counted, and the new one does not
    return written


def _refuse_other_weights(folder: Path, layout: Layout) -> None:
    """A reader takes the first layout that it finds, so two in one folder would hide one of them."""
    for name in (*WEIGHTS, WEIGHTS_OF_LAYOUT["tf1"]):
        if name != WEIGHTS_OF_LAYOUT[layout] and (Path(folder) / name).exists():
            raise BertkitError(f"{folder} already holds {name}; choose another folder, or remove it first")


def _write_weights(model: BertModel, aside: Path, layout: Layout, dtype: torch.dtype, max_shard_bytes: int) -> None:
    if layout == "tf1":
        write_bundle(aside / GOOGLE_PREFIX, _google_tensors(model, dtype))
        return
    tensors = _huggingface_tensors(model, dtype)
    if layout == "safetensors":
        write_safetensors(aside / "model.safetensors", tensors)
    elif layout == "int8":
        write_safetensors(aside / INT8, shrink(tensors))
    elif layout == "bin":
        write_bin(aside / "pytorch_model.bin", tensors)
    else:
        parts = plan_shards(tensors, max_shard_bytes)
        shards = {f"model-{n:05d}-of-{len(parts):05d}.safetensors": part for n, part in enumerate(parts, start=1)}
        for name, part in shards.items():
            write_safetensors(aside / name, part)
        _write_json(aside / WEIGHTS_OF_LAYOUT["sharded"], index_json(shards))


def _huggingface_tensors(model: BertModel, dtype: torch.dtype) -> dict[str, Tensor]:
    """Under the names that transformers gives them; tied tensors once."""
    state = model.state_dict()
    tensors = {name.huggingface: _foreign(state, name, dtype) for name in names_of(model.config)}
    if DECODER in tensors:
        # An untied decoder has a bias of its own there, and the shared name stays.
        tensors[DECODER_BIAS] = tensors["cls.predictions.bias"].clone()
    if architecture_of(model.config) == "BertModel":
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    return dict(sorted(tensors.items()))


def _google_tensors(model: BertModel, dtype: torch.dtype) -> dict[str, Tensor]:
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for name in names_of(model.config):
        if name.google is None:
            raise BertkitError("Google's layout has no place for an untied MLM decoder; choose another layout")
        tensor = _foreign(state, name, dtype)
        tensors[name.google] = tensor.t().contiguous() if name.is_transposed and tensor.dim() == 2 else tensor
    return tensors


def _foreign(state: dict[str, Tensor], name: Name, dtype: torch.dtype) -> Tensor:
    tensor = state[name.native].detach()
    if name.part is not None:
        tensor = tensor.chunk(NUM_PARTS)[name.part].clone()  # thirds of one memory would be written as one
    return tensor.to("cpu", dtype).contiguous()


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_aside(folder: Path, write: Callable[[Path], None]) -> list[Path]:
    """Let `write` fill an empty folder, then move its files to their place, in the order of writing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    except OSError as error:
        raise BertkitError(f"{folder} cannot be written: {error.strerror or error}") from None
    try:
        write(aside)
        written = sorted(aside.iterdir(), key=_moved_last)
        mode = written[-1].stat().st_mode  # the config's; safetensors makes files that only their owner can read
        for path in written:
            path.chmod(mode)
            _flush_to_disk(path)
        return [path.replace(folder / path.name) for path in written]
    except (OSError, SafetensorError) as error:  # safetensors has its own for a full disk
        raise BertkitError(f"{folder} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _moved_last(path: Path) -> tuple[bool, bool, str]:
    """Weights, then their index, then the config: what is found first comes last."""
    return path.name.endswith("config.json"), path.name.endswith((".index", ".index.json")), path.name


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
