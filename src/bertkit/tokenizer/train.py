"""Learning a vocabulary: the most useful pieces of a body of text, by the WordPiece trainer of `tokenizers`.

What enters: lines of text and a size. What leaves: a Tokenizer over the learned vocabulary.
The same lines give the same ids, in every process: the trainer by itself numbers the pieces of one letter in the
order of a random hash table, so here they are numbered first and the trainer only joins them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import tokenizers as tk

from bertkit.errors import BertkitError
from bertkit.tokenizer.counting import Progress, count_words
from bertkit.tokenizer.encoding import SpecialTokens
from bertkit.tokenizer.folder import Stored
from bertkit.tokenizer.pipeline import complete_spec, new_spec
from bertkit.tokenizer.wordpiece import Tokenizer

MAX_ALPHABET = 1000  # characters that come before any joined piece; as in the trainers of the published vocabularies
MIN_FREQUENCY = 2
MAX_WORD_LENGTH = 100  # longer words become [UNK], so nothing is learned from them


def train_vocabulary(
    lines: Iterable[str],
    *,
    size: int,
    lowercase: bool,
    num_unused: int = 0,
    num_workers: int = 1,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn a WordPiece vocabulary of at most `size` tokens; [PAD] [UNK] [CLS] [SEP] [MASK] are ids 0 to 4.

    `num_unused` rows [unused0], [unused1], ... follow them, for words that are added later. `progress` is called with
    the number of lines counted. Workers are processes of their own: guard scripts with `if __name__ == "__main__"`.
    """
    special = SpecialTokens()
    first = [*special.all(), *(f"[unused{index}]" for index in range(num_unused))]
    if size <= len(first):
        beside = f"the five special tokens{f' and {num_unused} unused ones' if num_unused else ''}"
        raise BertkitError(f"a vocabulary of {size} tokens has no room beside {beside}; choose a larger size")
    counts = count_words(lines, lowercase=lowercase, num_workers=num_workers, progress=progress)
    for word in [word for word in counts if len(word) > MAX_WORD_LENGTH]:
        del counts[word]
    if not counts:
        raise BertkitError("there is no word to learn a vocabulary from; give some text")
    room = size - len(first)
    alphabet = choose_alphabet(counts, room)
    tokens = join_pieces(counts, [*first, *alphabet], size)
    if len(tokens) < size:  # the room that the joined pieces leave is for more characters: Chinese has thousands
        room -= len(tokens) - len(first) - len(alphabet)
        more = choose_alphabet(counts, room, most=room)
        tokens = join_pieces(counts, [*first, *more], size) if len(more) > len(alphabet) else tokens
    spec = new_spec(tokens, "the learned vocabulary")
    spec["normalizer"]["lowercase"] = lowercase
    spec = complete_spec(spec, special, "the learned vocabulary")
    return Tokenizer(Stored(spec, special, None, "given by the caller"), "the learned vocabulary")


def choose_alphabet(counts: Counter[str], room: int, most: int = MAX_ALPHABET) -> list[str]:
    """The commonest characters that fit, first as word starts and then as continuations, each in Unicode order."""
    totals: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in counts.items():
        for character in word:
            totals[character] += count
        inside.update(word[1:])
    kept = []
    for character in sorted(totals, key=lambda c: (-totals[c], c))[:most]:
        room -= 1 + (character in inside)
        if room < 0:
            break
        kept.append(character)
    kept.sort()
    return [*kept, *(f"##{character}" for character in kept if character in inside)]


def join_pieces(counts: Counter[str], first: list[str], size: int) -> list[str]:
    """The learned tokens in the order of their ids, beginning with `first`."""
    backend = tk.Tokenizer(tk.models.WordPiece(unk_token=SpecialTokens().unk))
    backend.pre_tokenizer = tk.pre_tokenizers.WhitespaceSplit()
    # Called special here so that they get the first ids; the vocabulary made of the result treats them as pieces.
    trainer = tk.trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=MIN_FREQUENCY, special_tokens=first, show_progress=False
    )
    backend.train_from_iterator(spell_out(counts, set(first)), trainer)
    vocab = backend.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


def spell_out(counts: Counter[str], alphabet: set[str]) -> Iterator[str]:
    """Each word as often as it occurred; words with a character outside the alphabet teach nothing."""
    for word in sorted(counts):
        if alphabet.issuperset(word):
            for done in range(0, counts[word], 1000):
                yield " ".join([word] * min(1000, counts[word] - done))
