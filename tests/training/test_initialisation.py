"""How a fresh encoder begins: what is zero, what is Xavier's, what is a wave; none of it reaches the checkpoint's config."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bertkit.corpus.masking import generator
from bertkit.corpus.pairs import PairConfig
from bertkit.errors import BertkitError
from bertkit.inference.loading import load
from bertkit.model import BertModel, preset
from bertkit.model.attention import PlainAttention
from bertkit.model.encoder import Layer
from bertkit.model.packed import pack
from bertkit.tasks.examples import collate
from bertkit.tasks.pretraining import pretraining_losses
from bertkit.tasks.stream import draw_examples
from bertkit.training.checkpoints import CheckpointConfig, CheckpointFolder
from bertkit.training.initialisation import Positions, Start, initialise, look_beside, repeat_positions
from bertkit.training.plan import Stage
from bertkit.training.start import fresh_model
from bertkit.training.watch import Guard
from tests.model.reference import make_batch
from tests.training.tiny import recipe, run, tokenizer

CONFIG = preset("tiny", vocab_size=60, num_layers=12, hidden_size=256, num_heads=4, intermediate_size=1024)


def layers(start: Start, num_layers: int | None = None) -> list[Layer]:
    torch.manual_seed(0)
    model = BertModel(CONFIG)
    initialise(model, start, num_layers)
    return list(model.encoder.layers)  # type: ignore[arg-type]


def test_the_papers_start_is_left_as_it_is() -> None:
    for layer in layers("paper"):
        for module in (layer.qkv, layer.attention_output, layer.up, layer.down):
            assert module.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_sublayers_that_start_at_zero_say_nothing_and_still_learn() -> None:
    torch.manual_seed(0)
    model = BertModel(replace(CONFIG, hidden_dropout=0.0, attention_dropout=0.0))
    initialise(model, "zero")
    batch = make_batch(model.config).inputs
    states = model.encoder.all_layers(batch)
    torch.testing.assert_close(states[-1], states[0], atol=1e-4, rtol=1e-4)  # only LayerNorms, which are idle
    states[-1].square().mul(torch.arange(256)).sum().backward()
    first: Layer = model.encoder.layers[0]  # type: ignore[assignment]
    for module in (first.attention_output, first.down):
        assert module.weight.grad is not None
        assert module.weight.grad.norm() > 0


def test_deepnorm_is_folded_into_xaviers_start() -> None:
    a, b = 24**0.25, 96**-0.25
    assert (round(a, 2), round(b, 2)) == (2.21, 0.32)  # twelve layers, as worked out in the paper on DeepNorm
    square, oblong = (2 / 512) ** 0.5, (2 / 1280) ** 0.5
    for layer in layers("deepnorm"):
        query, key, value = layer.qkv.weight.chunk(3)
        deviations = {
            "query": (query, square),
            "key": (key, square),
            "value": (value, b * square),
            "output": (layer.attention_output.weight, b * square / a),
            "up": (layer.up.weight, b * oblong),
            "down": (layer.down.weight, b * oblong / a),
        }
        for name, (weight, expected) in deviations.items():
            assert weight.std().item() == pytest.approx(expected, rel=0.05), name


def test_a_model_that_will_grow_starts_by_its_final_depth() -> None:
    shallow, deep = layers("deepnorm")[0], layers("deepnorm", num_layers=48)[0]
    torch.testing.assert_close(deep.up.weight, shallow.up.weight * 4**-0.25)
    torch.testing.assert_close(deep.down.weight, shallow.down.weight * 4**-0.5)


@pytest.mark.parametrize("start", ["zero", "deepnorm"])
def test_a_recipe_names_the_start_and_the_checkpoint_does_not(start: Start, tmp_path: Path) -> None:
    plain = recipe()
    changed = recipe(model=replace(plain.model, start=start))
    ours, papers = fresh_model(changed, tokenizer()), fresh_model(plain, tokenizer())
    assert ours.config == papers.config
    assert torch.equal(ours.encoder.embeddings.token.weight, papers.encoder.embeddings.token.weight)
    down = "encoder.layers.0.down.weight"
    assert not torch.equal(ours.get_parameter(down), papers.get_parameter(down))
    assert run(tmp_path, replace(changed, steps=2)).step == 2


def first_weights(model: BertModel) -> Tensor:
    """Of attention in the first layer, [head, token, token], for 48 tokens drawn at random."""
    batch = pack([torch.randint(5, 60, (48,)).tolist()])
    attention = PlainAttention(batch, is_causal=model.config.is_causal)
    model.encoder.all_layers(batch, attention)
    return attention.weights[0][0]


@pytest.mark.parametrize("hidden_size", [768, 256, 128])
def test_half_of_the_first_heads_begin_by_looking_beside(hidden_size: int) -> None:
    torch.manual_seed(0)
    model = BertModel(replace(CONFIG, hidden_size=hidden_size, num_heads=hidden_size // 64)).eval()
    look_beside(model)
    weights = first_weights(model)
    num_looking = max(2, len(weights) // 2)
    for offset, looking in zip((-1, 1, -2, 2, -3, 3), weights[:num_looking], strict=False):
        assert looking.diagonal(offset).mean() > 0.65, offset
    assert (weights[num_looking:] < 0.1).all()  # the others are drawn and look everywhere


def test_a_lone_head_looks_before_and_heads_too_narrow_for_a_wave_are_refused() -> None:
    torch.manual_seed(0)
    model = BertModel(replace(CONFIG, num_heads=1)).eval()
    look_beside(model)
    assert first_weights(model)[0].diagonal(-1).mean() > 0.65
    with pytest.raises(BertkitError, match="needs heads that are 2 wide or more"):
        look_beside(BertModel(replace(CONFIG, num_heads=256)))


def test_left_to_right_heads_look_where_they_may() -> None:
    torch.manual_seed(0)
    model = BertModel(replace(CONFIG, is_causal=True)).eval()
    look_beside(model)
    for offset, looking in zip((-1, -2), first_weights(model), strict=False):
        assert looking.diagonal(offset).mean() > 0.65


def counted_words(seed: int) -> list[list[list[int]]]:
    """Documents in which every word is the one after the word before it, so that a neighbour tells a masked one."""
    firsts = generator(seed).integers(0, 40, (40, 5)).tolist()
    return [[[5 + (first + place) % 40 for place in range(6)] for first in document] for document in firsts]


def mlm_loss(model: BertModel, text: int, draw: tuple[int, int]) -> Tensor:
    examples = draw_examples(counted_words(text), tokenizer(), PairConfig(max_length=24), generator(*draw))
    batch = collate(examples[:32])
    return pretraining_losses(model, batch).mlm_sum / len(batch.masked_token_ids)


def loss_after_60_steps(positions: Positions) -> float:
    """On documents that were not trained on."""
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    model = BertModel(preset("tiny", vocab_size=45, initializer_range=0.05, **shape))
    if positions == "beside":
        look_beside(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(60):
        optimizer.zero_grad()
        mlm_loss(model, 7, (1, step)).backward()
        optimizer.step()
    return mlm_loss(model, 8, (2, 0)).item()


def test_heads_that_look_beside_learn_at_once_what_neighbours_tell() -> None:
    assert loss_after_60_steps("beside") < 1.5  # 0.8; words alone: 3.7
    assert loss_after_60_steps("drawn") > 2.5  # 3.4


def test_looking_beside_is_of_the_start_alone() -> None:
    plain = recipe()
    beside = fresh_model(recipe(model=replace(plain.model, positions="beside")), tokenizer())
    drawn = fresh_model(plain, tokenizer())
    assert beside.config == drawn.config
    changed = {name for name, p in beside.named_parameters() if not torch.equal(p, drawn.get_parameter(name))}
    tables = {f"encoder.embeddings.{name}.weight" for name in ("token", "segment", "position")}
    assert changed == {*tables, "encoder.layers.0.qkv.weight"}


def test_repeated_positions_are_copies_of_the_learned_ones() -> None:
    table = torch.arange(8.0)[:, None].repeat(1, 2)
    repeat_positions(table, 3)
    assert table[:, 1].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


LONGER = (Stage(8, 64, 2, share=0.5), Stage(16, 64, 2, share=0.25), Stage(12, 64, 2, share=0.25))


@pytest.mark.parametrize("positions", ["drawn", "repeated"])
def test_longer_rows_begin_with_the_positions_that_shorter_ones_learned(positions: Positions, tmp_path: Path) -> None:
    still = replace(recipe().optimizer, learning_rate=0.0)
    made = recipe(model=replace(recipe().model, positions=positions), stages=LONGER, optimizer=still)
    run(tmp_path, made)
    weight = load(tmp_path / "model").model.encoder.embeddings.position.weight
    begun = fresh_model(made, tokenizer()).encoder.embeddings.position.weight
    assert torch.equal(weight[:8], begun[:8])
    expected = begun if positions == "drawn" else begun[torch.arange(32) % 8]
    assert torch.equal(weight, expected)


def test_a_run_killed_around_longer_rows_is_the_run_never_killed(tmp_path: Path) -> None:
    model = replace(recipe().model, positions="repeated")
    made = recipe(model=model, stages=LONGER, checkpoints=CheckpointConfig(1, 99), log_every=4)
    whole = run(tmp_path / "whole", made)
    for step in (5, 6, 7, 9):  # rows are longer from the seventh step on, and shorter again from the tenth
        part = tmp_path / f"part-{step}"
        shutil.copytree(tmp_path / "whole", part, symlinks=True)
        CheckpointFolder(part / "checkpoints")._point("last", Path(f"step-{step:08d}"))
        assert run(part, made, resume=True).weights_sha256 == whole.weights_sha256


def test_a_loss_that_rises_with_longer_rows_has_not_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guards = set()

    def note(self: Guard, step: int, loss: float, grad_norm: float) -> None:
        guards.add((id(self), step >= 6))

    monkeypatch.setattr(Guard, "check", note)
    run(tmp_path, recipe(stages=LONGER))
    assert sorted(late for _, late in guards) == [False, True]
    assert len({guard for guard, _ in guards}) == 2


def test_starts_that_cannot_be_are_refused() -> None:
    with pytest.raises(BertkitError, match=r"with data\.shifted_share every position is learned"):
        recipe(data=replace(recipe().data, shifted_share=0.1), model=replace(recipe().model, positions="repeated"))
    with pytest.raises(BertkitError, match=r"unknown model\.positions 'rotary'; choose one of drawn, beside, repeated"):
        replace(recipe().model, positions="rotary")  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="choose one of paper, zero, deepnorm"):
        replace(recipe().model, start="xavier")  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="is for fresh models"):
        replace(recipe().model, start="zero", init="somewhere")
