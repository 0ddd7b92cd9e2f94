"""The feed on more than a million tokens of real text: shares, labels and fill as the paper has them."""

import lzma
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, ks_2samp

from bertkit.corpus.masking import MaskedSequence, MaskingConfig, Replacement
from bertkit.corpus.pairs import MemoryShard
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tasks.feed.sources import FeedVocabulary
from bertkit.tokenizer import Tokenizer
from tests.tasks.feed.test_pretraining import MemoryStore, equal
from tests.tokenizer.strings import DATA, weights

FILES = ("validation.txt.xz", "wikipedia-simple.txt.xz")
CHARACTERS = 3_000_000  # of each file
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")


@cache
def vocabulary() -> Tokenizer:
    return Tokenizer.load(weights("bert_service/vocab/uncased_vocab.txt"), lowercase=True)


def read_documents(path: Path) -> Iterator[list[str]]:
    """Blank lines between documents; sentences by a simple rule."""
    sentences: list[str] = []
    characters = 0
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                sentences += SENTENCE_END.split(line.strip())
            elif sentences:
                yield sentences
                sentences = []
            characters += len(line)
            if characters > CHARACTERS:
                break
    if sentences:
        yield sentences


@cache
def store() -> MemoryStore:
    data = DATA / "corpus"
    if not all((data / name).is_file() for name in FILES):
        pytest.skip("no corpus; set BERTKIT_DATA to a data folder with corpus/")
    tokenizer = vocabulary()
    return MemoryStore(
        [MemoryShard.of([tokenizer.encode_ids(document) for document in read_documents(data / name)]) for name in FILES]
    )


@cache
def feed(max_length: int = 128, nsp: bool = True, whole_word: bool = False) -> PretrainingFeed:
    config = FeedConfig(max_length, 8192, MaskingConfig(whole_word=whole_word), nsp=nsp, seed=3)
    return PretrainingFeed(store(), vocabulary(), config)


def masked_batches(of: PretrainingFeed) -> Iterator[tuple[np.ndarray, np.ndarray, MaskedSequence]]:
    """The tokens, sequence bounds and masks of each micro-batch of the first epoch."""
    for index in range(of.epoch_size):
        number, epoch, rows = of.arrays.examples(index)
        offsets = np.concatenate([[0], np.cumsum(epoch.packing.lengths[rows], dtype=np.int64)])
        ids = of.arrays._gather(epoch, rows)
        yield ids, offsets, of.arrays._mask(ids, offsets, number, rows)


def test_there_are_a_million_tokens() -> None:
    assert sum(len(shard.tokens) for shard in store().shards) > 1_000_000


@pytest.mark.parametrize("whole_word", [False, True])
def test_masks_are_15_percent_80_10_10_and_never_special(whole_word: bool) -> None:
    chosen, num_masked, num_maskable = np.zeros(3), 0, 0
    source = feed(whole_word=whole_word)
    facts = FeedVocabulary.of(vocabulary())
    for ids, _, masked in masked_batches(source):
        assert not facts.is_special[masked.targets].any()
        num_masked += len(masked.positions)
        num_maskable += int((~facts.is_special[ids]).sum())
        # words are drawn, not their pieces
        first = ~facts.continues[masked.targets] if whole_word else np.ones(len(masked.positions), dtype=bool)
        chosen += np.bincount(masked.replacements[first], minlength=3)
        assert (masked.token_ids[masked.positions][masked.replacements == Replacement.MASK] == facts.mask_id).all()
    assert abs(num_masked / num_maskable - 0.15) < 0.002
    assert chisquare(chosen, chosen.sum() * np.array([0.8, 0.1, 0.1])).pvalue > 0.001


