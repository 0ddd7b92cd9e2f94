"""What requests look like, route by route (answers: shapes_answers.py); the OpenAPI schema and its examples.

/embed, /embed_all, /similarity, /predict, /tokenize and /info are shaped as text-embeddings-inference has them.
Every request may name a `model` that is served; without one, the first model that can do the task answers.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bertkit.serve.settings import MOST_TEXTS

Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)]
Inputs = str | Annotated[list[str | Ids], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)] | Ids
Texts = str | Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]
Direction = Literal["Left", "Right", "left", "right"]
Count = Annotated[int, Field(ge=1, le=100)]


class Part(BaseModel):
    """Of a request. Nothing is guessed: "yes" is no boolean and true no number; unknown fields are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Request(Part):
    """What every request may say."""

    model: str | None = Field(None, max_length=200, description="One of GET /models; the first that can, if left out.")


class Cutting(Request):
    """What to do with texts that have more tokens than the model has positions."""

    truncate: bool | None = Field(
        None,
        description="true: cut, and told in the header x-bertkit-truncated. false: refused with 413. Left out: vectors "
        "are of the whole text, in windows where it is long (header x-bertkit-windows); labels are given as in "
        "fine-tuning; /embed_all refuses.",
    )
    truncation_direction: Direction = Field("Right", description="Which end is cut; Left keeps whole words.")


INPUTS: Any = Field(
    description="A text or many; in place of a text also its token ids, with those of [CLS] and [SEP], as /tokenize "
    "gives them."
)


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Bodies that work as they stand, for the OpenAPI schema."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


class EmbedRequest(Cutting):
    """Texts to one vector each."""

    model_config = examples({"inputs": "What is deep learning?"}, {"inputs": ["The dog sleeps.", "A cat is asleep."]})

    inputs: Inputs = INPUTS
    normalize: bool = Field(True, description="Vectors of length 1.")
    dimensions: int | None = Field(None, ge=1, description="The first numbers of each vector alone.")
    prompt_name: None = Field(None, description="Not used: BERT has no prompts.")


class EmbedAllRequest(Cutting):
    """Texts to one vector a token."""

    model_config = examples({"inputs": "My dog is cute"})

    inputs: Inputs = INPUTS
    prompt_name: None = None


class SimilarityInput(Part):
    """One text and those that it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]


class SimilarityParameters(Part):
    """As in the other routes."""

    truncate: bool | None = None
    truncation_direction: Direction = "Right"
    prompt_name: None = None


class SimilarityRequest(Request):
    """One text compared with others: cosines."""

    model_config = examples(
        {"inputs": {"source_sentence": "The dog sleeps.", "sentences": ["A cat is asleep.", "Stocks fell."]}}
    )

    inputs: SimilarityInput
    parameters: SimilarityParameters | None = None


class PredictRequest(Cutting):
    """A text, a pair of texts (a flat list of two), or many of either (a list of lists)."""

    model_config = examples({"inputs": "Amazing movie"}, {"inputs": [["Amazing movie"], ["I walked out"]]})

    inputs: str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1, max_length=MOST_TEXTS)]
    raw_scores: bool = Field(False, description="What the head says, before softmax or sigmoid.")


class TokenizeRequest(Request):
    """Texts to tokens."""

    model_config = examples({"inputs": "My dog is playing"})

    inputs: Texts
    add_special_tokens: bool = True
    prompt_name: None = None


class OpenAIRequest(Request):
    """Texts to vectors of length 1, as OpenAI's client asks."""

    model_config = examples({"input": ["The dog sleeps.", "A cat is asleep."]})

    input: Inputs = INPUTS
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = Field(None, description="Not used, not logged.")


class FillMaskRequest(Request):
    """Texts with [MASK] to the best tokens for each."""

    model_config = examples({"inputs": "The man went to the [MASK].", "top_k": 5})

    inputs: Texts
    top_k: Count = 5
    candidates: Annotated[list[str], Field(min_length=1, max_length=100)] | None = Field(
        None, description="Rank these alone; each must be one token of the vocabulary."
    )


class NextSentenceRequest(Request):
    """A pair, or many."""

    model_config = examples({"inputs": ["The man went to the store.", "He bought a gallon of milk."]})

    inputs: Pair | Annotated[list[Pair], Field(min_length=1, max_length=MOST_TEXTS)]


class AnswerRequest(Request):
    """A question and the text that may answer it, of any length."""

    model_config = examples({"question": "Who likes playing?", "context": "My dog is cute. He likes playing."})

    question: str
    context: str
    top_k: Count = Field(5, description="The answer and its runners-up.")
    max_answer_tokens: Count = 30
    no_answer_threshold: float | None = Field(None, description="The checkpoint's own, if left out.")


class EntitiesRequest(Request):
    """Texts of any length to their named entities."""

    model_config = examples({"inputs": "Tom deserves a summer in New York city"})

    inputs: Texts


class WordInput(Part):
    """A word and a sentence that has it."""

    word: Annotated[str, Field(min_length=1)]
    text: str


class WordsRequest(Request):
    """Uses of words to their vectors' cosines and a map."""

    model_config = examples(
        {
            "inputs": [
                {"word": "fair", "text": "He didn't receive fair treatment"},
                {"word": "fair", "text": "Fun fair in New York city this summer"},
                {"word": "unbiased", "text": "Tom deserves unbiased judgement"},
            ]
        }
    )

    inputs: Annotated[list[WordInput], Field(min_length=1, max_length=64)]
    layer: Annotated[int, Field(ge=-1000, le=1000)] | None = Field(
        None,
        description="0 for the embeddings, 1 and up, -1 for the last; the upper third averaged, if left out.",
    )


class AttentionRequest(Request):
    """A text or a pair to its attention weights."""

    model_config = examples(
        {"inputs": "My dog is cute"}, {"inputs": ["My dog is cute", "he likes playing"], "layer": 1}
    )

    inputs: str | OneOrTwo
    layer: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="One layer alone, from 1.")
    head: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="One head alone, from 1.")
