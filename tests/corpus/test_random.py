"""Random numbers without state: SplitMix64's own words, uniform, and neighbours that know nothing of each other."""

import numpy as np
from scipy.stats import chisquare, kstest

from bertkit.corpus.random import draw_below, draw_uniform, draw_words, make_keys, mix, permute


def test_words_are_those_of_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert draw_words(np.array([1234567], dtype=np.uint64), np.arange(4)).tolist() == published


def test_numbers_of_one_key_and_of_neighbouring_keys_are_uniform() -> None:
    along, across = (
        draw_uniform(make_keys(1, 2, 3), np.arange(100_000)),
        draw_uniform(make_keys(1, 2, np.arange(100_000)), 0),
    )
    for numbers in (along, across):
        assert kstest(numbers, "uniform").pvalue > 0.001
        assert chisquare(np.bincount((numbers * 1000).astype(int), minlength=1000)).pvalue > 0.001


def test_neighbouring_keys_are_independent() -> None:
    keys = make_keys(7, np.arange(20_000))
    grid = draw_uniform(keys[:, None], np.arange(8))  # [key, counter]
    pairs = [(grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1]), (grid[1:, 1:], grid[:-1, :-1])]
    for one, other in pairs:
        cells = np.histogram2d(one.ravel(), other.ravel(), bins=16, range=[[0, 1], [0, 1]])[0]
        assert chisquare(cells.ravel()).pvalue > 0.001


def test_every_bit_of_a_key_moves_half_of_the_bits_of_its_words() -> None:
    keys = make_keys(np.arange(4096))
    for bit in range(64):
        changed = draw_words(keys, 0) ^ draw_words(keys ^ np.uint64(1 << bit), 0)
        flipped = np.unpackbits(changed.view(np.uint8)).reshape(len(keys), 64).mean(axis=0)
        assert (abs(flipped - 0.5) < 0.06).all()  # 7 standard deviations


def test_order_and_number_of_parts_matter() -> None:
    keys = [make_keys(*parts).item() for parts in [(1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (1,), (-1, 2), (2**70, 2)]]
    assert len(set(keys)) == len(keys)
    assert (make_keys(5, np.arange(3)) == np.concatenate([make_keys(5, index) for index in range(3)])).all()


def test_mix_is_a_bijection_of_a_range() -> None:
    assert len(np.unique(mix(np.arange(100_000, dtype=np.uint64)))) == 100_000


def test_permutations_are_whole_and_depend_on_their_key() -> None:
    first, second = permute(1000, 1, 2), permute(1000, 1, 3)
    assert sorted(first.tolist()) == list(range(1000))
    assert (first != second).mean() > 0.9
    assert (first == permute(1000, 1, 2)).all()


def test_integers_stay_below_their_bounds() -> None:
    drawn = draw_below(draw_uniform(make_keys(1), np.arange(60_000)), 6)
    assert chisquare(np.bincount(drawn, minlength=6)).pvalue > 0.001
    assert drawn.max() == 5
