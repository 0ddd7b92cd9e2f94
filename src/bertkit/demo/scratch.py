"""`bertkit demo --from-scratch`: raw text to a working BERT in half a minute, with nothing prepared beforehand.

A vocabulary is learned from the sample text, a tiny BERT is trained on it with MLM + NSP, saved, loaded again and
used; a page tells what happened. Real training at toy scale: every figure comes from the run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bertkit.corpus.masking import generator
from bertkit.corpus.pairs import PairConfig
from bertkit.inference.bert import Bert
from bertkit.inference.loading import load
from bertkit.inference.prediction import FilledMask
from bertkit.model import BertModel, num_parameters, preset
from bertkit.pages.demo import CurvePoint, DemoReport, FilledText, Guess, PairExample, demo_page
from bertkit.pages.frame import save
from bertkit.tasks.examples import collate
from bertkit.tasks.pretraining import PretrainingBatch, pretraining_losses
from bertkit.tasks.stream import draw_examples, stream_batches, tokenize_documents
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer, train_vocabulary
from bertkit.training.initialisation import look_beside
from bertkit.training.loop import StepRecord, TrainingConfig, pretrain
from bertkit.training.run_folder import versions

SIZE = "tiny"
VOCABULARY = 1500
PAIRS = PairConfig(max_length=32)
BATCH_SIZE = 32
HELD_OUT_EVERY = 10  # one document in ten is never trained on
HELD_OUT_DRAWS = 4  # the held-out text is masked this often, for a steadier figure
NUM_EVALUATIONS = 12

MASKED_TEXTS = (
    "The man went to the [MASK].",
    "She bought milk and [MASK] at the store.",
    "The dog began to [MASK] at the cat.",
    "Penguins cannot [MASK].",
    "It was cold and the [MASK] fell in winter.",
)
PAIR_TEXTS = (
    ("The man went to the store.", "He bought a gallon of milk."),
    ("The man went to the store.", "Penguins are flightless birds."),
    ("The girl read a book in the library.", "She liked the story very much."),
    ("The girl read a book in the library.", "The ship came back to the harbor."),
)


@dataclass(frozen=True)
class DemoConfig:
    """How long the demo trains, and the seed of everything random in it."""

    num_steps: int = 1200
    seed: int = 1

    @property
    def training(self) -> TrainingConfig:
        """A hot, short schedule; with so few steps, Adam's second moment must forget quickly."""
        return TrainingConfig(num_steps=self.num_steps, learning_rate=2e-3, beta2=0.95)


def fresh_model(vocab_size: int) -> BertModel:
    """A tiny BERT for a short run: no dropout, weights as wide as the paper's 0.02 is for 768 dimensions, no plateau."""
    model = BertModel(
        preset(SIZE, vocab_size=vocab_size, hidden_dropout=0.0, attention_dropout=0.0, initializer_range=0.05)
    )
    look_beside(model)
    return model


@dataclass(frozen=True)
class Corpus:
    """The sample text, split, with its vocabulary."""

    documents: list[list[str]]
    tokenizer: Tokenizer
    train: list[list[list[int]]]
    held_out: list[list[list[int]]]

    @property
    def num_words(self) -> int:
        """Words between spaces."""
        return sum(len(sentence.split()) for document in self.documents for sentence in document)


def run_demo(out: Path, config: DemoConfig, on_step: Callable[[StepRecord], None] | None = None) -> DemoReport:
    """Train, save, load again, use, and write `model/` and `index.html` under `out`."""
    corpus = read_corpus()
    torch.manual_seed(config.seed)
    fresh = Bert(fresh_model(corpus.tokenizer.vocab_size), corpus.tokenizer)
    before = fresh.fill_mask(MASKED_TEXTS)
    started = time.perf_counter()
    curve = train(fresh.model, corpus, config, on_step)
    seconds = time.perf_counter() - started
    fresh.save(out / "model")
    trained = load(out / "model")
    report = describe_run(trained, corpus, config, curve, seconds, [_guesses(masks[0]) for masks in before])
    save(out / "index.html", demo_page(report))
    return report


