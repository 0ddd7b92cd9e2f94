"""`bertkit doctor` for a recipe: its data, the model it begins with, and the machine, before hours are spent.

What enters: a recipe and how much of the corpus to look at. What leaves: Findings, in the order of the work. Nothing is
written and nothing is trained but copies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from bertkit.corpus.doctor.findings import Needs, data_findings, overlap_finding
from bertkit.corpus.doctor.look import look_at
from bertkit.corpus.doctor.sample import Source, StoreSource
from bertkit.corpus.store import TokenStore
from bertkit.errors import BertkitError
from bertkit.model.config import num_parameters
from bertkit.text.counted import in_millions
from bertkit.text.findings import Finding, grade
from bertkit.tokenizer import Tokenizer
from bertkit.training.doctor.batches import shorten
from bertkit.training.doctor.machine import disk_finding, measure_peak, memory_finding, precision_finding
from bertkit.training.doctor.model import Patient, gradient_finding, overfit_finding, start_findings
from bertkit.training.estimate.material import Material, gather_material
from bertkit.training.estimate.recipe import stage_extent, steps_in_minutes, time_stages
from bertkit.training.recipe import Recipe
from bertkit.training.start import fresh_model
from bertkit.training.world import choose_device

MANY_TOKENS, FEW_TOKENS = 1024, 128  # of the batch that is learned by heart; few for large models on a CPU
LARGE_ON_CPU = 20_000_000  # parameters
MANY_EPOCHS, MOST_EPOCHS = 45.0, 400.0  # the paper has 40
LEAST_LENGTH = 128  # tokens that a sentence may have in any recipe
SAMPLE = 20_000_000  # characters of a corpus that are looked at


@dataclass(frozen=True)
class CheckUp:
    """How a recipe is examined."""

    out: Path = Path("run")
    sample: int = SAMPLE
    progress: Callable[[str], None] = lambda line: None


def examine_recipe(recipe: Recipe, check_up: CheckUp | None = None, source: Source | None = None) -> Iterator[Finding]:
    """Every check of a recipe, each as soon as it is done; a source is looked at in place of the recipe's store."""
    check_up = check_up or CheckUp()
    device = choose_device(recipe.device)
    resolved = recipe.resolve(device)
    tokenizer, source = open_source(recipe, check_up, source)
    yield precision_finding(recipe, device)
    material = gather_material(resolved)
    yield disk_finding(resolved, material.config, check_up.out)
    look = look_at(source, Counter(check_up.progress))
    shortest = max(LEAST_LENGTH, min(stage.max_length for stage in recipe.stages))
    yield from data_findings(look, Needs(shortest, recipe.data.next_sentence))
    if recipe.data.held_out and isinstance(source, StoreSource):
        yield overlap_finding(source.store, TokenStore.open(recipe.data.held_out, tokenizer))
    check_up.progress("a real step")
    peak = measure_peak(resolved, material.config, material.feeds, device)
    memory = memory_finding(resolved, material.config, device, peak)
    yield memory
    if fits_at_all(memory):
        yield from examine_model(resolved, tokenizer, material, device, check_up)
    else:
        yield Finding("model", "warning", "not run: its weights and their moments alone do not fit here")
    check_up.progress("how often the corpus is repeated")
    corpus_tokens = material.corpus_tokens or round(look.num_tokens / look.share)
    yield amount_finding(resolved, material, device, corpus_tokens)


def open_source(recipe: Recipe, check_up: CheckUp, source: Source | None) -> tuple[Tokenizer, Source]:
    """The recipe's tokenizer, and what to look at: its store where nothing else is given."""
    for key in ("tokenizer", "store"):
        if not getattr(recipe.data, key) and not source:
            raise BertkitError(f"the recipe names no data.{key}; give it, or --set data.{key}=FOLDER")
    if source:
        return source.tokenizer, source
    tokenizer = Tokenizer.load(recipe.data.tokenizer)
    return tokenizer, StoreSource(TokenStore.open(recipe.data.store, tokenizer), tokenizer, check_up.sample)


class Counter:
    """Turns counts of characters into lines of progress."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress, self.seen = progress, 0

    def __call__(self, characters: int) -> None:
        self.seen += characters
        self.progress(f"the corpus: {in_millions(self.seen)} characters")


def fits_at_all(memory: Finding) -> bool:
    """Whether the weights, gradients and moments fit, so that a small batch can be tried."""
    kinds = ("parameters", "gradients", "optimizer", "copies")
    return bool(sum(memory.values[kind] for kind in kinds) < memory.values["available"])


def examine_model(
    recipe: Recipe, tokenizer: Tokenizer, material: Material, device: torch.device, check_up: CheckUp
) -> Iterator[Finding]:
    """The first loss, the gradients, and one batch by heart."""

    def make() -> Patient:
        model = fresh_model(recipe, tokenizer).to(device)
        return Patient(model, recipe.dtype, is_fresh=not recipe.model.init)

    is_large = device.type == "cpu" and num_parameters(material.config) > LARGE_ON_CPU
    num_tokens = FEW_TOKENS if is_large else MANY_TOKENS
    feed = material.feeds[0]
    patient = make()
    check_up.progress("the first loss")
    yield from start_findings(patient, feed, num_tokens)
    batch = shorten(feed.micro_batch(0), num_tokens)
    yield gradient_finding(patient, batch)
    del patient  # a large model need not be there twice
    shortened = " (a short batch, for a large model on a CPU)" if is_large else ""
    yield overfit_finding(make, batch, recipe.optimizer, check_up.progress, shortened)


def amount_finding(recipe: Recipe, material: Material, device: torch.device, corpus_tokens: int) -> Finding:
    """How often the run goes through its corpus; a time budget is turned into steps by measuring."""
    steps = recipe.steps or steps_in_minutes(recipe, time_stages(recipe, material, device), 0.0, 0.0)
    nums = [stage_extent(recipe, number, steps)[1] for number in range(len(recipe.stages))]
    tokens = [num * feed.counts(0).num_tokens for num, feed in zip(nums, material.feeds, strict=True)]
    if material.epoch_sizes:
        epochs = sum(num / size for num, size in zip(nums, material.epoch_sizes, strict=True))
    else:  # about: an epoch of examples has [CLS], [SEP] and strangers beside the text
        epochs = sum(tokens) / max(1, corpus_tokens)
    level = grade(epochs, warning=MANY_EPOCHS, problem=MOST_EPOCHS)
    advice = "more text or fewer steps: the paper repeats its text 40 times, and more of it is mostly learned by heart"
    figure = (
        f"{in_millions(sum(tokens))} tokens in {steps:,} steps are {epochs:,.2f} epochs of {in_millions(corpus_tokens)}"
    )
    values = {"epochs": epochs, "tokens": sum(tokens), "steps": steps, "corpus_tokens": corpus_tokens}
    return Finding("amount", level, figure, "" if level == "ok" else advice, values)
