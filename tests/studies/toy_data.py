"""A data folder small enough for tests, of the words of tests.training.tiny: corpus/, packed tasks, and a suite of them."""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.studies.data_folder import DataFolder
from tests.training.tiny import WORDS

SUITE = """
seeds = 2
dropout = 0.1
[held_out]
lengths = [16, 32, 64]
tokens_per_batch = 64

[[tasks]]
name = "SST-2"
task = "classification"
train = ["toy/train.tsv"]
test = "toy/dev.tsv"
metric = "accuracy"
columns = {text = "text", label = "label"}
learning_rate = 5e-3
batch_size = 8
epochs = 4
max_length = 24

[[tasks]]
name = "STS-B"
task = "regression"
train = ["toy/numbers.tsv"]
test = "toy/numbers.tsv"
metric = "spearman"
columns = {text = "text", label = "number"}
learning_rate = 1e-3
batch_size = 8
epochs = 1
max_length = 512

[[tasks]]
name = "CoNLL-2003"
task = "tagging"
train = ["toy/tags.txt"]
test = "toy/tags.txt"
scored_on = "test"
metric = "f1"
learning_rate = 1e-3
batch_size = 8
epochs = 1
long = "window"

[[tasks]]
name = "SQuAD"
task = "answering"
train = ["toy/questions.json", "toy/more-questions.json"]
test = "toy/questions.json"
metric = "f1"
columns = {skip_bad = true}
learning_rate = 1e-3
batch_size = 8
epochs = 1
max_length = 32
long = "window"
"""


def make_data(folder: Path) -> Path:
    """The data folder, with one packed task folder and plain ones."""
    random = np.random.default_rng(0)
    (folder / "corpus").mkdir(parents=True)
    for name, own in (("validation.txt", random), ("train.txt", np.random.default_rng(1))):
        documents = ["\n".join(" ".join(sentence(own, 6)) + " ." for _ in range(5)) for _ in range(8)]
        (folder / "corpus" / name).write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    make_toy(folder / "made" / "toy", random)
    make_blimp(folder / "tasks" / "blimp", random)
    make_senses(folder / "tasks" / "mcl-wic-en", random)
    with tarfile.open(folder / "tasks" / "toy.tar.xz", "w:xz") as packed:
        packed.add(folder / "made" / "toy", "toy")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    return folder


def open_data(folder: Path) -> DataFolder:
    return DataFolder.open(folder, folder / "cache")


def sentence(random: Any, length: int) -> list[str]:
    return [WORDS[int(index)] for index in random.integers(2, 40, length)]


def make_toy(folder: Path, random: Any) -> None:
    folder.mkdir(parents=True)
    for name, num in (("train", 48), ("dev", 16)):
        firsts = random.integers(0, 2, num)
        rows = [f"{' '.join([WORDS[first], *sentence(random, 4)])}\t{('no', 'yes')[first]}" for first in firsts]
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    numbers = [f"{' '.join(sentence(random, 4))}\t{index / 4:.2f}" for index in range(16)]
    (folder / "numbers.tsv").write_text("text\tnumber\n" + "\n".join(numbers) + "\n", encoding="utf-8")
    tagged = ["\n".join(f"{word} {'B-X' if word < 'w2' else 'O'}" for word in sentence(random, 5)) for _ in range(12)]
    (folder / "tags.txt").write_text("\n\n".join(tagged) + "\n", encoding="utf-8")
    for part, name in enumerate(("questions", "more-questions")):
        write_questions(folder / f"{name}.json", random, part)


def write_questions(path: Path, random: Any, part: int) -> None:
    """Eight questions, and a ninth whose answer is empty."""
    rows = []
    for number in range(9):
        words = sentence(random, 12)
        place = len(" ".join(words[:4])) + 1
        answer = {"text": words[4] if number < 8 else "", "answer_start": place}
        question = {"id": f"{part}-{number}", "question": " ".join(sentence(random, 3)), "answers": [answer]}
        rows.append({"context": " ".join(words), "qas": [question]})
    path.write_text(json.dumps({"data": [{"title": "toy", "paragraphs": rows}]}), encoding="utf-8")


def make_blimp(folder: Path, random: Any) -> None:
    folder.mkdir(parents=True)
    for name, term in (("first_set", "one"), ("second_set", "two"), ("third_set", "two")):
        pairs = [
            {
                "sentence_good": " ".join(sentence(random, 3 + number % 3)),
                "sentence_bad": " ".join(sentence(random, 3)),
                "field": "syntax",
                "linguistics_term": term,
            }
            for number in range(6)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)) + "\n", encoding="utf-8")


def make_senses(folder: Path, random: Any) -> None:
    folder.mkdir(parents=True)
    for split, num in (("training", 12), ("dev", 4), ("test", 6)):
        rows, gold = [], []
        for number in range(num):
            row: dict[str, str] = {"id": f"{split}.{number}"}
            for side in "12":
                words = [*sentence(random, 3), "w1", *sentence(random, 2)]
                start = len(" ".join(words[:3])) + 1
                row |= {f"sentence{side}": " ".join(words), f"start{side}": str(start), f"end{side}": str(start + 2)}
            rows.append(row)
            gold.append({"id": row["id"], "tag": "TF"[number % 2]})
        (folder / f"{split}.data.json").write_text(json.dumps(rows), encoding="utf-8")
        (folder / f"{split}.gold.json").write_text(json.dumps(gold), encoding="utf-8")
