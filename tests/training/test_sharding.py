"""Shards, in a group of one process: the numbers of the plain objective, whole again when gathered or stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from bertkit.errors import BertkitError
from bertkit.model import BertModel
from bertkit.training.checkpoint_shards import read_shards, write_shards
from bertkit.training.checkpoints import CheckpointFolder, find_broken, fingerprint
from bertkit.training.initialisation import repeat_positions
from bertkit.training.objective import Objective, make_objective
from bertkit.training.optimizers.build import (
    OptimizerConfig,
    build_optimizers,
    clip_gradients,
    export_state,
    import_state,
)
from bertkit.training.sharding import gather_all, gather_model, is_sharded, settle, shard_objective, without_exchange
from bertkit.training.world import World
from tests.training.tiny import MemoryFeed, recipe, tokenizer

CPU = torch.device("cpu")
COUNTS = torch.tensor([7.0, 4.0])


@pytest.fixture(autouse=True)
def _group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def make_model() -> BertModel:
    torch.manual_seed(0)
    return BertModel(recipe().model.config(tokenizer().vocab_size, next_sentence=True)).eval()


def accumulate(objective: nn.Module) -> list[torch.Tensor]:
    """Two micro-batches, the first without an exchange; the sums of both."""
    device = next(objective.parameters()).device
    first, second = (MemoryFeed(1).micro_batch(index).to(device) for index in range(2))
    with without_exchange(objective):
        loss, first_sums = objective(first, COUNTS.to(device))
        loss.backward()
    loss, second_sums = objective(second, COUNTS.to(device))
    loss.backward()
    return [first_sums, second_sums]


def trained(model: BertModel, objective: nn.Module) -> list[torch.optim.Optimizer]:
    optimizers = build_optimizers(model, OptimizerConfig())
    accumulate(objective)
    optimizers[0].step()
    return optimizers


def test_positions_are_repeated_in_shards_too() -> None:
    plain, model = make_model(), make_model()
    shard_objective(model, CPU, None)
    tables = [one.encoder.embeddings.position.weight for one in (plain, model)]
    assert isinstance(tables[1], DTensor)
    for table in tables:
        repeat_positions(table, 5)
    assert torch.equal(tables[1].full_tensor(), tables[0])
    assert torch.equal(tables[0][5:8], tables[0][:3])


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_losses_gradients_and_norm_are_those_of_the_plain_objective(dtype: torch.dtype | None) -> None:
    plain, model = make_model(), make_model()
    expected = accumulate(make_objective(Objective(plain), dtype))
    found = accumulate(shard_objective(model, CPU, dtype))
    torch.testing.assert_close(found, expected)
    norms = [clip_gradients(list(one.parameters()), 0.5) for one in (plain, model)]
    torch.testing.assert_close(norms[1], norms[0])
    assert norms[0] > 0.5
    for (name, p), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert isinstance(p.grad, DTensor), name
        assert wanted.grad is not None
        assert p.grad.dtype == torch.float32
        torch.testing.assert_close(p.grad.full_tensor(), wanted.grad)


def test_a_sharded_model_is_gathered_and_evaluation_leaves_shards() -> None:
    plain, model = make_model(), make_model()
    objective = shard_objective(model, CPU, None)
    with torch.no_grad():
        objective(MemoryFeed(1).micro_batch(0), COUNTS)
    settle(objective)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    gathered = gather_model(model, keep=True)
    assert gathered is not None
    assert not is_sharded(gathered)
    assert fingerprint(gathered.named_parameters()) == fingerprint(plain.named_parameters())
    assert fingerprint(model.named_parameters()) == fingerprint(plain.named_parameters())
    assert gather_model(model, keep=False) is None
    assert gather_model(plain, keep=True) is plain


def test_state_goes_from_whole_to_shards_and_back(tmp_path: Path) -> None:
    plain, model, other = make_model(), make_model(), make_model()
    whole = export_state(trained(plain, Objective(plain)), plain)
    shard_objective(model, CPU, None)
    optimizers = build_optimizers(model, OptimizerConfig())
    import_state(optimizers, model, whole)
    shards = export_state(optimizers, model)
    assert any(isinstance(tensor, DTensor) for tensor in shards.values())
    assert fingerprint(gather_all(shards, keep=True).items()) == fingerprint(whole.items())
    write_shards(tmp_path / "optimizer", shards)
    assert {path.suffix for path in (tmp_path / "optimizer").iterdir()} == {".safetensors"}  # no pickle
    for reader in (model, other):  # as shards, and whole
        assert fingerprint(read_shards(tmp_path / "optimizer", reader).items()) == fingerprint(whole.items())


def test_a_checkpoint_with_shards_is_whole_or_not_there(tmp_path: Path) -> None:
    model, folder, world = make_model(), CheckpointFolder(tmp_path / "checkpoints"), World()
    tensors = export_state(trained(model, shard_objective(model, CPU, None)), model)
    plain = gather_model(model, keep=True)
    assert plain is not None
    folder.save_shards(tensors, 3, world)
    assert folder.load() is None  # nothing points to it yet
    folder.save(plain, None, None, {"step": 3}, is_best=False)
    found = folder.load()
    assert found is not None
    assert found.shards is not None
    assert fingerprint(read_shards(found.shards, plain).items()) == fingerprint(tensors.items())
    next(found.shards.iterdir()).unlink()
    with pytest.raises(BertkitError, match="missing or cut short"):
        folder.load()


def test_shards_that_are_not_finite_or_find_no_room_are_not_saved(tmp_path: Path) -> None:
    folder, world = CheckpointFolder(tmp_path / "checkpoints"), World()
    assert find_broken({"a": torch.ones(2), "b": torch.tensor([float("nan")])}) == "b"
    with pytest.raises(BertkitError, match=r"not finite after step 4: nothing was saved"):
        folder.save_shards({"b": torch.tensor([float("nan")])}, 4, world)
    (tmp_path / "checkpoints").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(BertkitError, match=r"cannot save step 4 .* there is no checkpoint yet"):
        folder.save_shards({"a": torch.ones(2)}, 4, world)


@pytest.mark.parametrize("name", ["muon", "lamb"])
def test_what_needs_whole_matrices_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(BertkitError, match=r"whole matrices, which fsdp shards: set optimizer.name = 'adamw'") as said:
        recipe(parallel="fsdp", optimizer=OptimizerConfig(name))  # type: ignore[arg-type]
    assert "\n" not in str(said.value)
    with pytest.raises(BertkitError, match="unknown parallel 'ddq'"):
        recipe(parallel="ddq")


@pytest.mark.parametrize("wish", [{"kernels": "fast"}, {"eight_bits": True}])
def test_kernels_that_shards_cannot_take_are_refused_not_left_out(wish: dict[str, Any]) -> None:
    with pytest.raises(BertkitError, match="fsdp has no fast kernels"):
        recipe(parallel="fsdp", **wish)