def read_corpus() -> Corpus:
    """The sample text with a vocabulary learned from its training part."""
    documents = sample_documents()
    kept = [document for index, document in enumerate(documents) if index % HELD_OUT_EVERY]
    held_out = documents[::HELD_OUT_EVERY]
    lines = (sentence for document in kept for sentence in document)
    tokenizer = train_vocabulary(lines, size=VOCABULARY, lowercase=True)
    return Corpus(documents, tokenizer, tokenize_documents(kept, tokenizer), tokenize_documents(held_out, tokenizer))


def train(
    model: BertModel, corpus: Corpus, config: DemoConfig, on_step: Callable[[StepRecord], None] | None
) -> list[CurvePoint]:
    """The training itself; returns the curve with the held-out loss measured now and then."""
    batches = stream_batches(corpus.train, corpus.tokenizer, PAIRS, batch_size=BATCH_SIZE, seed=config.seed)
    held_out = held_out_batch(corpus)
    measured = set(np.linspace(0, config.num_steps - 1, NUM_EVALUATIONS).astype(int).tolist())
    curve = []

    def record(step: StepRecord) -> None:
        loss = evaluate(model, held_out).mlm_loss if step.step in measured else None
        curve.append(CurvePoint(step.step + 1, step.loss, step.mlm_loss, step.nsp_loss, loss))
        if on_step:
            on_step(step)

    pretrain(model, batches, config.training, record)
    return curve


def held_out_batch(corpus: Corpus) -> PretrainingBatch:
    """The held-out documents, masked several times; the same for every seed, so that runs compare."""
    draws = [draw_examples(corpus.held_out, corpus.tokenizer, PAIRS, generator(0, i)) for i in range(HELD_OUT_DRAWS)]
    return collate([example for draw in draws for example in draw])


@dataclass(frozen=True)
class Evaluation:
    """How the model does on text that was never trained on."""

    mlm_loss: float
    nsp_accuracy: float


@torch.no_grad()
def evaluate(model: BertModel, batch: PretrainingBatch) -> Evaluation:
    """Both tasks on held-out text, dropout off; the model is left in training mode or not, as it was."""
    was_training = model.training
    losses = pretraining_losses(model.eval(), batch)
    model.train(was_training)
    correct = losses.nsp_logits.argmax(-1) == batch.next_labels
    return Evaluation(losses.mlm_sum.item() / batch.masked_token_ids.shape[0], correct.float().mean().item())


def unigram_loss(corpus: Corpus, batch: PretrainingBatch) -> float:
    """What guessing by frequency alone would lose on the same masked tokens."""
    tokens = [token for document in corpus.train for sentence in document for token in sentence]
    counts = np.bincount(tokens, minlength=corpus.tokenizer.vocab_size) + 1.0
    return float(-np.log(counts / counts.sum())[batch.masked_token_ids.numpy()].mean())


def describe_run(
    bert: Bert,
    corpus: Corpus,
    config: DemoConfig,
    curve: Sequence[CurvePoint],
    seconds: float,
    before: Sequence[Sequence[Guess]],
) -> DemoReport:
    """Everything that the page shows."""
    after = [_guesses(masks[0]) for masks in bert.fill_mask(MASKED_TEXTS)]
    probabilities = bert.next_sentences(PAIR_TEXTS).tolist()
    held_out = held_out_batch(corpus)
    return DemoReport(
        config_name=SIZE,
        num_parameters=num_parameters(bert.config),
        num_layers=bert.config.num_layers,
        hidden_size=bert.config.hidden_size,
        num_heads=bert.config.num_heads,
        vocab_size=bert.tokenizer.vocab_size,
        num_sentences=sum(len(document) for document in corpus.documents),
        num_words=corpus.num_words,
        seed=config.seed,
        num_steps=config.num_steps,
        seconds=seconds,
        curve=curve,
        unigram_loss=unigram_loss(corpus, held_out),
        nsp_accuracy=evaluate(bert.model, held_out).nsp_accuracy,
        fill_mask=[FilledText(*row) for row in zip(MASKED_TEXTS, before, after, strict=True)],
        next_sentence=[PairExample(a, b, p) for (a, b), p in zip(PAIR_TEXTS, probabilities, strict=True)],
        attention=bert.attention(*PAIR_TEXTS[0]),
        versions=versions(),
    )


def _guesses(mask: FilledMask) -> list[Guess]:
    return [Guess(candidate.token, candidate.probability) for candidate in mask.candidates]
