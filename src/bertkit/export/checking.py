"""An exported graph beside the model it was made of: the same inputs through both, over several shapes.

In: a session and the model. Out: the largest difference. Sequences of one batch have different lengths, so that
padding is tried too, and what stands in it is not compared.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.export.outputs import OVER_CLS, Output
from bertkit.model.bert import BertModel
from bertkit.model.formats.sentence_transformers import SentenceStyle
from bertkit.model.packed import PackedBatch, pack
from bertkit.model.pooling import pool

SHAPES = ((1, 1), (1, 2), (2, 7), (5, 33), (3, 64), (1, 128))
Arrays = dict[str, NDArray[Any]]


def padded_inputs(model: BertModel, num: int, longest: int, seed: int = 0) -> tuple[Arrays, PackedBatch]:
    """Random sequences of up to `longest` tokens, padded as plain ONNX Runtime takes them, and packed."""
    random = np.random.default_rng(seed)
    lengths = np.maximum(1, longest - np.arange(num) * longest // (num + 1))
    mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
    ids = random.integers(0, model.config.vocab_size, (num, longest)) * mask + model.config.pad_token_id * (1 - mask)
    segments = random.integers(0, model.config.num_segments, (num, longest)) * mask
    packed = pack([row[:n].tolist() for row, n in zip(ids, lengths, strict=True)])
    kinds = torch.from_numpy(segments[mask.astype(bool)])
    packed = PackedBatch(packed.token_ids, kinds, packed.position_ids, packed.cu_seqlens, packed.max_seqlen)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}, packed


@torch.inference_mode()
def expected(model: BertModel, batch: PackedBatch, output: Output, style: SentenceStyle) -> dict[str, Tensor]:
    """What PyTorch gives: a row a token, or a row a sequence."""
    if output in OVER_CLS:
        heads = {"pooler": model.pooled, "nsp": model.nsp_logits, "classifier": model.class_logits}
        name = "pooler_output" if output == "pooler" else "logits"
        return {name: heads[output](model.encoder(batch, rows=batch.cls_rows))}
    hidden = model.encoder(batch)
    if output == "sentence":
        vectors = pool(hidden, batch, style.pooling)
        vectors = torch.nn.functional.normalize(vectors, dim=-1) if style.normalize else vectors
        return {"sentence_embedding": vectors}
    if output == "span":
        starts, ends = model.span_logits(hidden).unbind(-1)
        return {"start_logits": starts, "end_logits": ends}
    if output == "hidden":
        return {"last_hidden_state": hidden}
    return {"logits": model.mlm_logits(hidden) if output == "mlm" else model.tag_logits(hidden)}


def largest_difference(
    session: Any,
    model: BertModel,
    output: Output,
    style: SentenceStyle | None = None,
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> float:
    """The largest absolute difference over all outputs and shapes that the model's positions allow."""
    differences = [0.0]
    for num, longest in shapes:
        if longest > model.config.max_positions:
            continue
        inputs, packed = padded_inputs(model, num, longest)
        for name, truth in expected(model, packed, output, style or SentenceStyle()).items():
            (found,) = session.run([name], inputs)
            per_token = found.shape[:2] == (num, longest) and len(truth) == packed.num_tokens
            rows = found[inputs["attention_mask"].astype(bool)] if per_token else found
            differences.append(float(np.abs(rows - truth.numpy()).max()))
    return float(np.max(differences))  # NaN where one is: Python's max would pass over it
