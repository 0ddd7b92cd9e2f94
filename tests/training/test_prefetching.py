"""Batches built ahead: the same by number in processes, threads or none, stage by stage, and no worker stays."""

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from bertkit.errors import BertkitError
from bertkit.model import BertModel, preset
from bertkit.tasks.feed.pretraining import PretrainingFeed
from bertkit.tasks.pretraining import PretrainingBatch
from bertkit.training.feeds import sum_counts
from bertkit.training.loop import LoopOptions, Progress, StepRecord, Trainer
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.plan import Place, Stage, StepPlan
from bertkit.training.prefetching import Prefetcher, Threads, make_source
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.watch import DivergedError, Guard
from bertkit.training.world import World
from tests.tasks.feed.test_pretraining import CONFIG, STORE, VOCABULARY, equal
from tests.training.tiny import MemoryFeed

CONFIGS = (replace(CONFIG, tokens_per_batch=256), replace(CONFIG, tokens_per_batch=256, seed=8))


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


def feeds() -> list[PretrainingFeed]:
    return [PretrainingFeed(STORE, VOCABULARY, config) for config in CONFIGS]


def test_every_process_gets_its_numbers_and_the_counts_of_all() -> None:
    reference = feeds()
    source: Prefetcher[PretrainingBatch] = Prefetcher(feeds(), workers=1)
    places = [Place(0, 4, 2), Place(0, 6, 2), Place(0, 8, 2), Place(1, 0, 2), Place(1, 2, 2)]

    def keys(place: Place) -> list[tuple[int, int]]:
        return [(place.stage, index) for index in place.of_rank(1, 2)]

    source.announce(places[0], keys(places[0]))
    assert len(multiprocessing.active_children()) == 2  # a worker and the planner
    for place, coming in zip(places, [*places[1:], None], strict=True):
        if coming:
            source.announce(coming, keys(coming))
            source.announce(coming, keys(coming))  # twice is once
        feed = reference[place.stage]
        wanted = sum_counts(feed.counts(index) for index in range(place.first, place.first + place.count))
        assert source.take_counts(place) == wanted
        for stage, index in keys(place):
            assert equal(source.take((stage, index)), reference[stage].micro_batch(index))
    assert len(multiprocessing.active_children()) == 2  # those of the first stage have ended
    assert equal(source.take((1, 77)), reference[1].micro_batch(77))  # not announced
    source.close()


def test_toy_feeds_have_threads_or_none() -> None:
    assert isinstance(make_source(MemoryFeed(1), 2, pinned=False), Threads)
    assert isinstance(make_source(feeds()[0], 0, pinned=False), Threads)


def curve(workers: int, first: int = 0) -> list[float]:
    """Eight steps of two stages with a growing batch, from step `first` on."""
    torch.manual_seed(0)
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "max_positions": 64}
    model = BertModel(preset("tiny", vocab_size=1000, hidden_dropout=0.0, attention_dropout=0.0, **sizes))
    stages = (Stage(64, 256, 4, share=0.5), Stage(64, 256, 2, share=0.5))
    plan, optimizers = StepPlan(stages, 2, 2), build_optimizers(model, OptimizerConfig(learning_rate=0.0))
    records: list[StepRecord] = []
    options, progress = LoopOptions(workers=workers, log_every=3), Progress(8, first)
    Trainer(model, feeds(), plan, optimizers, ScheduleConfig(), options, progress, World()).run(records.extend)
    return [record.loss for record in records]


def test_a_run_sees_the_same_with_workers_and_from_the_middle() -> None:
    whole = curve(workers=0)
    assert len(set(whole)) == 8
    assert curve(workers=2) == whole
    assert curve(workers=1, first=3) == whole[3:]


def test_workers_end_with_a_run_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*_: object) -> None:
        raise DivergedError("the loss is lost")

    monkeypatch.setattr(Guard, "check", diverge)
    with pytest.raises(BertkitError, match="the loss is lost"):
        curve(workers=1)
