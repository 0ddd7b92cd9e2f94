"""Which precision a device gets, each choice forced; and float16, whose loss is scaled and whose overflows are left out."""

from pathlib import Path

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.training import precision
from bertkit.training.loop import LoopOptions, Progress, StepRecord, Trainer
from bertkit.training.optimizers.build import OptimizerConfig, OptimizerName, build_optimizers
from bertkit.training.plan import StepPlan
from bertkit.training.precision import narrow_type, resolve_precision
from bertkit.training.run import Run
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.start import fresh_model
from bertkit.training.world import World
from tests.training.tiny import MemoryFeed, data, recipe

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def make_trainer(dtype: torch.dtype | None, steps: int = 4, optimizer: OptimizerName = "adamw") -> Trainer:
    torch.manual_seed(0)
    model = fresh_model(recipe(), data().tokenizer)
    optimizers = build_optimizers(model, OptimizerConfig(optimizer, learning_rate=1e-3))
    options = LoopOptions(dtype=dtype)
    return Trainer(
        model, [MemoryFeed(100)], StepPlan(), optimizers, ScheduleConfig(), options, Progress(steps), World()
    )


@pytest.mark.parametrize(("has_bf16", "best"), [(True, "bfloat16"), (False, "float16")])
def test_auto_is_the_best_that_the_device_has(has_bf16: bool, best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return has_bf16 or including_emulation  # old GPUs emulate it, slowly

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert resolve_precision("auto", CUDA) == best
    assert resolve_precision("float32", CUDA) == "float32"
    assert resolve_precision("float16", CUDA) == "float16"
    assert resolve_precision("auto", CPU) == "float32"
    if not has_bf16:
        with pytest.raises(BertkitError, match="no bfloat16"):
            resolve_precision("bfloat16", CUDA)


@pytest.mark.parametrize("has_it", [True, False])
def test_a_cpu_trains_in_float32_unless_it_has_bfloat16_and_that_is_asked_for(
    has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: has_it)
    assert resolve_precision("auto", CPU) == "float32"
    assert narrow_type("float32") is None
    with pytest.raises(BertkitError, match="float16 needs a CUDA GPU"):
        resolve_precision("float16", CPU)
    if has_it:
        assert resolve_precision("bfloat16", CPU) == "bfloat16"
        return
    with pytest.raises(BertkitError, match="this CPU has no bfloat16"):
        resolve_precision("bfloat16", CPU)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_follows_the_curve_of_float32(dtype: torch.dtype) -> None:
    curves: list[list[StepRecord]] = []
    for each in (None, dtype):
        records: list[StepRecord] = []
        make_trainer(each).run(records.extend)
        curves.append(records)
    for wide, narrow in zip(*curves, strict=True):
        assert narrow.loss == pytest.approx(wide.loss, rel=5e-3)
        assert narrow.grad_norm == pytest.approx(wide.grad_norm, rel=5e-2)


def test_a_step_that_overflows_moves_nothing_and_lowers_the_scale() -> None:
    trainer = make_trainer(torch.float16, steps=1)
    assert trainer.scaler is not None
    trainer.loss_scale = {**(trainer.loss_scale or {}), "scale": 2.0**40}  # no gradient fits
    before = [p.detach().clone() for p in trainer.parameters]
    records: list[StepRecord] = []
    trainer.run(records.extend)
    assert records[0].grad_norm == 0.0
    assert all(torch.equal(old, new) for old, new in zip(before, trainer.parameters, strict=True))
    assert trainer.scaler.get_scale() == 2.0**39


@pytest.mark.parametrize("broken", ["encoder.layers.0.qkv.weight", "encoder.embeddings.token.weight"])
def test_an_overflow_in_the_part_of_one_optimizer_stops_both(broken: str) -> None:
    trainer = make_trainer(torch.float16, steps=1, optimizer="muon")  # matrices by Muon, the rest by AdamW
    weights = dict(trainer.model.named_parameters())
    weights[broken].register_hook(lambda grad: grad * float("nan"))
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.run(lambda records: None)
    assert all(torch.equal(old, new) for old, new in zip(before, trainer.parameters, strict=True))


def test_a_checkpoint_keeps_the_scale(tmp_path: Path) -> None:
    made = recipe().resolve(CPU)
    run = Run(made, tmp_path, data(), World(), None, resume=False, started=0.0)
    run.trainer.scaler = torch.amp.grad_scaler.GradScaler("cpu")
    run.trainer.loss_scale = {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 9,
                              "_growth_tracker": 3}  # fmt: skip
    run._save(is_best=False)
    assert run.journal is not None
    run.journal.close()
    stored = run.checkpoints.load()
    assert stored is not None
    assert stored.state["loss_scale"]["scale"] == 8.0
