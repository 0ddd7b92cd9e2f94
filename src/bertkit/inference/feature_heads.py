"""A head trained on features in use: texts or words in, the same predictions as a fine-tuned model's out."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.features.make import FeatureOptions, fingerprint, stream_features
from bertkit.inference.loading import load
from bertkit.inference.vector_files import parse_layer
from bertkit.model.feature_heads import BiLstmHead, LogisticHead
from bertkit.tasks.classification.task import ClassPrediction
from bertkit.tasks.feature_heads import TrainedHead, class_probabilities, load_trained_head, sentence_logits
from bertkit.tasks.reading.examples import TagExample, TextExample
from bertkit.tasks.tagging.decoding import TagPrediction, predict_tags
from bertkit.tasks.tagging.labels import TagScheme
from bertkit.tasks.tagging.words import cut_text
from bertkit.tokenizer.inputs import Text


class FeatureHead:
    """An encoder as it is, and a head that was trained on its features."""

    def __init__(self, bert: Bert, trained: TrainedHead) -> None:
        if fingerprint(bert) != trained.recipe.encoder:
            raise BertkitError(
                "this head was trained on the features of another model (other weights or another tokenizer); "
                f"give the one it was made with ({trained.recipe.model or 'its folder is not recorded'})"
            )
        self.bert, self.trained = bert, trained

    @property
    def options(self) -> FeatureOptions:
        """How the head's features are made."""
        recipe = self.trained.recipe
        pooling = {} if recipe.per == "word" else {"pooling": recipe.pooling}
        return FeatureOptions(parse_layer(recipe.layer), recipe.per, **pooling)  # type: ignore[arg-type]

    def predict(self, texts: str | Iterable[Text]) -> list[ClassPrediction]:
        """The label of each text or pair (a lone string is one text), with the probabilities of all."""
        several = [texts] if isinstance(texts, str) else texts
        pairs = ((text, None) if isinstance(text, str) else text for text in several)
        return self.predict_examples(TextExample(a, b) for a, b in pairs)

    def predict_examples(self, examples: Iterable[TextExample]) -> list[ClassPrediction]:
        """The same of examples."""
        head = self.trained.head
        if not isinstance(head, LogisticHead):
            raise BertkitError("this head tags words; use its tag()")
        found: list[ClassPrediction] = []
        for chunk in stream_features(self.bert, examples, self.options):
            for row in class_probabilities(head, chunk.vectors):
                named = dict(zip(head.config.labels, row.tolist(), strict=True))
                best = head.config.labels[int(row.argmax())]
                found.append(ClassPrediction(best, named[best], named))
        return found

    def tag(self, sentences: str | Iterable[str | Sequence[str] | TagExample]) -> list[TagPrediction]:
        """The tags and entities of each sentence, given as a text or as words; a lone string is one text."""
        head = self.trained.head
        if not isinstance(head, BiLstmHead):
            raise BertkitError("this head classifies whole texts; use its predict()")
        scheme = TagScheme(head.config.labels)
        several = [sentences] if isinstance(sentences, str) else sentences
        examples = [self._example(sentence) for sentence in several]
        filled = [example for example in examples if example.words]
        start, logits = 0, []
        for chunk in stream_features(self.bert, filled, self.options):
            count = len(set(chunk.text_ids.tolist()))
            lengths = [len(example.words) for example in filled[start : start + count]]
            logits += list(sentence_logits(head, chunk.vectors, lengths))
            start += count
        scores = iter(logits)
        return [predict_tags(one, next(scores), scheme) if one.words else TagPrediction((), ()) for one in examples]

    def _example(self, sentence: str | Sequence[str] | TagExample) -> TagExample:
        if isinstance(sentence, TagExample):
            return sentence
        return cut_text(sentence, self.bert.tokenizer) if isinstance(sentence, str) else TagExample(tuple(sentence))


def load_head(folder: str | Path, bert: Bert | None = None, *, device: str = "auto") -> FeatureHead:
    """A head from its folder, on the model given or on the one that it names."""
    trained = load_trained_head(folder)
    if bert is None and not trained.recipe.model:
        raise BertkitError(f"{folder} does not say where its model is; give it: load_head(folder, bertkit.load(...))")
    return FeatureHead(bert or load(trained.recipe.model, device=device), trained)
