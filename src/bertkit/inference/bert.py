"""A checkpoint in use: text in, vectors and probabilities out.

`Bert` only joins a model with its tokenizer; what each method does lives in the file it calls.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.inference import answering, classification, embedding, encoding, prediction, tagging
from bertkit.inference.classification import FileScores, Text
from bertkit.inference.embedding import EmbedOptions, Vectors
from bertkit.inference.encoding import AttentionMap, EncodedText, Span, WordVector
from bertkit.inference.layers import LayerChoice, layer_width
from bertkit.inference.prediction import FilledMask, PseudoLikelihood
from bertkit.inference.tagging import Sentence, TaggedText
from bertkit.model import BertConfig, BertModel
from bertkit.model.formats import LoadReport, save_model
from bertkit.model.formats.sentence_transformers import SentenceStyle, remove_style, write_style
from bertkit.tasks.answering.spans import AnswerPrediction
from bertkit.tasks.classification.task import ClassPrediction
from bertkit.tasks.registry import NAME as TASK_FILE
from bertkit.tasks.registry import StoredTask, task_of, write_task
from bertkit.tokenizer import Tokenizer

TASK_HEADS = {"classifier", "tagger", "span"}  # a model of these is no longer one for sentence vectors


class Bert:
    """A model and the tokenizer that belongs to it."""

    def __init__(
        self,
        model: BertModel,
        tokenizer: Tokenizer,
        report: LoadReport | None = None,
        style: SentenceStyle | None = None,
        stored: StoredTask | None = None,
    ) -> None:
        if tokenizer.vocab_size > model.config.vocab_size:
            raise BertkitError(
                f"the tokenizer has {tokenizer.vocab_size} tokens but the model has rows for {model.config.vocab_size}; "
                "they do not belong together"
            )
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.report = report
        self.stored = stored or StoredTask()  # the task that this checkpoint was fine-tuned for
        self.engine = "torch"  # what computes the encoder: see engines/choose.py
        self.style = style  # how this checkpoint's sentence vectors are made, where it was tuned for them

    def __repr__(self) -> str:
        heads = ", ".join(self.config.heads) or "no heads"
        size = f"{self.config.num_layers} layers of {self.config.hidden_size}"
        return f"<Bert: {size}, {heads}, {self.tokenizer.vocab_size:,} tokens, {self.engine} on {self.device}>"

    @property
    def config(self) -> BertConfig:
        """The model's sizes and heads."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.model.device

    def encode(self, a: str, b: str | None = None, *, long: str = "error") -> EncodedText:
        """Tokens, offsets, every layer, one vector a token, and [CLS] raw and pooled, of a text or pair."""
        return encoding.encode_text(self.model, self.tokenizer, a, b, long)

    def attention(self, a: str, b: str | None = None, *, long: str = "error") -> AttentionMap:
        """The attention weights of every layer and head for a text or pair."""
        return encoding.attention_of(self.model, self.tokenizer, a, b, long)

    def word_vectors(
        self, text: str, *, layer: LayerChoice = -1, spans: Sequence[Span] | None = None
    ) -> list[WordVector]:
        """One contextual vector a word, with its character span; your own spans if you have other words in mind."""
        return encoding.word_vectors(self.encode(text), layer, spans)

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        max_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Vectors:
        """One vector a text, [N, D] (or [D] for a single string). Options: see EmbedOptions.

        pooling="mean" | "cls" | "max", layer=-1 | 0..L | "mean-last-4" | "concat-last-4" | ..., normalize=False,
        dtype="float32" | "float16", long="window" | "truncate" | "error", max_length=None. Where the checkpoint was
        tuned for sentence vectors, its own pooling, normalisation and length hold unless you say otherwise.
        """
        single = [texts] if isinstance(texts, str) else texts
        chunks = list(self.embed_stream(single, max_tokens=max_tokens, progress=progress, **options))
        if not chunks:
            return np.zeros((0, self.embedding_size(options.get("layer", -1))), options.get("dtype", "float32"))
        vectors = np.concatenate(chunks)
        return vectors[0] if isinstance(texts, str) else vectors

    def embed_stream(
        self,
        texts: Iterable[str],
        *,
        max_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Iterator[Vectors]:
        """Like embed, chunk by chunk, for more texts than fit in memory."""
        chosen = self.embed_options(**options)
        return embedding.embed_stream(
            self.model, self.tokenizer, texts, chosen, max_tokens=max_tokens, progress=progress
        )

    def embed_options(self, **asked: Any) -> EmbedOptions:
        """What embed does when asked so: the checkpoint's own style where nothing else is said."""
        own = {} if self.style is None else vars(self.style)
        return EmbedOptions(**{**own, **asked})

    def embedding_size(self, layer: LayerChoice = -1) -> int:
        """The width of embed's vectors."""
        return layer_width(layer, self.config.num_layers, self.config.hidden_size)

    @overload
    def fill_mask(self, text: str, **options: Any) -> list[FilledMask]: ...

    @overload
    def fill_mask(self, text: Iterable[str], **options: Any) -> list[list[FilledMask]]: ...

    def fill_mask(self, text: str | Iterable[str], **options: Any) -> list[FilledMask] | list[list[FilledMask]]:
        """The best tokens for each [MASK] of a text (or of many). Options: top_k=5, or candidates=[words], all ranked."""
        texts = [text] if isinstance(text, str) else text
        filled = prediction.fill_masks(self.model, self.tokenizer, texts, **options)
        return filled[0] if isinstance(text, str) else filled

    def next_sentence(self, a: str, b: str) -> float:
        """The probability that b follows a."""
        return float(self.next_sentences([(a, b)])[0])

    def next_sentences(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """The probability of being next for every pair."""
        return prediction.next_probabilities(self.model, self.tokenizer, pairs)

    @overload
    def similarity(self, a: str, b: str, **options: Any) -> float: ...

    @overload
    def similarity(self, a: Sequence[str], b: Sequence[str], **options: Any) -> NDArray[np.float32]: ...

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str], **options: Any) -> float | NDArray[np.float32]:
        """Cosine of two texts' vectors, or of every text of a with every text of b. Options: as embed."""
        left, right = ([text] if isinstance(text, str) else text for text in (a, b))
        matrix = embedding.cosine_matrix(self._float32(left, options), self._float32(right, options))
        return float(matrix[0, 0]) if isinstance(a, str) and isinstance(b, str) else matrix

    def _float32(self, texts: Sequence[str], options: dict[str, Any]) -> NDArray[np.float32]:
        return np.asarray(self.embed(texts, **options), dtype=np.float32)

    def pseudo_likelihood(self, text: str) -> PseudoLikelihood:
        """log P of each token given all others, by masking one at a time; .total scores the text."""
        return prediction.pseudo_likelihood(self.model, self.tokenizer, text)

    @overload
    def tag(self, texts: str, **options: Any) -> TaggedText: ...

    @overload
    def tag(self, texts: Iterable[Sentence], **options: Any) -> list[TaggedText]: ...

    def tag(self, texts: str | Iterable[Sentence], **options: Any) -> TaggedText | list[TaggedText]:
        """Words, tags and entities of a text, of many, or of sentences given as lists of words.

        Options: long="window" | "truncate" | "error" (as in fine-tuning unless said), stride (tokens that windows share).
        """
        found = list(self.tag_stream([texts] if isinstance(texts, str) else texts, **options))
        return found[0] if isinstance(texts, str) else found

    def tag_stream(self, texts: Iterable[Sentence], **options: Any) -> Iterator[TaggedText]:
        """Like tag, for more texts than fit in memory."""
        return tagging.tag_texts(self.model, self.tokenizer, texts, stored=self.stored, **options)

    @overload
    def answer(self, question: str, context: str, **options: Any) -> AnswerPrediction: ...

    @overload
    def answer(self, question: Sequence[str], context: str, **options: Any) -> list[AnswerPrediction]: ...

    def answer(
        self, question: str | Sequence[str], context: str, **options: Any
    ) -> AnswerPrediction | list[AnswerPrediction]:
        """The span of the context that answers a question (or each of several): context[start:end] == text.

        Options: top_k=5, max_answer_tokens=30, no_answer_threshold (the checkpoint's own, or there is always an
        answer), long and stride as in tag; see AnswerOptions.
        """
        questions = [question] if isinstance(question, str) else question
        found = list(self.answer_stream(((one, context) for one in questions), **options))
        return found[0] if isinstance(question, str) else found

    def answer_stream(self, pairs: Iterable[tuple[str, str]], **options: Any) -> Iterator[AnswerPrediction]:
        """Like answer, for any number of (question, context)."""
        return answering.answer_questions(self.model, self.tokenizer, pairs, stored=self.stored, **options)

    @overload
    def predict(self, text: str | tuple[str, str | None], **options: Any) -> ClassPrediction: ...

    @overload
    def predict(self, text: Iterable[Text], **options: Any) -> list[ClassPrediction]: ...

    def predict(self, text: Text | Iterable[Text], **options: Any) -> ClassPrediction | list[ClassPrediction]:
        """The label of a text, of a pair (a tuple), or of each of many, with probabilities.

        Options: long="window" | "truncate" | "error" (as in fine-tuning unless said), max_tokens.
        """
        # A tuple of two pairs is no pair but two of them.
        single = isinstance(text, str) or (isinstance(text, tuple) and len(text) == 2 and isinstance(text[0], str))
        texts: Any = [text] if single else text
        found = list(self.predict_stream(texts, **options))
        return found[0] if single else found

    def predict_stream(self, texts: Iterable[Text], **options: Any) -> Iterator[ClassPrediction]:
        """Like predict, for more texts than fit in memory."""
        return classification.predict_texts(self.model, self.tokenizer, texts, stored=self.stored, **options)

    def evaluate(self, file: str | Path, **options: Any) -> FileScores:
        """The scores on a file of the task that this checkpoint was fine-tuned for. Options: long, columns={...}."""
        return classification.evaluate_file(self.model, self.tokenizer, file, stored=self.stored, **options)

    def save(self, folder: str | Path, **options: Any) -> Path:
        """Write weights, config and tokenizer as a folder that the ecosystem loads. Options: see save_model.

        What a model that stood there before said of its task and of its sentence vectors is taken away.
        """
        target = Path(folder)
        save_model(self.model, target, **options)
        self.tokenizer.save(target, max_length=self.config.max_positions)
        is_plain, has_task = options.get("layout") == "tf1", bool({*self.config.heads} & TASK_HEADS)
        if self.style is None:
            remove_style(target)
        elif not is_plain and not has_task:
            write_style(target, self.style, self.config)
        if not self.stored.task or not has_task:
            (target / TASK_FILE).unlink(missing_ok=True)
        elif not is_plain:
            write_task(target, task_of(self.config, self.stored), self.stored.limit)
        return target
