"""Sizes: heads and parameter counts are pinned, and bad configs are refused in one line."""

import pytest

from bertkit.errors import BertkitError
from bertkit.model import BertConfig, BertModel, num_parameters, preset
from bertkit.model.config import Head

# name: (layers, hidden, heads, parameters with pooler, parameters with the pre-training heads); vocabulary 30,522
SIZES = {
    "tiny": (2, 128, 2, 4_385_920, 4_433_468),
    "mini": (4, 256, 4, 11_170_560, 11_267_900),
    "small": (4, 512, 8, 28_763_648, 29_058_876),
    "medium": (8, 512, 8, 41_373_184, 41_668_412),
    "base": (12, 768, 12, 109_482_240, 110_106_428),
    "large": (24, 1024, 16, 335_141_888, 336_226_108),
}


@pytest.mark.parametrize("size", SIZES)
def test_presets_have_the_published_shapes(size: str) -> None:
    layers, hidden, heads, with_pooler, pretraining = SIZES[size]
    config = preset(size)
    assert (config.num_layers, config.hidden_size, config.num_heads) == (layers, hidden, heads)
    assert config.head_size == 64
    assert config.intermediate_size == 4 * hidden
    assert num_parameters(config.with_heads(["pooler"])) == with_pooler
    assert num_parameters(config) == pretraining


@pytest.mark.parametrize(
    "heads", [(), ("pooler",), ("mlm",), ("pooler", "mlm", "nsp"), ("pooler", "classifier"), ("tagger",), ("span",)]
)
@pytest.mark.parametrize("tied", [True, False])
def test_counted_parameters_are_those_of_the_module(heads: tuple[Head, ...], tied: bool) -> None:
    config = preset("tiny", vocab_size=100, heads=heads, labels=("a", "b", "c"), tied_decoder=tied)
    assert num_parameters(config) == sum(p.numel() for p in BertModel(config).parameters())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_heads": 5}, "does not divide into 5 heads"),
        ({"activation": "swish2"}, "unknown activation"),
        ({"hidden_dropout": 1.0}, "hidden_dropout is 1.0"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"heads": ("nsp",)}, "add 'pooler' to heads"),
        ({"heads": ("pooler", "classifier")}, "needs labels"),
        ({"heads": ("decoder",)}, "unknown head 'decoder'"),
    ],
)
def test_bad_configs_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BertkitError, match=said):
        BertConfig(**changes)  # type: ignore[arg-type]


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(BertkitError, match="did you mean 'large'"):
        preset("lrage")
