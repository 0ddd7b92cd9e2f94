"""Exported graphs give the model's numbers: every output, every shape, padding or none, float32 and eight-bit."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.export.building import build_engine, build_model
from bertkit.export.channels import measure_channels
from bertkit.export.checking import expected, largest_difference, padded_inputs
from bertkit.export.outputs import OUTPUTS, Output, default_output
from bertkit.model import BertConfig, BertModel
from bertkit.model.formats.sentence_transformers import SentenceStyle
from bertkit.model.packed import pack

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 80}
EVERY_HEAD = ("pooler", "mlm", "nsp", "classifier", "tagger", "span")


def made(**changes: Any) -> BertModel:
    """A small model with every head, weights large enough for outputs to differ, and biases and norms not at rest."""
    torch.manual_seed(3)
    config = BertConfig(**{**SMALL, "max_positions": 64, "heads": EVERY_HEAD, "labels": ("a", "b", "c"), **changes})
    model = BertModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def session(graph: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def opened(model: BertModel, output: Output, **options: Any) -> Any:
    return session(build_model(model, output, **options).SerializeToString())


@pytest.fixture(scope="module")
def model() -> BertModel:
    return made()


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_output_equals_pytorch_over_many_shapes(model: BertModel, output: Output) -> None:
    found = opened(model, output)
    assert [value.name for value in found.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    shapes = [(1, 1), (1, 2), (2, 3), (3, 17), (7, 40), (1, 64), (4, 64)]
    assert largest_difference(found, model, output, shapes=shapes) < 2e-5


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_sentence_vectors_follow_the_style(model: BertModel, pooling: Any, normalize: bool) -> None:
    style = SentenceStyle(pooling, normalize)
    assert largest_difference(opened(model, "sentence", style=style), model, "sentence", style) < 2e-5


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "tanh", "silu"])
def test_every_activation_is_exported(activation: str) -> None:
    other = made(activation=activation, num_layers=1)
    assert largest_difference(opened(other, "mlm"), other, "mlm") < 2e-5


def test_an_untied_decoder_is_exported() -> None:
    other = made(tied_decoder=False, num_layers=1)
    assert largest_difference(opened(other, "mlm"), other, "mlm") < 2e-5


def test_the_tied_decoder_is_stored_once(model: BertModel) -> None:
    table = sum(
        list(weight.dims) == [SMALL["vocab_size"], SMALL["hidden_size"]]
        for weight in build_model(model, "mlm").graph.initializer
    )
    assert table == 1


def test_what_stands_in_the_padding_does_not_matter(model: BertModel) -> None:
    inputs, _ = padded_inputs(model, 4, 20)
    other = {**inputs, "input_ids": np.where(inputs["attention_mask"] > 0, inputs["input_ids"], 5)}
    for output in ("sentence", "classifier"):
        found = opened(model, output)
        np.testing.assert_array_equal(found.run(None, inputs)[-1], found.run(None, other)[-1])


def test_graphs_hold_fused_attention_norms_and_gelu(model: BertModel) -> None:
    kinds = [node.op_type for node in build_model(model, "hidden").graph.node]
    assert kinds.count("MultiHeadAttention") == 2
    assert kinds.count("BiasGelu") == 2
    assert kinds.count("LayerNormalization") == 5


def channels(model: BertModel) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(1)
    return measure_channels(model, [random.integers(0, 97, n).tolist() for n in range(2, 30)])


def test_eight_bit_graphs_are_near(model: BertModel) -> None:
    found = opened(model, "sentence", largest=channels(model))
    inputs, packed = padded_inputs(model, 8, 30)
    truth = expected(model, packed, "sentence", SentenceStyle())["sentence_embedding"].numpy()
    vectors = found.run(["sentence_embedding"], inputs)[0]
    cosines = (truth * vectors).sum(1) / np.linalg.norm(truth, axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.min() > 0.995
    assert cosines.max() < 1 - 1e-7  # it is in eight bits


@pytest.mark.parametrize("activation", ["relu", "gelu_tanh"])
def test_eight_bits_follow_other_activations(activation: str) -> None:
    other = made(activation=activation)
    inputs, packed = padded_inputs(other, 8, 30)
    truth = expected(other, packed, "hidden", SentenceStyle())["last_hidden_state"].numpy()
    found = opened(other, "hidden", largest=channels(other)).run(None, inputs)[0]
    rows = found[inputs["attention_mask"].astype(bool)]
    assert np.linalg.norm(rows - truth) < 0.1 * np.linalg.norm(truth)


def test_eight_bits_depend_on_no_other_sequence(model: BertModel) -> None:
    """Scales belong to tokens: a text's vector is the same whatever shares its batch."""
    run = session(build_engine(model, largest=channels(model)))
    random = np.random.default_rng(5)
    ids = random.integers(0, 97, (6, 11))
    together = run.run(None, {"input_ids": ids, "token_type_ids": ids * 0, "rows": np.arange(66)})[0]
    alone = run.run(None, {"input_ids": ids[2:3], "token_type_ids": ids[2:3] * 0, "rows": np.arange(11)})[0]
    np.testing.assert_allclose(together.reshape(6, 11, -1)[2], alone, atol=2e-5)


