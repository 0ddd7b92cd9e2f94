"""Steps of fine-tuning: every example once an epoch, batch_size a step, whatever the cut; and batches of fixed shape."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.model import BertModel, preset
from bertkit.tasks.predicting import Chunk
from bertkit.tasks.task import IGNORED, Item, collate
from bertkit.training.finetuning.feed import MOST_PARTS, Shape, TaskFeed, fill_up
from bertkit.training.finetuning.graphs import shape_for, shape_of
from tests.training.tiny import SIZES
from tests.training.tiny_tasks import binary_task, make_base, make_data

ROW = np.zeros(1, dtype=np.int64)


def item(length: int, example: int, target: int = 0) -> Item:
    ids = [5 + (length * 7 + place) % 30 for place in range(length)]
    return Item(ids, [0] * length, ROW, np.array([target]), example)


def make_feed(
    lengths: list[list[int]], *, batch_size: int = 4, micro_tokens: int = 64, pads: bool = True, seed: int = 1
) -> TaskFeed:
    """Examples, each with the lengths of its windows."""
    items = [item(length, example) for example, windows in enumerate(lengths) for length in windows]
    chunk = Chunk(list(range(len(lengths))), items)
    return TaskFeed(binary_task(), [chunk], batch_size=batch_size, seed=seed, micro_tokens=micro_tokens, pads=pads)


windows = st.lists(st.integers(2, 30), min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@given(st.lists(windows, min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 200), st.booleans())
def test_an_epoch_holds_every_item_once_and_no_part_is_over_the_budget(
    lengths: list[list[int]], batch_size: int, micro_tokens: int, pads: bool
) -> None:
    feed = make_feed(lengths, batch_size=batch_size, micro_tokens=micro_tokens, pads=pads)
    seen: list[int] = []
    for step in range(feed.steps_per_epoch):
        assert len(feed.examples_of(step)) == min(batch_size, len(lengths) - step * batch_size)
        place = feed.locate(step, None)
        for index in range(place.first, place.first + place.count):
            part = feed.parts_of(step, micro_tokens)[index % MOST_PARTS]
            sizes = [len(feed.items[i].ids) for i in part]
            cost = max(sizes) * len(sizes) if pads else sum(sizes)
            assert cost <= micro_tokens or len(part) == 1
            assert feed.counts(index).num_tokens == sum(sizes) == feed.micro_batch(index).inputs.num_tokens
            seen += part
    assert sorted(seen) == list(range(len(feed.items)))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    feed = make_feed([[5]] * 50, batch_size=50)
    again = make_feed([[5]] * 50, batch_size=50)
    assert feed.examples_of(1).tolist() == again.examples_of(1).tolist()
    assert feed.examples_of(0).tolist() != feed.examples_of(1).tolist()
    other = make_feed([[5]] * 50, batch_size=50, seed=2)
    assert feed.examples_of(0).tolist() != other.examples_of(0).tolist()


def test_a_feed_is_gone_when_its_run_is_over() -> None:
    feed = make_feed([[5]] * 50)
    assert feed.locate(0, None).count == 1
    seen = weakref.ref(feed)
    del feed
    gc.collect()
    assert seen() is None


def test_fine_tuning_is_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process would train the same model into the same folder."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BertkitError, match="one process, not in 2; start it without torchrun"):
        make_feed([[5]] * 50).check_world(1)


def test_halving_keeps_the_step_and_ends_at_single_sequences() -> None:
    feed = make_feed([[8]] * 8, batch_size=8, micro_tokens=1000)
    cuts = [len(feed.parts_of(0, feed.micro_tokens))]
    while feed.halve(0):
        cuts.append(len(feed.parts_of(0, feed.micro_tokens)))
        assert sum(map(len, feed.parts_of(0, feed.micro_tokens))) == 8
    assert cuts == [1, 2, 4, 8]


def test_windows_of_chunks_that_were_encoded_apart_stay_with_their_examples(tmp_path: Path) -> None:
    with pytest.warns(LongTextWarning, match="split into"):
        data = make_data(make_base(tmp_path), num=12, longest=60)
    halves = [Chunk(data.train[0].examples, data.train[0].items)] * 2
    feed = TaskFeed(binary_task(), halves, batch_size=4, seed=0, micro_tokens=500, pads=True)
    assert feed.num_examples == 24
    assert len(feed.items) == 2 * len(data.train[0].items) > 24  # some texts have windows
    for example in range(24):
        items = feed.items[feed.first_items[example] : feed.first_items[example + 1]]
        assert {one.example for one in items} == {example % 12}


def test_no_examples_are_refused() -> None:
    with pytest.raises(BertkitError, match="nothing to train on"):
        make_feed([])


def test_a_fixed_shape_changes_neither_logits_nor_loss() -> None:
    torch.manual_seed(0)
    task = binary_task()
    model = BertModel(task.configure(preset("tiny", vocab_size=45, **SIZES))).eval()
    batch = collate([item(9, 0, 1), item(4, 1, 0), item(13, 2, 1)])
    shape = Shape(num_tokens=64, num_sequences=10, num_rows=8, max_seqlen=20)
    filled = fill_up(batch, shape)
    assert filled.inputs.num_tokens == 64
    assert len(filled.inputs) == 10
    assert filled.inputs.cu_seqlens[-1] == 64
    assert int(filled.inputs.cu_seqlens.diff().max()) <= 20
    assert filled.targets.tolist() == [1, 0, 1, *[IGNORED] * 5]
    with torch.no_grad():
        logits, padded = task.logits(model, batch), task.logits(model, filled)
        torch.testing.assert_close(padded[:3], logits, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(task.loss_sum(padded, filled), task.loss_sum(logits, batch), atol=1e-5, rtol=1e-5)


def test_a_feed_for_graphs_fills_its_batches_up_and_counts_the_real_tokens() -> None:
    feed = make_feed([[length] for length in range(5, 40)], batch_size=16, micro_tokens=1000)
    plain = [feed.micro_batch(step * MOST_PARTS) for step in range(3)]
    feed.shape_for = shape_for
    for step, batch in enumerate(plain):
        filled = feed.micro_batch(step * MOST_PARTS)
        assert shape_of(filled) == shape_for(batch)
        assert feed.counts(step * MOST_PARTS).num_tokens == batch.inputs.num_tokens
        torch.testing.assert_close(filled.inputs.token_ids[: batch.inputs.num_tokens], batch.inputs.token_ids)


def test_a_shape_that_is_too_small_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        fill_up(collate([item(9, 0)]), Shape(8, 2, 2, 9))
