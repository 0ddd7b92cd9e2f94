"""Small models of the reference implementation, and its numbers beside bertkit's on the same batch."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bertkit.errors import BertkitError
from bertkit.model import BertConfig, BertModel, PackedBatch, pack

SIZES = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
HEADS = {
    "BertModel": ("pooler",),
    "BertForPreTraining": ("pooler", "mlm", "nsp"),
    "BertForMaskedLM": ("mlm",),
    "BertForNextSentencePrediction": ("pooler", "nsp"),
    "BertForSequenceClassification": ("pooler", "classifier"),
    "BertForTokenClassification": ("tagger",),
    "BertForQuestionAnswering": ("span",),
}
LABELS = ("O", "B-PER", "I-PER")
WEIGHTS = Path(__file__).parents[3] / "build" / "weights"


def labels_of(architecture: str) -> tuple[str, ...]:
    return LABELS if architecture in ("BertForSequenceClassification", "BertForTokenClassification") else ()


def make_peer(architecture: str, **changes: Any) -> Any:
    """A reference model with every weight random, biases and LayerNorms too."""
    if labels_of(architecture):
        changes = {"id2label": dict(enumerate(LABELS)), "label2id": {n: i for i, n in enumerate(LABELS)}, **changes}
    torch.manual_seed(3)
    peer = getattr(transformers, architecture)(transformers.BertConfig(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            parameter.normal_(mean=float(name.endswith("LayerNorm.weight")), std=0.1)
    return peer


def make_model(*heads: Any, seed: int = 5, **changes: Any) -> BertModel:
    """A bertkit model with every weight random."""
    labels = LABELS if {"classifier", "tagger"} & set(heads) else ()
    sizes: dict[str, Any] = {"vocab_size": 90, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
    sizes |= {"intermediate_size": 64, "max_positions": 40, "heads": heads, "labels": labels}
    torch.manual_seed(seed)
    model = BertModel(BertConfig(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=float(name.endswith("norm.weight")), std=0.1)
    return model


def make_batch(vocab_size: int = 90, lengths: tuple[int, ...] = (9, 1, 30, 4)) -> PackedBatch:
    generator = torch.Generator().manual_seed(11)
    # No [PAD]: packed batches have none, and the reference gives its row no gradient.
    ids = [torch.randint(1, vocab_size, (length,), generator=generator).tolist() for length in lengths]
    return pack(ids, [[int(place > length // 2) for place in range(length)] for length in lengths])


def our_outputs(model: BertModel, batch: PackedBatch) -> dict[str, Tensor]:
    """Hidden states [T, D] and the output of every head."""
    hidden = model.encoder(batch)
    cls = hidden[batch.cls_rows]
    functions = {
        "pooler": lambda: model.pooled(cls),
        "mlm": lambda: model.mlm_logits(hidden),
        "nsp": lambda: model.nsp_logits(cls),
        "classifier": lambda: model.class_logits(cls),
        "tagger": lambda: model.tag_logits(hidden),
        "span": lambda: model.span_logits(hidden),
    }
    return {"hidden": hidden} | {head: functions[head]() for head in model.config.heads}


def peer_outputs(peer: Any, batch: PackedBatch) -> dict[str, Tensor]:
    """The same from the reference, which pads."""
    rows = [pad_sequence(list(batch.split(ids)), batch_first=True) for ids in (batch.token_ids, batch.segment_ids)]
    mask = pad_sequence([torch.ones_like(row) for row in batch.split(batch.token_ids)], batch_first=True)
    output = peer(input_ids=rows[0], token_type_ids=rows[1], attention_mask=mask, output_hidden_states=True)
    real = mask.bool()
    found = {"hidden": output.hidden_states[-1][real]}
    architecture = type(peer).__name__
    if architecture == "BertModel":
        return found | {"pooler": output.pooler_output}
    if architecture == "BertForPreTraining":
        return found | {"mlm": output.prediction_logits[real], "nsp": output.seq_relationship_logits}
    if architecture == "BertForQuestionAnswering":
        return found | {"span": torch.stack([output.start_logits, output.end_logits], dim=-1)[real]}
    head = next(head for head in HEADS[architecture] if head != "pooler")
    return found | {head: output.logits if head in ("nsp", "classifier") else output.logits[real]}


def distance(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference over all outputs that the reference gives."""
    return max((ours[name] - theirs[name]).abs().max().item() for name in theirs)


def load_peer(architecture: str, folder: Path) -> Any:
    """The reference's own reading of a folder, which must find exactly what it expects."""
    peer, info = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return peer.eval()


def assert_same(one: BertModel, other: BertModel) -> None:
    """Bit for bit, and the same config."""
    first, second = one.state_dict(), other.state_dict()
    assert list(first) == list(second)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert {tensor.dtype for tensor in first.values()} == {tensor.dtype for tensor in second.values()}
    assert one.config == other.config


def assert_one_line(error: BertkitError, *parts: str) -> None:
    """A message for people: one line that holds these parts."""
    message = str(error)
    assert "\n" not in message
    assert [part for part in parts if part not in message] == [], message


def plain_crc(data: bytes) -> int:
    """CRC-32C bit by bit, as its definition says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
