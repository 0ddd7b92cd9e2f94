"""What an Encoding promises: its shape, spans that fit the text, long texts never cut in silence, safe to share."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError, LongTextError, LongTextWarning
from bertkit.tokenizer import Encoding, LongPolicy, Tokenizer, train_vocabulary
from bertkit.tokenizer.inputs import Text
from tests.tokenizer.strings import PROSE, generated_strings

TOKENIZER = train_vocabulary(PROSE * 3, size=400, lowercase=True)
WORDS = st.text(alphabet="abcd ,.é中", max_size=60)


def quiet_windows(a: str, b: str | None, max_length: int, stride: int | None) -> list[Encoding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        return TOKENIZER.encode_windows(a, b, max_length=max_length, stride=stride)


def test_a_single_text() -> None:
    encoding = TOKENIZER.encode("The dog, Zoë.")
    assert encoding.tokens[0] == "[CLS]"
    assert encoding.tokens[-1] == "[SEP]"
    assert encoding.ids == [TOKENIZER.id(token) for token in encoding.tokens]
    assert len(encoding) == len(encoding.ids) == len(encoding.offsets) == len(encoding.word_ids)
    assert encoding.segment_ids == [0] * len(encoding)
    assert encoding.offsets[0] == encoding.offsets[-1] == (0, 0)
    assert encoding.text_ids == [None] + [0] * (len(encoding) - 2) + [None]
    assert (encoding.num_cut, encoding.num_b, encoding.window.count) == (0, None, 1)


def test_a_pair_of_texts() -> None:
    encoding = TOKENIZER.encode("the man", "a dog")
    assert encoding.tokens == ["[CLS]", "the", "man", "[SEP]", "a", "dog", "[SEP]"]
    assert encoding.segment_ids == [0, 0, 0, 0, 1, 1, 1]
    assert encoding.text_ids == [None, 0, 0, None, 1, 1, None]
    assert encoding.offsets == [(0, 0), (0, 3), (4, 7), (0, 0), (0, 1), (2, 5), (0, 0)]
    assert encoding.word_ids == [None, 0, 1, None, 0, 1, None]
    assert TOKENIZER.encode("the man", "").ids == [*TOKENIZER.encode("the man").ids, TOKENIZER.sep_id]


def test_literal_special_tokens_are_special() -> None:
    encoding = TOKENIZER.encode("the [MASK] .")
    assert encoding.ids[2] == TOKENIZER.mask_id
    assert encoding.offsets[2] == (4, 10)
    assert encoding.text_ids[2] == 0


def test_spans_lie_in_the_text_in_order() -> None:
    for text in generated_strings(1_000, seed=21) + PROSE:
        encoding = TOKENIZER.encode(text)
        columns = zip(encoding.tokens[1:-1], encoding.offsets[1:-1], strict=True)
        last = 0
        for token, (start, stop) in columns:
            assert last <= start < stop <= len(text)
            last = start
            if text.isascii() and text.isprintable() and token not in TOKENIZER.special.all():
                assert text[start:stop].lower() == token.removeprefix("##")


def test_spans_give_back_the_words() -> None:
    text = "ZOË went to the Café, naïve?"
    encoding = TOKENIZER.encode(text)
    words: dict[int, tuple[int, int]] = {}
    for word, (start, stop) in zip(encoding.word_ids, encoding.offsets, strict=True):
        if word is not None:
            words[word] = (words.get(word, (start, stop))[0], stop)
    assert [text[start:stop] for start, stop in words.values()] == [
        "ZOË",
        "went",
        "to",
        "the",
        "Café",
        ",",
        "naïve",
        "?",
    ]


@settings(deadline=None, max_examples=150)
@given(WORDS, st.none() | WORDS, st.integers(4, 30), st.integers(0, 12))
def test_windows_cover_every_token_with_the_stated_overlap(a: str, b: str | None, max_length: int, stride: int) -> None:
    whole = TOKENIZER.encode(a, b)
    try:
        windows = quiet_windows(a, b, max_length, stride)
    except LongTextError:
        shorter = 0 if whole.num_b is None else min(whole.num_a, whole.num_b)
        assert max_length - (2 if b is None else 3) - shorter <= stride
        assert len(whole) > max_length
        return
    if len(whole) <= max_length:
        assert windows == [whole]
        return
    sliding = windows[0].window.sliding_text
    assert sliding == (0 if whole.num_b is None or whole.num_a > whole.num_b else 1)
    total = whole.num_a if sliding == 0 else whole.num_b
    first = 1 if sliding == 0 else whole.num_a + 2
    reached = 0
    for index, encoding in enumerate(windows):
        window = encoding.window
        assert (window.index, window.count, len(encoding) <= max_length) == (index, len(windows), True)
        start, num = (window.start_a, encoding.num_a) if sliding == 0 else (window.start_b, encoding.num_b or 0)
        assert start == (reached - stride if index else 0)
        assert num > (stride if index else 0), "every window brings something new"
        assert encoding.ids[first : first + num] == whole.ids[first + start : first + start + num]
        assert encoding.offsets[first : first + num] == whole.offsets[first + start : first + start + num]
        assert len(encoding.segment_ids) == len(encoding)
        reached = start + num
    assert reached == total


def test_windows_share_a_quarter_unless_told() -> None:
    windows = quiet_windows("a " * 30, None, max_length=10, stride=None)
    assert [window.window.start_a for window in windows] == [0, 6, 12, 18, 24]


def test_a_long_text_is_an_error_unless_told() -> None:
    with pytest.raises(LongTextError, match=r"the text \('a a a.*'\) has 32 tokens.* limit is 10.*truncate.*window"):
        TOKENIZER.encode("a " * 30, max_length=10)
    with pytest.raises(LongTextError, match=r"^text 2 of 3 \('b b"):
        TOKENIZER.encode_batch(["a", "b " * 30, "c " * 40], max_length=10)
    assert len(TOKENIZER.encode("a " * 30)) == 32
    assert len(TOKENIZER.encode("a " * 8, max_length=10)) == 10


def test_cutting_and_splitting_are_reported_once_a_call() -> None:
    texts = ["a", "b " * 30, "c " * 40]
    with pytest.warns(LongTextWarning, match=r"2 of 3 texts have more than 10 tokens: 54 tokens were cut") as seen:
        groups = TOKENIZER.encode_batch(texts, max_length=10, long="truncate")
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert [group[0].num_cut for group in groups] == [0, 22, 32]
    with pytest.warns(LongTextWarning, match=r"2 of 3 texts have more than 10 tokens: split into 9 ") as seen:
        groups = TOKENIZER.encode_batch(texts, max_length=10, long="window", stride=0)
    assert len(seen) == 1
    assert [len(group) for group in groups] == [1, 4, 5]
    with pytest.warns(LongTextWarning, match="1 of 1 text has") as seen:
        assert len(TOKENIZER.encode("a " * 30, "b", max_length=10, long="truncate")) == 10
    assert len(seen) == 1


def test_a_pair_without_room_for_windows() -> None:
    with pytest.raises(LongTextError, match="shorter text of the pair has 7 tokens and leaves no room"):
        TOKENIZER.encode_windows("a " * 7, "b " * 9, max_length=10)
    with pytest.raises(LongTextError, match="choose a stride below 3"):
        TOKENIZER.encode_windows("a " * 4, "b " * 9, max_length=10, stride=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 2}, "max_length is 2"),
        ({"long": "cut"}, "long is 'cut'"),
        ({"stride": -1}, "stride is -1"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(BertkitError, match=message):
        TOKENIZER.encode_batch(["a"], **options)  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="encode_windows"):
        TOKENIZER.encode("a", long="window")  # type: ignore[arg-type]


def test_broken_texts() -> None:
    with pytest.raises(BertkitError, match=r"'\\ud83d' at character 2 .*errors='replace'"):
        TOKENIZER.encode("ok\ud83d")
    with pytest.raises(BertkitError, match="surrogate"):
        TOKENIZER.encode_batch(["fine", ("fine", "\udc80")])
    with pytest.raises(BertkitError, match="surrogate"):
        TOKENIZER.encode_ids(["\udc80"])
    with pytest.raises(BertkitError, match="text 2 of 2 is NoneType"):
        TOKENIZER.encode_batch(["fine", None])  # type: ignore[list-item]
    with pytest.raises(BertkitError, match="a text is int, not a string: 3"):
        TOKENIZER.encode_batch([("fine", 3)])  # type: ignore[list-item]


def test_nothing_in_nothing_out() -> None:
    assert TOKENIZER.encode_batch([]) == []
    assert TOKENIZER.encode_ids([]) == []
    assert TOKENIZER.encode("").tokens == ["[CLS]", "[SEP]"]


def test_bare_ids_are_the_ids_without_the_frame() -> None:
    texts = generated_strings(200, seed=22)
    assert TOKENIZER.encode_ids(texts) == [group[0].ids[1:-1] for group in TOKENIZER.encode_batch(texts)]


@pytest.mark.filterwarnings("ignore::bertkit.errors.LongTextWarning")
@pytest.mark.parametrize("long", ["truncate", "window"])
def test_without_offsets_the_ids_are_the_same(long: LongPolicy) -> None:
    texts: list[Text] = ["", PROSE[0], (PROSE[1], "the dog"), "[MASK] é 中"]
    plain, fast = (TOKENIZER.encode_batch(texts, max_length=9, long=long, offsets=way) for way in (True, False))
    for expected, found in zip(plain, fast, strict=True):
        assert found == expected  # texts themselves are not compared


def test_many_threads_share_one_tokenizer() -> None:
    texts = generated_strings(300, seed=23)

    def work(max_length: int) -> list[list[int]]:
        groups = TOKENIZER.encode_batch(texts, max_length=max_length, long="window", stride=1)
        return [encoding.ids for group in groups for encoding in group]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        lengths = [8, 16, 32, 64] * 3
        expected = {length: work(length) for length in set(lengths)}
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(work, lengths))
    assert results == [expected[length] for length in lengths]


def test_tokenizer_and_encoding_travel_to_other_processes() -> None:
    copy: Tokenizer = pickle.loads(pickle.dumps(TOKENIZER))
    encoding = TOKENIZER.encode("My dog is cute", "He likes playing")
    moved: Encoding = pickle.loads(pickle.dumps(encoding))
    assert copy.encode("My dog is cute", "He likes playing") == encoding == moved
    assert moved.offsets == encoding.offsets
    assert copy.fingerprint == TOKENIZER.fingerprint


def test_tokens_and_ids() -> None:
    assert TOKENIZER.token(TOKENIZER.id("the")) == "the"
    assert "the" in TOKENIZER
    assert "zebra" not in TOKENIZER
    with pytest.raises(BertkitError, match="'zebra' is not in the vocabulary"):
        TOKENIZER.id("zebra")
    for wrong in (-1, TOKENIZER.vocab_size):
        with pytest.raises(BertkitError, match="is no token id"):
            TOKENIZER.token(wrong)
        with pytest.raises(BertkitError, match="is no token id"):
            TOKENIZER.decode([wrong])
    assert TOKENIZER.decode(TOKENIZER.encode("The man, the dog!").ids) == "the man, the dog!"
    assert TOKENIZER.special_ids == {0, 1, 2, 3, 4}
