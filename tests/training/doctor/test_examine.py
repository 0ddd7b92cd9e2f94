"""The check-up of a recipe: sound ones pass, and dead layers, wild weights, full disks and small memories are found."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig, preset
from bertkit.model.encoder import Layer
from bertkit.model.formats import save_model
from bertkit.model.formats.safetensors_files import read_safetensors
from bertkit.tasks.pretraining import PretrainingBatch, pretraining_losses
from bertkit.text.findings import Finding, accept, worst
from bertkit.tokenizer import Tokenizer
from bertkit.training.checkpoints import CheckpointConfig
from bertkit.training.doctor import model as doctor_model
from bertkit.training.doctor.batches import RandomFeed, ShortFeed, shorten
from bertkit.training.doctor.examine import CheckUp, amount_finding, examine_recipe, fits_at_all
from bertkit.training.doctor.machine import RAN_OUT, disk_finding, measure_peak, memory_finding, precision_finding
from bertkit.training.doctor.model import Patient, gradient_finding, layer_of, overfit_finding, start_findings
from bertkit.training.estimate.material import gather_material
from bertkit.training.estimate.memory import activation_elements, step_memory
from bertkit.training.feeds import count_batch
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import Stage
from bertkit.training.recipe import DataRecipe, Recipe
from tests.training.tiny import SIZES, MemoryFeed, prepare_sample, recipe, run, tokenizer

CPU = torch.device("cpu")
CONFIG = preset("tiny", vocab_size=45, **SIZES, hidden_dropout=0.0, attention_dropout=0.0)
FEED = MemoryFeed(100, size=6)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe whose store was prepared from the sample text."""
    folder = tmp_path_factory.mktemp("doctor")
    prepare_sample(folder, 2000)
    data = DataRecipe(store=str(folder / "store"), tokenizer=str(folder / "vocab"), workers=0)
    stages = (Stage(max_length=32, tokens_per_batch=512),)
    model = replace(recipe().model, changes={**SIZES, "initializer_range": 0.1})
    return recipe(data=data, stages=stages, model=model, steps=20, optimizer=OptimizerConfig(learning_rate=1e-2))


def patient(change: Callable[[BertModel], object] = lambda model: None, config: BertConfig = CONFIG) -> Patient:
    torch.manual_seed(0)
    model = BertModel(config)
    with torch.no_grad():
        change(model)
    return Patient(model)


def test_a_sound_recipe_passes(stored: Recipe, tmp_path: Path) -> None:
    said: list[str] = []
    findings = list(examine_recipe(stored, CheckUp(tmp_path / "run", progress=said.append)))
    assert [finding for finding in findings if finding.level != "ok"] == []
    names = {finding.check for finding in findings}
    assert {"precision", "memory", "disk", "duplicates", "first MLM loss", "first NSP loss", "gradients"} <= names
    assert {"one batch", "amount", "languages"} <= names
    assert any("by heart" in line for line in said)
    assert not (tmp_path / "run").exists()


def test_held_out_text_that_is_trained_on(stored: Recipe) -> None:
    itself = replace(stored, data=replace(stored.data, held_out=stored.data.store))
    found = {finding.check: finding for finding in examine_recipe(itself)}["held out"]
    assert (found.level, found.values["share"]) == ("problem", 1.0)
    assert "prepare data.held_out from documents" in found.advice


def test_weights_a_hundred_times_too_large(stored: Recipe) -> None:
    wild = replace(stored, model=replace(stored.model, changes={**SIZES, "initializer_range": 2.0}))
    found = {finding.check: finding for finding in examine_recipe(wild)}
    assert found["first MLM loss"].level == "problem"
    assert "initializer_range" in found["first MLM loss"].advice


def test_the_first_loss_of_a_fair_guess_is_known() -> None:
    mlm, nsp = start_findings(patient(), FEED, 1000)
    assert (mlm.level, nsp.level) == ("ok", "ok")
    assert mlm.values["guess"] == pytest.approx(math.log(45))
    assert mlm.values["loss"] == pytest.approx(math.log(45), abs=0.1)
    assert nsp.values["loss"] == pytest.approx(math.log(2), abs=0.1)


def test_a_trained_checkpoint_may_lose_less_but_not_more() -> None:
    ids = FEED.micro_batch(0).masked_token_ids.unique()[:4]
    for by, level in ((-20.0, "problem"), (0.0, "ok")):
        made = patient(lambda model, by=by: model.mlm.bias.index_fill_(0, ids, by))  # type: ignore[misc]
        assert start_findings(replace(made, is_fresh=False), FEED, 1000)[0].level == level
    knows = patient(lambda model: model.mlm.bias[:5].fill_(-50.0), replace(CONFIG, vocab_size=2000))  # type: ignore[union-attr]
    knows.model.mlm.bias.data[45:] = -50.0  # type: ignore[union-attr]
    first = start_findings(replace(knows, is_fresh=False), FEED, 1000)[0]
    assert first.values["loss"] < first.values["guess"] - 3
    assert first.level == "ok"
    assert start_findings(knows, FEED, 1000)[0].level == "problem"  # fresh weights cannot know anything


