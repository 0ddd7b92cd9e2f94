"""What answers and refusals look like, route by route; requests are in shapes.py."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Score(BaseModel):
    """A label with its probability (or raw score)."""

    score: float
    label: str


class Token(BaseModel):
    """A token and its characters in the text; special tokens stand nowhere."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Candidate(BaseModel):
    """A token for a blank."""

    token: str
    token_id: int
    probability: float


class Mask(BaseModel):
    """A [MASK], text[start:end], and the best tokens for it."""

    start: int
    end: int
    candidates: list[Candidate]


class NextSentence(BaseModel):
    """The probability that the second text follows the first."""

    probability: float


class Span(BaseModel):
    """A stretch of the context: context[start:end] == text."""

    text: str
    start: int
    end: int
    score: float
    confidence: float


class Answer(Span):
    """The best stretch; an empty text means that the context does not tell."""

    no_answer_score: float
    runners_up: list[Span]
    num_windows: int = Field(description="More than 1: the context was long, and all of it was searched.")
    num_cut: int = Field(description="Tokens of a long question that were left out.")


class Entity(BaseModel):
    """text[start:end] of the input."""

    kind: str
    text: str
    start: int
    end: int
    confidence: float


class Word(BaseModel):
    """A word of the input with its tag (BIO)."""

    text: str
    start: int
    end: int
    tag: str


class Entities(BaseModel):
    """What was found in one text."""

    entities: list[Entity]
    words: list[Word]
    num_windows: int


class Use(BaseModel):
    """Where a word was found, and its pieces."""

    word: str
    text: str
    start: int
    end: int
    pieces: list[str]


class Space(BaseModel):
    """One kind of vector: the cosine of every two uses, and the two directions in which they differ most."""

    name: str
    cosines: list[list[float]]
    points: list[list[float]]
    shares: list[float] = Field(description="Of the variance that each direction holds.")


class Words(BaseModel):
    """Uses by their fixed vectors and by their contextual ones."""

    uses: list[Use]
    fixed: Space
    contextual: Space
    notes: list[str]


class AttentionToken(BaseModel):
    """A token of the text (segment 0) or of its pair (segment 1)."""

    text: str
    segment: int


class Attention(BaseModel):
    """weights[l][h][i][j]: how much token i takes from token j in layer layers[l], head heads[h], counted from 1; rows sum to 1."""

    tokens: list[AttentionToken]
    layers: list[int]
    heads: list[int]
    weights: list[list[list[list[float]]]]


class OpenAIVector(BaseModel):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str
    index: int


class Usage(BaseModel):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class OpenAIAnswer(BaseModel):
    """Vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[OpenAIVector]
    model: str
    usage: Usage


class ModelInfo(BaseModel):
    """A served model and what it can do."""

    name: str
    can: list[str] = Field(description="Routes that this model answers.")
    labels: list[str]
    hidden_size: int
    num_layers: int
    num_heads: int
    max_input_length: int
    vocab_size: int
    lowercase: bool
    pooling: str
    device: str
    engine: str = Field(description="What computes: torch; onnx or int8 where the folder was exported so.")


class Info(BaseModel):
    """The server, as text-embeddings-inference tells it, and every model."""

    model_id: str
    model_sha: str | None = None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None = None
    max_client_batch_size: int
    auto_truncate: bool = False
    tokenization_workers: int
    version: str
    sha: str | None = None
    docker_label: str | None = None
    models: list[ModelInfo]


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    error_type: str


class OpenAIDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIProblem(BaseModel):
    """Why a request was refused, as OpenAI's client reads it."""

    error: OpenAIDetail