@pytest.mark.parametrize("narrow", [False, True])
def test_lengths_that_share_a_run_change_nothing(model: BertModel, narrow: bool) -> None:
    """Boxes of several lengths, some of them empty: each sequence is what it is by itself."""
    largest = channels(model) if narrow else None
    alone, packed = (
        session(build_engine(model, largest=largest)),
        session(build_engine(model, largest=largest, num_boxes=4)),
    )
    random = np.random.default_rng(6)
    sequences = [random.integers(0, 97, n) for n in (5, 5, 9, 14)]
    lengths = [len(one) for one in sequences]
    ids, positions = np.concatenate(sequences), np.concatenate([np.arange(n) for n in lengths])
    width = model.config.hidden_size
    boxes = np.array([[2, 5, width], [1, 9, width], [0, 0, width], [1, 14, width]])
    inputs = {"input_ids": ids, "token_type_ids": ids * 0, "positions": positions, "rows": np.arange(len(ids))}
    together = packed.run(None, {**inputs, "boxes": boxes, "sizes": boxes[:, 0] * boxes[:, 1]})[0]
    for one, part in zip(sequences, np.split(together, np.cumsum(lengths)[:-1]), strict=True):
        by_itself = {"input_ids": one[None], "token_type_ids": one[None] * 0, "rows": np.arange(len(one))}
        np.testing.assert_allclose(part, alone.run(None, by_itself)[0], atol=2e-5)


def test_the_engines_graph_gives_the_rows_asked_for(model: BertModel) -> None:
    run = session(build_engine(model))
    ids = np.random.default_rng(2).integers(0, 97, (3, 9))
    rows = np.array([26, 0, 9, 13])
    found = run.run(None, {"input_ids": ids, "token_type_ids": ids * 0, "rows": rows})[0]
    with torch.inference_mode():
        truth = model.encoder(pack(ids.tolist()))[rows].numpy()
    np.testing.assert_allclose(found, truth, atol=2e-5)


def test_a_head_that_is_not_there_is_refused(model: BertModel) -> None:
    bare = BertModel(BertConfig(**SMALL, heads=("pooler",)))  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="no tagger head; it can give hidden, sentence, pooler"):
        build_model(bare, "tagger")
    with pytest.raises(BertkitError, match="unknown output 'tags'"):
        build_model(model, "tags")  # type: ignore[arg-type]


def test_the_default_output_is_what_the_model_is_for() -> None:
    plain = BertConfig(**SMALL)  # type: ignore[arg-type]
    assert default_output(plain, None) == "hidden"
    assert default_output(plain, SentenceStyle()) == "sentence"
    assert default_output(plain.with_heads(("span",)), SentenceStyle()) == "span"


def test_a_graph_without_finite_numbers_is_no_match() -> None:
    other = made(num_layers=1)
    found = opened(other, "hidden")
    with torch.no_grad():
        other.encoder.embeddings.norm.weight[0] = float("nan")
    assert np.isnan(largest_difference(found, other, "hidden"))