def silence(model: BertModel) -> None:
    """Layer 0 adds nothing and hears nothing."""
    layer(model, 0).attention_output.weight.zero_()
    layer(model, 0).down.weight.zero_()


def layer(model: BertModel, number: int) -> Layer:
    found = model.encoder.layers[number]
    assert isinstance(found, Layer)
    return found


def test_a_dead_layer_is_named() -> None:
    assert gradient_finding(patient(), FEED.micro_batch(0)).level == "ok"
    found = gradient_finding(patient(silence), FEED.micro_batch(0))
    assert found.level == "problem"
    assert {layer_of(name) for name in found.values["dead"]} == {"layer 0"}
    assert "encoder.layers.0.qkv.weight" in found.values["dead"]


def test_a_checkpoint_with_a_dead_layer_is_found(stored: Recipe, tmp_path: Path) -> None:
    vocabulary = Tokenizer.load(stored.data.tokenizer)
    model = BertModel(replace(CONFIG, vocab_size=vocabulary.vocab_size))
    with torch.no_grad():
        silence(model)
    save_model(model, tmp_path / "init")
    vocabulary.save(tmp_path / "init")
    going_on = replace(stored, model=replace(stored.model, init=str(tmp_path / "init"), changes={}))
    found = {finding.check: finding for finding in examine_recipe(going_on)}
    assert found["gradients"].level == "problem"
    assert "layers.0" in found["gradients"].figure


def test_a_layer_that_lets_nothing_through_is_found() -> None:
    found = gradient_finding(
        patient(lambda model: layer(model, 1).output_norm.weight.zero_()),
        FEED.micro_batch(0),
    )
    assert found.level == "problem"
    assert "encoder.layers.0.qkv.weight" in found.values["dead"]


def test_gradients_that_are_no_numbers_are_named() -> None:
    found = gradient_finding(
        patient(lambda model: layer(model, 1).up.bias.fill_(math.nan)),
        FEED.micro_batch(0),
    )
    assert found.level == "problem"
    assert "not finite" in found.figure


def test_one_batch_is_learned_by_heart() -> None:
    found = overfit_finding(patient, FEED.micro_batch(0), OptimizerConfig(learning_rate=1e-2))
    assert found.level == "ok"
    assert found.values["last"] <= 0.1 * found.values["first"]
    assert found.values["num_steps"] <= 300


def test_an_optimizer_that_does_not_move_is_told_from_a_model_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_model, "MOST_STEPS", 80)
    batch = shorten(FEED.micro_batch(0), 20)
    still = overfit_finding(patient, batch, OptimizerConfig(learning_rate=0.0))
    assert still.level == "problem"
    assert "optimizer.learning_rate" in still.advice

    def deaf(model: BertModel) -> None:
        for p in model.parameters():
            p.requires_grad_(False)
        model.encoder.embeddings.position.weight.requires_grad_(True)
        model.encoder.embeddings.norm.weight.zero_()  # nothing that can learn reaches the loss

    found = overfit_finding(lambda: patient(deaf), batch, OptimizerConfig(learning_rate=1e-2))
    assert found.level == "problem"
    assert "cannot learn" in found.advice


def test_checkpoints_that_do_not_fit_on_the_disk(tmp_path: Path) -> None:
    made = recipe().resolve(CPU)
    assert disk_finding(made, CONFIG, tmp_path / "not" / "there").level == "ok"
    many = replace(made, steps=10**9, checkpoints=CheckpointConfig(every_steps=1, keep=10**9))
    found = disk_finding(many, CONFIG, tmp_path)
    assert found.level == "problem"
    assert "checkpoints.keep" in found.advice
    few = replace(made, steps=3, checkpoints=CheckpointConfig(every_steps=1, keep=10**9))
    assert disk_finding(few, CONFIG, tmp_path).level == "ok"  # so many are never made


def test_a_checkpoint_on_disk_is_as_large_as_counted(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe(steps=3))
    folder = tmp_path / "run" / "checkpoints" / "last"
    files = [read_safetensors(folder / name) for name in ("model.safetensors", "optimizer.safetensors")]
    real = sum(tensor.nbytes for tensors in files for tensor in tensors.values() if tensor.numel() > 1)
    config = recipe().model.config(tokenizer().vocab_size, next_sentence=True)
    counted = disk_finding(recipe(), config, tmp_path).values["checkpoint"]
    assert real == counted


