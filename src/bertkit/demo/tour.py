"""`bertkit demo`: the bundled models at work, then one of them taught a new task, all on a CPU and without a network.

Blanks, one word in three sentences, next sentences, an answer from a paragraph, names; then the encoder is fine-tuned
on the sample sentences and judged on others. Every figure comes from this run.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load
from bertkit.inference.words import compare_words
from bertkit.model import num_parameters
from bertkit.model.formats import resolve
from bertkit.pages.demo import Guess, PairExample
from bertkit.pages.demo_tour import (
    AnsweredQuestion,
    Blank,
    Judged,
    LoadedModel,
    MarkedText,
    TaughtModel,
    TourReport,
    UsedModels,
    tour_page,
)
from bertkit.pages.finetuning import Mark
from bertkit.pages.frame import save
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.registry import read_examples
from bertkit.training.finetuning.baseline import measure_baselines
from bertkit.training.finetuning.finetune import Finetuned, finetune
from bertkit.training.finetuning.records import Watcher
from bertkit.training.run_folder import versions

MASKED_TEXTS = (
    "The man went to the [MASK].",
    "The capital of France is [MASK].",
    "She opened the [MASK] and walked into the room.",
    "He drank a glass of [MASK].",
    "The dog wagged its [MASK].",
    "In winter the lake is covered with [MASK].",
)
PAIR_TEXTS = (
    ("The man went to the store.", "He bought a gallon of milk."),
    ("The man went to the store.", "Penguins are flightless."),
    ("The girl read a book in the library.", "She liked the story very much."),
    ("The girl read a book in the library.", "The engine needs a new pump."),
)
PASSAGE = (
    "The Rosetta Stone was found in July 1799 by French soldiers who were rebuilding a fort near the town of Rashid in "
    "Egypt. It carries the same decree three times: in hieroglyphs, in Demotic and in Greek. Because scholars could read "
    "the Greek, they had a key to the other two. Jean-François Champollion announced in 1822 that he had read the "
    "hieroglyphs. The stone has been shown in the British Museum in London since 1802."
)
QUESTIONS = (
    "Who found the stone?",
    "Who read the hieroglyphs?",
    "Where is the stone shown?",
    "Since when has it been in the museum?",
)
NAMED_TEXTS = (
    "Marie Curie was born in Warsaw and taught at the University of Paris.",
    "In 1928 Alexander Fleming discovered penicillin at St Mary's Hospital in London.",
)
TRAIN, HELD_OUT = "sentiment.csv", "sentiment-heldout.csv"


@dataclass(frozen=True)
class TourConfig:
    """Which models take part, and how the encoder is taught."""

    encoder: str = "small-en"
    sentiment: str = "sentiment-en"
    entities: str = "entities-en"
    answers: str = "answers-en"
    settings: dict[str, Any] = field(
        default_factory=lambda: {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4, "log_every": 1, "restarts": 0}
    )
    device: str = "cpu"


class Opener:
    """Opens models, and remembers how large they are and how long it took."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.opened: list[LoadedModel] = []

    def open(self, name: str) -> Bert:
        """The model of this name or folder."""
        started = time.perf_counter()
        bert = load(name, device=self.device)
        seconds = time.perf_counter() - started
        size = sum(path.stat().st_size for path in resolve(name).iterdir() if path.is_file()) / 1e6
        self.opened.append(LoadedModel(Path(name).name, num_parameters(bert.config), size, seconds))
        return bert


def compare_senses(encoder: Bert) -> dict[str, Any]:
    """“fair” in three sentences; where the word outweighs its sense, that is said."""
    found = compare_words(encoder)
    plain = found.to_json()
    _, same_word, same_sense = found.contextual.cosines[0]
    if same_word > same_sense:
        plain["notes"].append("Context has not turned the order in this small model: 1 is still nearer to 2 than to 3.")
    return plain


