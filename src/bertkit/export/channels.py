"""How large the inputs of linear layers become, channel by channel: what eight-bit weights are smoothed with.

In: a model and sequences of token ids. Out: the largest absolute value of every channel of the inputs of `qkv` and
`up`, by "layer.kind". They only divide the work between tokens and weights: other texts than these lose little.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from bertkit.errors import BertkitError
from bertkit.export.linear import SHARES, Array, array
from bertkit.model.bert import BertModel
from bertkit.model.encoder import Layer
from bertkit.model.packed import pack
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer

AT_ONCE = 16
SAMPLE_SENTENCES = 192
MARK = "weights"  # in the file's metadata


def measure_channels(model: BertModel, sequences: Sequence[list[int]]) -> dict[str, Array]:
    """The largest value of every channel over these sequences."""
    found: dict[str, Tensor] = {}
    ordered = sorted(sequences, key=len)
    with _watching(model, found), torch.inference_mode():
        for start in range(0, len(ordered), AT_ONCE):
            batch = pack(ordered[start : start + AT_ONCE]).to(model.device)
            model.encoder(batch)
    return {key: value.float().cpu().numpy() for key, value in found.items()}


@contextmanager
def _watching(model: BertModel, found: dict[str, Tensor]) -> Iterator[None]:
    """While this lasts, inputs of the linear layers leave their largest values."""

    def watch(key: str) -> Any:
        def look(_: Any, inputs: tuple[Tensor]) -> None:
            largest = inputs[0].abs().amax(dim=0)
            found[key] = torch.maximum(found[key], largest) if key in found else largest

        return look

    layers = cast(list[Layer], list(model.encoder.layers))
    handles = [
        getattr(layer, kind).register_forward_pre_hook(watch(f"{number}.{kind}"))
        for number, layer in enumerate(layers)
        for kind in SHARES
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def sample_sequences(tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """Token ids of the sample text that ships with bertkit: sentences, and whole documents as longer sequences."""
    documents = sample_documents()
    sentences = [sentence for document in documents for sentence in document]
    step = max(1, len(sentences) // SAMPLE_SENTENCES)
    texts = sentences[::step] + [" ".join(document) for document in documents[::8]]
    ids = tokenizer.encode_ids(texts)
    return [[tokenizer.cls_id, *one[: longest - 2], tokenizer.sep_id] for one in ids]


def save_channels(path: Path, largest: dict[str, Array], model: BertModel) -> None:
    """Beside the exported file, so that the engine need not measure again; marked with the weights they belong to."""
    arrays = {key: np.ascontiguousarray(value) for key, value in largest.items()}
    path.write_bytes(save(arrays, metadata={MARK: weights_mark(model)}))


def weights_mark(model: BertModel) -> str:
    """A checksum of the encoder's weights."""
    mark = 0
    for tensor in model.encoder.state_dict().values():
        mark = zlib.crc32(np.ascontiguousarray(array(tensor)).data, mark)
    return f"{mark:08x}"


def load_channels(path: Path, model: BertModel) -> dict[str, Array] | None:
    """What save_channels wrote for this model; None where the model has other weights by now."""
    try:
        with safe_open(path, "np") as file:
            made_of = (file.metadata() or {}).get(MARK)
            largest = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise BertkitError(f"{path} cannot be read ({error}); export it again with --int8, or remove it") from None
    if made_of is not None and made_of != weights_mark(model):
        return None
    layers = cast(list[Layer], list(model.encoder.layers))
    for number, layer in enumerate(layers):
        for kind in SHARES:
            width = getattr(layer, kind).in_features
            if largest.get(f"{number}.{kind}", np.zeros(0)).shape != (width,):
                raise BertkitError(f"{path} does not belong to this model; export it again with --int8")
    return largest