def test_memory_that_is_not_there_is_told_with_what_would_fit() -> None:
    made = recipe(stages=(Stage(16, 1 << 30, 1),)).resolve(CPU)
    found = memory_finding(made, CONFIG, CPU)
    assert found.level == "problem"
    assert "micro_batches fits" in found.advice
    tokens = int(found.advice.split("tokens_per_batch = ")[1].split()[0])
    assert memory_finding(replace(made, stages=(Stage(16, tokens, 1),)), CONFIG, CPU).level == "ok"
    assert memory_finding(recipe().resolve(CPU), CONFIG, CPU).level == "ok"
    assert memory_finding(made, CONFIG, CPU, peak=1).level == "ok"  # what was measured counts
    assert memory_finding(recipe().resolve(CPU), CONFIG, CPU, peak=RAN_OUT).level == "problem"
    assert measure_peak(made, CONFIG, [FEED], CPU) is None
    giant = replace(CONFIG, hidden_size=2**16, num_layers=100, intermediate_size=2**18, max_positions=512)
    assert not fits_at_all(memory_finding(made, giant, CPU))
    assert "fsdp" in memory_finding(made, giant, CPU).advice


def kept_for_backward(config: BertConfig, batch: PretrainingBatch) -> int:
    """Bytes that autograd really keeps of a forward pass, the weights left out."""
    model = BertModel(config).train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = pretraining_losses(model, batch)
        _ = losses.mlm_sum + losses.nsp_sum
    return sum(t.untyped_storage().nbytes() for place, t in kept.items() if place not in weights)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("layers", [2, 5])
def test_activations_are_counted_as_autograd_keeps_them(layers: int, dropout: float) -> None:
    changes = {"num_layers": layers, "vocab_size": 100, "hidden_dropout": dropout, "attention_dropout": dropout}
    config = preset("tiny", **changes)
    stage = Stage(max_length=64, tokens_per_batch=2048)
    batch = RandomFeed(stage, 100).micro_batch(0)
    counted = 4 * activation_elements(config, stage, CPU, half=False)
    assert kept_for_backward(config, batch) == pytest.approx(counted, rel=0.15)


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_the_optimizer_state_is_counted(name: str) -> None:
    model = BertModel(CONFIG)
    chosen = OptimizerConfig(name=name)  # type: ignore[arg-type]
    optimizers = build_optimizers(model, chosen)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for optimizer in optimizers:
        optimizer.step()
    states = [value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()]
    real = sum(4 * value.numel() for value in states if value.numel() > 1)
    memory = step_memory(CONFIG, chosen, Stage(), CPU, half=False)
    assert memory.optimizer == real
    assert memory.parameters == sum(4 * p.numel() for p in model.parameters())
    assert memory.total == sum(memory.__dict__.values())


def test_the_cpu_says_what_it_gets_and_why() -> None:
    found = precision_finding(recipe(), CPU)
    assert (found.values["precision"], found.values["attention"]) == ("float32", "sdpa, unpadded")
    assert "CUDA" in found.figure


def test_a_small_corpus_is_repeated_too_often(stored: Recipe) -> None:
    material = gather_material(stored)
    assert material.epoch_sizes is not None
    often = replace(stored, steps=round(500 * material.epoch_sizes[0]))
    found = amount_finding(often, material, CPU, 1)
    assert found.level == "problem"
    assert found.values["epochs"] == pytest.approx(500, rel=0.01)
    assert amount_finding(replace(stored, steps=None, minutes=0.001), material, CPU, 1).values["steps"] >= 1


def test_a_shortened_batch_is_its_first_sequences(stored: Recipe) -> None:
    feed = gather_material(stored).feeds[0]
    for batch in (feed.micro_batch(0), FEED.micro_batch(3)):
        short = shorten(batch, 60)
        assert 1 <= len(short.inputs) < len(batch.inputs)
        assert short.inputs.num_tokens <= 60
        assert (short.masked_token_ids >= 0).all()
        whole = batch.inputs.split(batch.inputs.token_ids)
        texts = [row.tolist() for row in whole if len(row)]
        assert [row.tolist() for row in short.inputs.split(short.inputs.token_ids)] == texts[: len(short.inputs)]
        positions = batch.masked_positions[batch.masked_token_ids >= 0]
        first = positions[: len(short.masked_positions)]
        assert torch.equal(batch.inputs.token_ids[first], short.inputs.token_ids[short.masked_positions])
        assert torch.equal(batch.inputs.position_ids[first], short.inputs.position_ids[short.masked_positions])
    assert ShortFeed(feed, 60).counts(0) == count_batch(ShortFeed(feed, 60).micro_batch(0))
    one = shorten(feed.micro_batch(0), 1)
    assert len(one.inputs) == 1  # never less than a sequence


def test_random_batches_have_the_counts_they_say() -> None:
    feed = RandomFeed(Stage(max_length=16, tokens_per_batch=100), 45)
    assert count_batch(feed.micro_batch(0)) == feed.counts(0)
    assert RandomFeed(Stage(16, 100), 45, next_sentence=False).counts(0).num_pairs == 0


def test_what_is_meant_can_be_accepted() -> None:
    findings = [Finding("languages", "problem", "two"), Finding("disk", "problem", "full"), Finding("casing", "ok", "")]
    assert [finding.level for finding in accept(findings, ["languages", "casing"])] == ["warning", "problem", "ok"]
    assert worst(finding.level for finding in findings) == "problem"
    assert worst([]) == "ok"
    assert Finding("x", "ok", "", values={"a": [math.inf, 1.0]}).to_json()["values"] == {"a": [None, 1.0]}
