"""The reference implementation with the weights of a bertkit model, and its padded batches."""

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig as ReferenceConfig
from transformers import BertForPreTraining

from bertkit.model import BertConfig, BertModel, PackedBatch, pack
from bertkit.tasks.pretraining import PretrainingBatch

LENGTHS = (33, 1, 7, 20, 2, 48)


def reference_config(config: BertConfig) -> ReferenceConfig:
    return ReferenceConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_positions,
        attn_implementation="eager",
    )


def reference_names(config: BertConfig) -> dict[str, list[str]]:
    """For each parameter of a pre-training BertModel, the reference parameters it is made of, joined on axis 0."""
    names = {
        "encoder.embeddings.token": ["bert.embeddings.word_embeddings"],
        "encoder.embeddings.segment": ["bert.embeddings.token_type_embeddings"],
        "encoder.embeddings.position": ["bert.embeddings.position_embeddings"],
        "encoder.embeddings.norm": ["bert.embeddings.LayerNorm"],
        "pooler": ["bert.pooler.dense"],
        "mlm.transform": ["cls.predictions.transform.dense"],
        "mlm.norm": ["cls.predictions.transform.LayerNorm"],
        "mlm": ["cls.predictions"],
        "nsp": ["cls.seq_relationship"],
    }
    for i in range(config.num_layers):
        ours, theirs = f"encoder.layers.{i}", f"bert.encoder.layer.{i}"
        names[f"{ours}.qkv"] = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        names[f"{ours}.attention_output"] = [f"{theirs}.attention.output.dense"]
        names[f"{ours}.attention_norm"] = [f"{theirs}.attention.output.LayerNorm"]
        names[f"{ours}.up"] = [f"{theirs}.intermediate.dense"]
        names[f"{ours}.down"] = [f"{theirs}.output.dense"]
        names[f"{ours}.output_norm"] = [f"{theirs}.output.LayerNorm"]
    return names


def make_pair(config: BertConfig, seed: int = 0) -> tuple[BertModel, Any]:
    """A BertModel and the reference with the same random weights (biases too), both in evaluation mode."""
    torch.manual_seed(seed)
    reference = BertForPreTraining(reference_config(config)).eval()
    for name, parameter in reference.named_parameters():
        if name.endswith(("bias", "LayerNorm.weight")):
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.05)
    theirs = dict(reference.named_parameters())
    model = BertModel(config).eval()
    names = reference_names(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module, leaf = name.rsplit(".", 1)
            parameter.copy_(torch.cat([theirs[f"{part}.{leaf}"] for part in names[module]]))
    return model, reference


def make_batch(config: BertConfig, lengths: tuple[int, ...] = LENGTHS, seed: int = 1) -> PretrainingBatch:
    """Random sequences of mixed lengths with their masks and next-sentence labels."""
    g = torch.Generator().manual_seed(seed)
    ids = [torch.randint(5, config.vocab_size, (n,), generator=g).tolist() for n in lengths]
    segments = [[int(i > n // 2) for i in range(n)] for n in lengths]
    inputs = pack(ids, segments)
    masked = torch.randperm(inputs.num_tokens, generator=g)[: max(2, inputs.num_tokens // 6)].sort().values
    targets = torch.randint(5, config.vocab_size, (len(masked),), generator=g)
    return PretrainingBatch(inputs, masked, targets, torch.randint(0, 2, (len(lengths),), generator=g))


def padded(batch: PackedBatch) -> dict[str, Tensor]:
    """The batch as the reference takes it."""
    pad = torch.nn.utils.rnn.pad_sequence
    ids, segments = batch.split(batch.token_ids), batch.split(batch.segment_ids)
    mask = pad([torch.ones_like(row) for row in ids], batch_first=True)
    return {
        "input_ids": pad(list(ids), batch_first=True),
        "token_type_ids": pad(list(segments), batch_first=True),
        "attention_mask": mask,
    }


def reference_labels(batch: PretrainingBatch) -> Tensor:
    """MLM labels in the padded layout, -100 everywhere but at the masked positions."""
    flat = torch.full((batch.inputs.num_tokens,), -100)
    flat[batch.masked_positions] = batch.masked_token_ids
    rows = list(batch.inputs.split(flat))
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)


def assert_gradients_equal(model: BertModel, reference: Any) -> None:
    """Each gradient within 1e-4 of its reference's norm, plus 1e-7 of the norm of all.

    The second part is for the key bias: adding the same to every key changes no softmax, so its gradient is zero
    but for rounding.
    """
    expected = {name: parameter.grad for name, parameter in reference.named_parameters()}
    whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    names = reference_names(model.config)
    for name, parameter in model.named_parameters():
        module, leaf = name.rsplit(".", 1)
        assert parameter.grad is not None, name
        parts = parameter.grad.chunk(len(names[module]))
        for part, gradient in zip(names[module], parts, strict=True):
            theirs = expected[f"{part}.{leaf}"]
            assert (gradient - theirs).norm() <= 1e-4 * theirs.norm() + 1e-7 * whole, f"{part}.{leaf}"
