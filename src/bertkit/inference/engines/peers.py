"""The peers that `bertkit bench` measures, where they are installed: each as its users write it, and also sorted.

transformers in batches of 32; sentence-transformers; ONNX Runtime on the graph that PyTorch exports, in float32 and
after its own dynamic quantisation. All give the mean of the last layer's vectors. Nothing here is used elsewhere.
"""

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.cores import has_bfloat16
from bertkit.inference.engines.session import load_runtime, num_threads

Vectors = NDArray[np.float32]
Contestant = Callable[[Sequence[str]], Vectors]
Runner = Callable[[Any], Vectors]  # padded inputs -> [N, S, D]
ROWS = 32
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def peers_of(folder: Path, max_length: int, threads: int | None) -> tuple[dict[str, Contestant], list[str]]:
    """The peers by name, and which could not be measured and why."""
    if not find_spec("transformers"):
        return {}, ["transformers is not installed: peers are left out"]
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModel.from_pretrained(folder).eval().float()
    except Exception as error:  # it reads fewer layouts than bertkit, and says so in many ways
        return {}, [f"transformers does not load {folder} ({_reason(error)}): peers are left out"]
    max_length = min(max_length, model.config.max_position_embeddings)

    def encode(texts: Sequence[str]) -> Any:
        return tokenizer(list(texts), padding=True, truncation=True, max_length=max_length, return_tensors="pt")

    hidden = hidden_of(model)
    peers: dict[str, Contestant] = {
        "transformers, batches of 32": lambda texts: in_batches(texts, encode, hidden, ordered=False),
        "transformers, sorted": lambda texts: in_batches(texts, encode, hidden, ordered=True),
    }
    if has_bfloat16():
        narrow = hidden_of(deepcopy(model).bfloat16())
        peers["transformers bfloat16, sorted"] = lambda texts: in_batches(texts, encode, narrow, ordered=True)
    notes: list[str] = []
    for add in (add_sentence_transformers, add_runtime):
        try:
            peers |= add(folder, model, encode, threads)
        except Exception as error:
            notes.append(f"{add.__name__.removeprefix('add_')} could not be measured: {_reason(error)}")
    return peers, notes


def hidden_of(model: Any) -> Runner:
    """The last layer of a model of transformers."""

    @torch.inference_mode()
    def run(inputs: Any) -> Vectors:
        states: Vectors = model(**inputs).last_hidden_state.float().numpy()
        return states

    return run


def _reason(error: Exception) -> str:
    return f"{type(error).__name__} {(str(error).splitlines() or [''])[0]}"


def in_batches(texts: Sequence[str], encode: Callable[..., Any], hidden: Runner, *, ordered: bool) -> Vectors:
    """Means over real tokens, batch by batch of 32 rows, in the order given or by length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i])) if ordered else list(range(len(texts)))
    found: dict[int, Vectors] = {}
    for start in range(0, len(order), ROWS):
        part = order[start : start + ROWS]
        inputs = encode([texts[i] for i in part])
        mask = inputs["attention_mask"].numpy()[..., None].astype(np.float32)
        means = (hidden(inputs) * mask).sum(axis=1) / mask.sum(axis=1)
        found.update(zip(part, means, strict=True))
    return np.stack([found[i] for i in range(len(texts))])


def add_sentence_transformers(folder: Path, *_: Any) -> dict[str, Contestant]:
    """Its encode; where the folder's vectors are scaled to length 1, cosines are the same."""
    if not find_spec("sentence_transformers") or not (folder / "modules.json").is_file():
        return {}
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return {"sentence-transformers": lambda texts: model.encode(list(texts), batch_size=ROWS)}


def add_runtime(_: Path, model: Any, encode: Callable[..., Any], threads: int | None) -> dict[str, Contestant]:
    """The exported graph, and two ways of quantising it."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    peers: dict[str, Contestant] = {}
    with tempfile.TemporaryDirectory(prefix="bertkit-bench-") as place, quiet():
        plain = Path(place) / "plain.onnx"
        _trace(model, encode(["one text", "and another text"]), plain)
        kinds: dict[str, dict[str, Any]] = {
            "ONNX Runtime float32, sorted": {},
            "ONNX Runtime dynamic int8, sorted": {"weight_type": QuantType.QInt8},
            "ONNX Runtime int8 by channel, sorted": {"weight_type": QuantType.QInt8, "per_channel": True},
        }
        for name, settings in kinds.items():
            path = plain
            if settings:
                path = Path(place) / "quantized.onnx"
                quantize_dynamic(plain, path, **settings)
            peers[name] = _runtime_peer(path, encode, threads)
    return peers


@contextmanager
def quiet() -> Iterator[None]:
    """What the peers' own tools say of themselves is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _runtime_peer(path: Path, encode: Callable[..., Any], threads: int | None) -> Contestant:
    runtime = load_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or num_threads()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])

    def hidden(inputs: Any) -> Vectors:
        states: Vectors = session.run(None, {name: inputs[name].numpy() for name in INPUTS})[0]
        return states

    return lambda texts: in_batches(texts, encode, hidden, ordered=True)


def _trace(model: Any, example: Any, path: Path) -> None:
    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            found = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            return found.last_hidden_state

    axes = {name: {0: "batch", 1: "sequence"} for name in (*INPUTS, "hidden")}
    torch.onnx.export(
        Hidden().eval(),  # else the export leaves the model in training, with dropout
        tuple(example[name] for name in INPUTS),
        str(path),
        input_names=list(INPUTS),
        output_names=["hidden"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
