"""Which program computes the encoder: PyTorch; on CPUs also ONNX Runtime in float32 or int8, on GPUs our kernels in float8.

`auto` takes what the folder was exported for (`bertkit export`), and PyTorch where it was not; float32 engines agree
within rounding, and eight bits are used only where somebody asked for them, here or by exporting these very weights.
"""

import warnings
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.export.building import build_engine
from bertkit.export.channels import load_channels, measure_channels, sample_sequences
from bertkit.export.linear import SHARES, Array, array, smoothing
from bertkit.inference.bert import Bert
from bertkit.inference.engines.session import SessionEncoder, Sessions
from bertkit.model.fast_inference import can_use_eight_bits

Engine = Literal["auto", "torch", "onnx", "int8", "float8"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
FOLDER = "onnx"
FLOAT_FILE, NARROW_FILE, CHANNELS_FILE = "model.onnx", "model_int8.onnx", "int8_channels.safetensors"
LONGEST_SAMPLE = 256


def use_engine(bert: Bert, engine: str = "auto", *, folder: Path | None = None, threads: int | None = None) -> Bert:
    """Let this checkpoint run by the named engine; `folder` is where it was loaded from. Returns the same Bert."""
    chosen = choose_engine(bert, engine, folder)
    largest = exported_channels(bert, folder) if chosen == "int8" else None
    if chosen == "int8" and largest is None:
        if engine == "auto":
            chosen = "torch"
            warnings.warn(f"{folder}/{FOLDER} is of other weights and is not used; export it again", stacklevel=3)
        else:
            largest = sample_channels(bert)
    use_torch(bert)
    if chosen == "float8":
        bert.model.encoder.use_eight_bits(sample_factors(bert))
    elif chosen != "torch":
        bert.model.encoder = session_encoder(bert, largest, threads)
    bert.engine = chosen
    return bert


def use_torch(bert: Bert) -> None:
    """Let this checkpoint run by PyTorch again, as after its weights were changed: other engines hold copies."""
    if isinstance(bert.model.encoder, SessionEncoder):
        (bert.model.encoder,) = bert.model.encoder.plain
    bert.model.encoder.eights = None
    bert.engine = "torch"


def session_encoder(bert: Bert, largest: dict[str, Array] | None, threads: int | None = None) -> SessionEncoder:
    """This checkpoint's encoder by ONNX Runtime; in eight bits where the channels' largest values are given."""
    sessions = Sessions(lambda boxes: build_engine(bert.model, largest=largest, num_boxes=boxes), threads)
    return SessionEncoder(bert.model.encoder, sessions)


def choose_engine(bert: Bert, engine: str, folder: Path | None) -> Engine:
    """The engine meant, checked against the device and dtype."""
    if engine not in ENGINES:
        raise BertkitError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    fits = bert.device.type == "cpu" and bert.model.encoder.embeddings.token.weight.dtype == torch.float32
    if engine == "auto":
        return exported_engine(folder) if fits and not bert.config.is_causal else "torch"  # no graph is left to right
    if engine == "float8" and not can_use_eight_bits(bert.model.encoder):
        raise BertkitError(
            "engine float8 is for bfloat16 weights on an NVIDIA GPU of compute capability 8.9 or more, where Triton is "
            "installed, and for layers with GELU that read both directions; use engine auto"
        )
    if engine in ("onnx", "int8") and not fits:
        raise BertkitError(f"engine {engine} is for CPUs and float32 weights; use engine auto, or device cpu")
    return engine


def exported_engine(folder: Path | None) -> Engine:
    """What a folder was exported for; PyTorch where it was not, or where ONNX Runtime is not installed."""
    if folder is None or not has_runtime():
        return "torch"
    if (folder / FOLDER / CHANNELS_FILE).is_file():
        return "int8"
    return "onnx" if (folder / FOLDER / FLOAT_FILE).is_file() else "torch"


def has_runtime() -> bool:
    """Whether graphs can be built and run here."""
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("onnx", "onnxruntime"))


def exported_channels(bert: Bert, folder: Path | None) -> dict[str, Array] | None:
    """The channels' largest values as they were exported, where they were and the weights are still the same."""
    stored = folder / FOLDER / CHANNELS_FILE if folder is not None else None
    return load_channels(stored, bert.model) if stored is not None and stored.is_file() else None


def sample_factors(bert: Bert) -> dict[str, Tensor]:
    """What the input channels of products in int8 are divided by, from their sizes on the sample text."""
    factors = {}
    for key, largest in sample_channels(bert).items():
        number, kind = key.split(".")
        linear = getattr(bert.model.encoder.layers[int(number)], kind)
        factors[key] = torch.from_numpy(smoothing(largest, array(linear.weight), SHARES[kind]))
    return factors


def sample_channels(bert: Bert) -> dict[str, Array]:
    """The same measured now, on the sample text."""
    longest = min(LONGEST_SAMPLE, bert.config.max_positions)
    return measure_channels(bert.model, sample_sequences(bert.tokenizer, longest))
