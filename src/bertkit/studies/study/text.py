"""The text of a study: given stores, or a small one with a small vocabulary, made from the data folder in a minute.

A vocabulary of 30,000 tokens is more than a model of a few minutes can learn, and most of its work would be guessing
among them; a small one lets the same minutes show more.
"""

from collections.abc import Iterator
from pathlib import Path

from bertkit.corpus.prepare.run import prepare
from bertkit.errors import BertkitError
from bertkit.studies.data_folder import DataFolder
from bertkit.studies.study.config import SmallText
from bertkit.studies.study.request import StudyRequest, Text
from bertkit.studies.suite_parts import digest_of
from bertkit.text.documents import read_documents
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.train import train_vocabulary
from bertkit.training.toml_text import to_plain

HELD_OUT = "validation.txt"


def given_text(data: DataFolder, store: str, tokenizer: str, held_out: str = "") -> Text | None:
    """Prepared stores, if any is given; without one of held-out text, that of the data folder is prepared."""
    if not store:
        if tokenizer or held_out:
            raise BertkitError(
                "--tokenizer and --held-out belong to a store that was made with them: give --store FOLDER"
            )
        return None
    if not tokenizer:
        raise BertkitError(f"--store {store} needs the vocabulary that it was made with: give --tokenizer FOLDER")
    return Text(store, tokenizer, held_out or str(data.store(HELD_OUT, Tokenizer.load(tokenizer)).folder))


def study_text(request: StudyRequest) -> Text:
    """What was given, or what the scale says is to be made."""
    if request.text:
        return request.text
    wanted = request.scale.text
    if wanted is None:
        raise BertkitError("this scale trains on prepared text: give --store FOLDER and --tokenizer FOLDER")
    return make_text(request.data, wanted, request.out / "text" / digest_of(to_plain(wanted)))


def make_text(data: DataFolder, wanted: SmallText, folder: Path) -> Text:
    """The first megabytes of each file, a vocabulary of them, and their store; finished before: nothing is done."""
    if not (folder / "vocab" / "vocab.txt").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / "writing.txt"
        aside.write_text("\n\n".join(_documents(data, wanted)) + "\n", encoding="utf-8")
        aside.replace(folder / "text.txt")
        with (folder / "text.txt").open(encoding="utf-8") as lines:
            train_vocabulary(lines, size=wanted.vocab_size, lowercase=True).save(folder / "vocab")
    tokenizer = Tokenizer.load(folder / "vocab")
    prepare([folder / "text.txt"], tokenizer, folder / "store", workers=1)
    held_out = data.store(wanted.held_out, tokenizer).folder
    return Text(str(folder / "store"), str(folder / "vocab"), str(held_out))


def _documents(data: DataFolder, wanted: SmallText) -> Iterator[str]:
    for name in wanted.files:
        left = int(wanted.megabytes * 1e6)
        for document in read_documents(data.corpus_file(name)):
            text = "\n".join(document.paragraphs)[:left]  # a whole book may be one document
            left -= len(text)
            yield text
            if left <= 0:
                break
