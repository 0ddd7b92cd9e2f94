"""New words for a checkpoint that exists: rows in its embedding table and in its masked-token head.

What enters: a checkpoint and words. What leaves: a checkpoint whose vocabulary has them whole, and a report.
A new word's vector (and its output weights and bias) is the mean of those of the pieces that it was cut into, so it
starts where the model already understood it, more or less; train on text of the domain from there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.engines.choose import use_torch
from bertkit.inference.loading import carry_along, folder_of, open_checkpoint
from bertkit.model import BertModel
from bertkit.model.formats import resolve
from bertkit.text.counted import counted
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.extend import AddedWord, SkippedWord, extend_vocabulary
from bertkit.tokenizer.report import VocabularyReport, measure_vocabulary

NUM_SHOWN = 10


@dataclass(frozen=True)
class ExtensionReport:
    """What was added, what was not, and what that changes on held-out text where some is given."""

    added: list[AddedWord]
    old_pieces: list[list[str]]  # of each added word
    skipped: list[SkippedWord]
    vocab_size_before: int
    vocab_size_after: int
    num_rows: int  # of the model's table, which may be larger than the vocabulary
    before: VocabularyReport | None
    after: VocabularyReport | None

    @property
    def pieces_before(self) -> float:
        """Pieces an added word was cut into, on average; it is one now."""
        return sum(map(len, self.old_pieces)) / len(self.added)

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        rows = zip(self.added, self.old_pieces, strict=True)
        return {
            "added": [{"word": entry.word, "id": entry.id, "pieces": pieces} for entry, pieces in rows],
            "skipped": [asdict(entry) for entry in self.skipped],
            "vocab_size_before": self.vocab_size_before,
            "vocab_size_after": self.vocab_size_after,
            "num_rows": self.num_rows,
            "pieces_before": self.pieces_before,
            "pieces_after": 1.0,
            "held_out_before": self.before and self.before.to_json(),
            "held_out_after": self.after and self.after.to_json(),
        }

    def lines(self) -> list[str]:
        """For people."""
        shown = [
            f"added {counted(len(self.added), 'word')}: {self.pieces_before:.2f} pieces a word before, 1 now",
            *(
                f"  {entry.word} (id {entry.id}) was {' '.join(pieces)}"
                for entry, pieces in list(zip(self.added, self.old_pieces, strict=True))[:NUM_SHOWN]
            ),
        ]
        if len(self.added) > NUM_SHOWN:
            shown.append(f"  and {len(self.added) - NUM_SHOWN:,} more")
        shown += [f"skipped: {entry.word} {entry.reason}" for entry in self.skipped]
        shown.append(
            f"vocabulary: {self.vocab_size_before:,} tokens before, {self.vocab_size_after:,} now; "
            f"{self.num_rows:,} rows in the model"
        )
        if self.before and self.after:
            shown.append(
                f"held-out text: {self.before.fertility:.4f} pieces a word before, {self.after.fertility:.4f} now; "
                f"words whole {self.before.whole_rate:.2%} before, {self.after.whole_rate:.2%} now"
            )
        return shown


def extend_checkpoint(
    source: str | Path,
    words: Iterable[str],
    target: str | Path,
    *,
    into_unused: bool = False,
    held_out: Sequence[str] = (),
) -> ExtensionReport:
    """Read a checkpoint, add the words, and write it as a new folder."""
    origin = folder_of(resolve(str(source)))
    if origin.resolve() == Path(target).resolve():
        raise BertkitError(f"{target} is the checkpoint itself; write the extended one to another folder")
    bert = open_checkpoint(source, dtype=None)
    extended, report = extend_bert(bert, words, into_unused=into_unused, held_out=held_out)
    extended.save(target)
    carry_along(origin, Path(target))
    return report


def extend_bert(
    bert: Bert, words: Iterable[str], *, into_unused: bool = False, held_out: Sequence[str] = ()
) -> tuple[Bert, ExtensionReport]:
    """The same model with rows for these words (its tables are changed in place), and the report."""
    old = bert.tokenizer
    use_torch(bert)
    extended = extend_vocabulary(old, words, into_unused=into_unused)
    grow_tables(bert.model, extended.added, extended.tokenizer.vocab_size)
    report = ExtensionReport(
        extended.added,
        [[old.token(piece) for piece in entry.pieces] for entry in extended.added],
        extended.skipped,
        old.vocab_size,
        extended.tokenizer.vocab_size,
        bert.model.config.vocab_size,
        *(_measure(tokenizer, held_out) for tokenizer in (old, extended.tokenizer)),
    )
    return Bert(bert.model, extended.tokenizer, bert.report, bert.style, bert.stored), report


def _measure(tokenizer: Tokenizer, texts: Sequence[str]) -> VocabularyReport | None:
    return measure_vocabulary(tokenizer, texts) if texts else None


@torch.no_grad()
def grow_tables(model: BertModel, added: Sequence[AddedWord], vocab_size: int) -> None:
    """Give the embedding table, the MLM bias and an untied decoder a row a new word."""
    num_rows = max(vocab_size, model.config.vocab_size)  # a table padded beyond the vocabulary keeps its size
    token = model.encoder.embeddings.token
    token.weight = _with_means(token.weight, added, num_rows)
    token.num_embeddings = num_rows
    if model.mlm is not None:
        model.mlm.bias = _with_means(model.mlm.bias, added, num_rows)
        if model.mlm.decoder is not None:
            model.mlm.decoder.weight = _with_means(model.mlm.decoder.weight, added, num_rows)
            model.mlm.decoder.out_features = num_rows
    model.config = replace(model.config, vocab_size=num_rows)


def _with_means(table: Tensor, added: Sequence[AddedWord], num_rows: int) -> nn.Parameter:
    grown = table.new_zeros((num_rows, *table.shape[1:]))
    grown[: len(table)] = table
    for entry in added:
        # In float32, because a mean of half-precision numbers is best rounded once.
        grown[entry.id] = table[entry.pieces].float().mean(0).to(table.dtype)
    return nn.Parameter(grown, requires_grad=table.requires_grad)
