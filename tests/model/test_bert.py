"""The model: heads, the rows shortcut, dropout and initialisation."""

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel, pack, preset
from tests.model.reference import make_batch

CONFIG = preset(
    "tiny", vocab_size=60, heads=("pooler", "mlm", "nsp", "classifier", "tagger", "span"), labels=("x", "y", "z")
)


def test_only_the_rows_asked_for_are_computed_and_they_are_exact() -> None:
    model = BertModel(CONFIG).eval()
    batch = make_batch(CONFIG).inputs
    rows = torch.tensor([5, 0, 40, 40])
    whole, some = model.encoder(batch), model.encoder(batch, rows=rows)
    assert some.shape == (4, CONFIG.hidden_size)
    assert torch.allclose(some, whole[rows], atol=1e-6)


def test_every_head_has_its_shape() -> None:
    model = BertModel(CONFIG)
    hidden = torch.randn(7, CONFIG.hidden_size)
    shapes = {
        model.pooled: CONFIG.hidden_size,
        model.mlm_logits: CONFIG.vocab_size,
        model.nsp_logits: 2,
        model.class_logits: 3,
        model.tag_logits: 3,
        model.span_logits: 2,
    }
    for head, width in shapes.items():
        assert head(hidden).shape == (7, width)


def test_a_missing_head_says_so() -> None:
    model = BertModel(preset("tiny", vocab_size=60, heads=()))
    with pytest.raises(BertkitError, match="no mlm head"):
        model.mlm_logits(torch.randn(1, 128))


def test_the_tied_decoder_is_the_token_table() -> None:
    model = BertModel(CONFIG)
    model.mlm_logits(torch.randn(3, CONFIG.hidden_size)).sum().backward()
    assert model.encoder.embeddings.token.weight.grad is not None
    untied = BertModel(preset("tiny", vocab_size=60, tied_decoder=False))
    untied.mlm_logits(torch.randn(3, 128)).sum().backward()
    assert untied.encoder.embeddings.token.weight.grad is None


def test_dropout_works_in_training_alone() -> None:
    model = BertModel(CONFIG)
    batch = pack([[1, 2, 3, 4]])
    assert not torch.equal(model.train().encoder(batch), model.encoder(batch))
    assert torch.equal(model.eval().encoder(batch), model.encoder(batch))


def test_position_and_segment_matter() -> None:
    model = BertModel(CONFIG).eval()
    same_token = model.encoder(pack([[9, 9]]))
    assert not torch.allclose(same_token[0], same_token[1], atol=1e-4)
    assert not torch.allclose(same_token, model.encoder(pack([[9, 9]], [[1, 1]])), atol=1e-4)


def test_initialisation_is_the_papers() -> None:
    model = BertModel(preset("tiny"))
    assert model.encoder.embeddings.token.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        if "norm.weight" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