def test_whole_words_are_masked_whole() -> None:
    facts = FeedVocabulary.of(vocabulary())
    for ids, _, masked in masked_batches(feed(whole_word=True)):
        is_chosen = np.isin(np.arange(len(ids)), masked.positions)
        # a piece goes with the token before it, unless that is a special one: then truncation cut the word
        is_linked = facts.continues[ids[1:]] & ~facts.is_special[ids[:-1]]
        assert (is_chosen[1:] == is_chosen[:-1])[is_linked].all()


def test_labels_and_short_examples_have_their_shares() -> None:
    plan = feed().arrays.epoch(0).plan
    assert len(plan) > 10_000
    assert binomtest(int(plan.is_next.sum()), len(plan), 0.5).pvalue > 0.001
    for count, share in ((plan.is_next.sum(), 0.5), (plan.is_short.sum(), 0.1)):
        observed = np.array([count, len(plan) - count])
        assert chisquare(observed, len(plan) * np.array([share, 1 - share])).pvalue > 0.001


@pytest.mark.parametrize("max_length", [128, 512])
def test_lengths_do_not_give_the_answer_away(max_length: int) -> None:
    plan = feed(max_length).arrays.epoch(0).plan
    a, b = plan.a_lengths.astype(int), plan.b_lengths.astype(int)
    for lengths in (a, b, a + b):
        assert ks_2samp(lengths[plan.is_next], lengths[~plan.is_next]).pvalue > 0.001


@pytest.mark.parametrize("max_length", [128, 512])
@pytest.mark.parametrize("nsp", [True, False])
def test_real_tokens_fill_the_budget(max_length: int, nsp: bool) -> None:
    for epoch in range(2):
        assert feed(max_length, nsp).arrays.epoch(epoch).packing.fill(8192) >= 0.98


@pytest.mark.parametrize("max_length", [128, 512])
@pytest.mark.parametrize("nsp", [True, False])
def test_an_epoch_covers_every_sentence(max_length: int, nsp: bool) -> None:
    source = feed(max_length, nsp).arrays
    plan = source.epoch(1).plan
    for number, least in ((0, 1.0), (1, 0.99)):  # a later epoch may need more micro-batches than there are
        epoch = source.epoch(number)
        assert len(np.unique(epoch.packing.order)) == len(epoch.packing.order) >= least * len(epoch.plan)
    marks = np.zeros(source.layout.unit_offsets[-1] + 1, dtype=np.int64)
    for starts, lengths, rows in (
        (plan.a_starts, plan.a_lengths, slice(None)),
        (plan.b_starts, plan.b_lengths, plan.is_next),
    ):
        np.add.at(marks, starts[rows], 1)
        np.add.at(marks, (starts + lengths)[rows], -1)
    is_used = np.cumsum(marks[:-1]) > 0
    assert np.add.reduceat(is_used, source.layout.unit_offsets[:-1]).all()
    assert is_used.mean() > 0.9  # what truncation takes away


def test_resumed_and_spread_over_processes_the_order_is_the_same() -> None:
    source, size = feed(), feed().epoch_size
    again = PretrainingFeed(store(), vocabulary(), source.arrays.config)
    for index in (0, size // 2, size + 1, size + 9):
        assert equal(again.micro_batch(index), source.micro_batch(index))
    stream = [source.arrays.examples(index)[2].tolist() for index in range(64)]
    for world in (1, 2, 8):
        by_rank = {
            index: again.arrays.examples(index)[2].tolist() for r in range(world) for index in range(r, 64, world)
        }
        assert [by_rank[index] for index in range(64)] == stream


def test_held_out_text_is_masked_alike_every_time() -> None:
    first, second = (held_out_feed(store(), vocabulary(), feed().arrays.config, seed=1) for _ in range(2))
    assert equal(first.micro_batch(2), second.micro_batch(2))
    counts = [first.counts(index) for index in range(first.epoch_size)]
    share = sum(c.num_masked for c in counts) / sum(c.num_tokens - 3 * c.num_pairs for c in counts)
    assert abs(share - 0.15) < 0.002