def use_models(config: TourConfig) -> UsedModels:
    """Everything that needs no training."""
    opener = Opener(config.device)
    encoder = opener.open(config.encoder)
    reader, tagger = opener.open(config.answers), opener.open(config.entities)
    probabilities = encoder.next_sentences(PAIR_TEXTS).tolist()
    return UsedModels(
        models=opener.opened,
        blanks=fill_blanks(encoder),
        words=compare_senses(encoder),
        next_sentence=[PairExample(a, b, p) for (a, b), p in zip(PAIR_TEXTS, probabilities, strict=True)],
        passage=PASSAGE,
        answers=answer(reader),
        entities=[MarkedText(one.text, [Mark(e.start, e.end, e.kind) for e in one.entities]) for one in tag(tagger)],
        attention=encoder.attention(*PAIR_TEXTS[0]),
    )


def fill_blanks(encoder: Bert) -> list[Blank]:
    """The best words for each text's blank."""
    filled = encoder.fill_mask(MASKED_TEXTS)
    return [
        Blank(text, [Guess(one.token, one.probability) for one in masks[0].candidates])
        for text, masks in zip(MASKED_TEXTS, filled, strict=True)
    ]


def answer(reader: Bert) -> list[AnsweredQuestion]:
    """The questions about the passage."""
    found = reader.answer(QUESTIONS, PASSAGE)
    return [
        AnsweredQuestion(question, one.text, one.start, one.end, one.confidence)
        for question, one in zip(QUESTIONS, found, strict=True)
    ]


def tag(tagger: Bert) -> Sequence[Any]:
    """The texts with names."""
    return tagger.tag(NAMED_TEXTS)


def teach(config: TourConfig, out: Path, watcher: Watcher | None = None) -> TaughtModel:
    """Fine-tune the encoder on the sample sentences, save it under `out`, and judge the held-out ones with it."""
    train, held_out = sample_sentences(TRAIN), sample_sentences(HELD_OUT)
    result = finetune(
        "classification",
        model=config.encoder,
        train=train,
        watcher=watcher,
        device=config.device,
        **config.settings,
    )
    bert = load(result.save(out / "sentiment"), device=config.device)
    judged = judge(bert, held_out)
    simple = measure_baselines(result.task, train, held_out)
    ready = judge(load(config.sentiment, device=config.device), held_out)
    others = {simple.name: simple.scores["accuracy"], f"{Path(config.sentiment).name}, as it comes": accuracy(ready)}
    return describe(config, result, judged, others)


def describe(config: TourConfig, result: Finetuned, judged: Sequence[Judged], others: dict[str, float]) -> TaughtModel:
    """What the page shows of the teaching."""
    report = result.report
    return TaughtModel(
        base=Path(config.encoder).name,
        num_train=len(result.prepared.train),
        num_dev=len(result.prepared.dev),
        seconds=result.best.summary.seconds,
        losses=report.losses,
        evaluations=report.evaluations,
        metric=result.metric,
        accuracy=accuracy(judged),
        others=others,
        judged=judged,
    )


def sample_sentences(name: str) -> list[TextExample]:
    """Sentences with their sentiment, as they come with bertkit."""
    with as_file(files("bertkit") / "samples" / name) as path:
        examples: list[TextExample] = read_examples("classification", path).examples
    return examples


def judge(bert: Bert, sentences: Sequence[TextExample]) -> list[Judged]:
    """What a model says of each."""
    if set(bert.config.labels) != {str(one.label) for one in sentences}:
        raise BertkitError(f"a model for sentiment says positive or negative, not {', '.join(bert.config.labels)}")
    said = bert.predict([one.text for one in sentences])
    return [
        Judged(one.text, str(one.label), str(found.label), found.confidence or 0.0)
        for one, found in zip(sentences, said, strict=True)
    ]


def accuracy(judged: Sequence[Judged]) -> float:
    """The share that was judged rightly."""
    return sum(one.said == one.label for one in judged) / max(1, len(judged))


def write_tour(out: Path, used: UsedModels, taught: TaughtModel) -> TourReport:
    """The page about all of it, `index.html` under `out`."""
    report = TourReport(used, taught, versions())
    out.mkdir(parents=True, exist_ok=True)
    save(out / "index.html", tour_page(report))
    return report
