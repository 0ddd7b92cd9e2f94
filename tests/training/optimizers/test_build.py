"""Each optimizer against its formula written out plainly, and what decays."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.training.optimizers.build import (
    OptimizerConfig,
    build_optimizers,
    clip_gradients,
    export_state,
    import_state,
    set_rate,
)
from bertkit.training.optimizers.muon import COEFFICIENTS, orthogonalise, update_scale

SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_positions": 16}
CONFIG = preset("tiny", vocab_size=30, **SIZES)
NUM_STEPS = 3


def model_with_gradients(seed: int = 0) -> BertModel:
    torch.manual_seed(seed)
    model = BertModel(CONFIG)
    for p in model.parameters():
        nn.init.normal_(p, std=0.1)
    return model


def gradients(model: BertModel, step: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(step)
    return {name: torch.randn(p.shape, generator=draw) for name, p in model.named_parameters()}


def decays(name: str) -> bool:
    return not name.endswith("bias") and "norm" not in name


def parts(name: str, tensor: Tensor) -> list[Tensor]:
    return list(tensor.chunk(3)) if name.endswith("qkv.weight") else [tensor]


class PlainAdam:
    """The moments of one parameter, and the direction they give."""

    def __init__(self, config: OptimizerConfig) -> None:
        self.config, self.step = config, 0
        self.mean, self.square = torch.zeros(()), torch.zeros(())

    def direction(self, g: Tensor) -> Tensor:
        c = self.config
        self.step += 1
        self.mean = c.beta1 * self.mean + (1 - c.beta1) * g
        self.square = c.beta2 * self.square + (1 - c.beta2) * g * g
        mean, square = self.mean / (1 - c.beta1**self.step), self.square / (1 - c.beta2**self.step)
        return mean / (square.sqrt() + c.epsilon)


def plain_adamw(config: OptimizerConfig, name: str, p: Tensor, adam: PlainAdam, g: Tensor) -> Tensor:
    decay = config.weight_decay if decays(name) else 0.0
    return p * (1 - config.learning_rate * decay) - config.learning_rate * adam.direction(g)


def plain_lamb(config: OptimizerConfig, name: str, p: Tensor, adam: PlainAdam, g: Tensor) -> Tensor:
    update = adam.direction(g) + (config.weight_decay * p if decays(name) else 0.0)
    if not decays(name):
        return p - config.learning_rate * update
    pairs = zip(parts(name, p), parts(name, update), strict=True)
    return torch.cat([w - config.learning_rate * (w.norm() / u.norm()) * u for w, u in pairs])


def plain_newton_schulz(g: Tensor) -> Tensor:
    a, b, c = COEFFICIENTS
    x = g / (g.norm() + 1e-7)
    if g.shape[0] > g.shape[1]:
        x = x.T
    for _ in range(5):
        s = x @ x.T
        x = a * x + b * s @ x + c * s @ s @ x
    return x.T if g.shape[0] > g.shape[1] else x


class PlainMomentum:
    def __init__(self) -> None:
        self.buffer: Tensor | float = 0.0


def plain_muon(config: OptimizerConfig, p: Tensor, state: PlainMomentum, name: str, g: Tensor) -> Tensor:
    m = config.momentum
    state.buffer = m * state.buffer + (1 - m) * g
    nesterov = (1 - m) * g + m * state.buffer
    p = p * (1 - config.learning_rate * config.weight_decay)
    new = []
    for w, u in zip(parts(name, p), parts(name, nesterov), strict=True):
        new.append(w - config.learning_rate * 0.2 * max(u.shape) ** 0.5 * plain_newton_schulz(u))
    return torch.cat(new)


def make_rule(config: OptimizerConfig) -> Callable[[str, Tensor, Tensor], Tensor]:
    """The plain update of one parameter, with its state."""
    adams: dict[str, PlainAdam] = {}
    buffers: dict[str, PlainMomentum] = {}

    def rule(name: str, p: Tensor, g: Tensor) -> Tensor:
        if config.name == "muon" and "encoder.layers" in name and p.dim() == 2:
            return plain_muon(config, p, buffers.setdefault(name, PlainMomentum()), name, g)
        adam = adams.setdefault(name, PlainAdam(config))
        return (plain_lamb if config.name == "lamb" else plain_adamw)(config, name, p, adam, g)

    return rule


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_the_update_is_the_formula(name: str) -> None:
    config = OptimizerConfig(name=name, learning_rate=0.01, weight_decay=0.1)  # type: ignore[arg-type]
    model, rule = model_with_gradients(), make_rule(config)
    expected = {key: p.detach().clone() for key, p in model.named_parameters()}
    optimizers = build_optimizers(model, config)
    for step in range(NUM_STEPS):
        for key, g in gradients(model, step).items():
            model.get_parameter(key).grad = g
            expected[key] = rule(key, expected[key], g)
        for optimizer in optimizers:
            optimizer.step()
    for key, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), expected[key], rtol=2e-5, atol=2e-6)


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((2, 16, 16), (1, 32, 16), (3, 16, 32)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.4
        assert values.max() < 1.3


def test_what_a_rate_means_for_a_matrix() -> None:
    """An orthogonal update of R x C has min(R, C) singular values of 1, so elements of 1 / sqrt(max(R, C))."""
    for rows, columns in ((64, 64), (256, 64), (64, 256)):
        assert update_scale("adamw", rows, columns) / max(rows, columns) ** 0.5 == pytest.approx(0.2)
    assert [update_scale("spectral", *shape) for shape in ((64, 64), (256, 64), (64, 256))] == [1.0, 2.0, 1.0]
    # The same update by either scale: a rate of 0.02 is 5 x 0.02 / sqrt(64), and half of that for the down projection.
    rate = 5 * 0.02 / 64**0.5
    shapes = {(64, 64): 1.0, (256, 64): 1.0, (64, 256): 2.0}
    for shape, ratio in shapes.items():
        assert rate * update_scale("adamw", *shape) == pytest.approx(ratio * 0.02 * update_scale("spectral", *shape))


def test_matrices_may_have_a_rate_decay_and_scale_of_their_own() -> None:
    config = OptimizerConfig("muon", 1e-3, matrix_learning_rate=0.02, matrix_weight_decay=0.1, matrix_scale="spectral")
    muon, adamw = build_optimizers(model_with_gradients(), config)
    for group in muon.param_groups:
        assert (group["lr"], group["weight_decay"], group["scale"]) == (0.02, 0.1, "spectral")
    assert adamw.param_groups[0]["weight_decay"] == 0.01


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_pooler_and_the_nsp_head_may_have_a_rate_of_their_own(name: str) -> None:
    model = model_with_gradients()
    names = {id(p): key for key, p in model.named_parameters()}
    config = OptimizerConfig(name=name, learning_rate=1e-3, pooler_learning_rate=1e-4)  # type: ignore[arg-type]
    rates = {
        names[id(p)]: group["lr"]
        for optimizer in build_optimizers(model, config)
        for group in optimizer.param_groups
        for p in group["params"]
    }
    slow = {key for key, rate in rates.items() if rate == 1e-4}
    assert slow == {"pooler.weight", "pooler.bias", "nsp.weight", "nsp.bias"}
    assert set(rates) == set(names.values())


def test_lamb_has_no_rate_for_the_pooler() -> None:
    with pytest.raises(BertkitError, match="is for adamw and muon"):
        OptimizerConfig(name="lamb", pooler_learning_rate=1e-4)


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_state_survives_a_round_trip_by_name(name: str) -> None:
    config = OptimizerConfig(name=name)  # type: ignore[arg-type]
    first, second = model_with_gradients(), model_with_gradients()
    ours, theirs = build_optimizers(first, config), build_optimizers(second, config)
    for step in range(4):
        if step == 2:
            second.load_state_dict(first.state_dict())
            import_state(theirs, second, {k: t.clone() for k, t in export_state(ours, first).items()})
        for model, optimizers in ((first, ours), (second, theirs)):
            for key, g in gradients(model, step).items():
                model.get_parameter(key).grad = g
            for optimizer in optimizers:
                optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_another_models_state_is_refused() -> None:
    model = model_with_gradients()
    with pytest.raises(BertkitError, match="another model's"):
        import_state(build_optimizers(model, OptimizerConfig()), model, {"nobody/exp_avg": torch.zeros(1)})


def test_clipping_scales_to_the_norm_and_says_what_it_was() -> None:
    model = model_with_gradients()
    for key, g in gradients(model, 0).items():
        model.get_parameter(key).grad = g
    parameters = list(model.parameters())
    before = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    norm = clip_gradients(parameters, 1.0)
    after = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    torch.testing.assert_close(norm, before.norm())
    torch.testing.assert_close(after, before / before.norm(), rtol=1e-4, atol=1e-7)
    small = after.clone()
    clip_gradients(parameters, 5.0)
    assert torch.equal(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]), small)


def test_the_rate_is_a_share_of_each_groups_peak() -> None:
    config = OptimizerConfig(name="muon", learning_rate=0.1, matrix_learning_rate=0.5)
    muon, adamw = build_optimizers(model_with_gradients(), config)
    set_rate([muon, adamw], 0.5)
    assert {group["lr"] for group in muon.param_groups} == {0.25}
    assert {group["lr"] for group in adamw.param_groups} == {0.05}


def test_what_decays_in_every_optimizer() -> None:
    for name in ("adamw", "lamb", "muon"):
        model = model_with_gradients()
        names = {id(p): key for key, p in model.named_parameters()}
        seen = set()
        for optimizer in build_optimizers(model, OptimizerConfig(name=name, weight_decay=0.3)):
            for group in optimizer.param_groups:
                for p in group["params"]:
                    seen.add(names[id(p)])
                    assert (group["weight_decay"] > 0) == decays(names[id(p)]), (name, names[id(p)])
        assert seen == set(names.values())


@pytest.mark.parametrize(
    "wrong",
    [{"name": "sgd"}, {"beta2": 1.0}, {"learning_rate": -1.0}, {"matrix_weight_decay": -1.0}, {"matrix_scale": "big"}],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BertkitError):
        OptimizerConfig(**wrong)  # type: ignore[arg-type]
