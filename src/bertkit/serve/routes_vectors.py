"""Routes for vectors, labels and tokens, shaped as text-embeddings-inference has them; and OpenAI's /v1/embeddings."""

import base64
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic_core import to_json

from bertkit.serve.answers import PROBLEMS, as_list, joined, json_answer, problems, service_of, trace_of
from bertkit.serve.frames import Array
from bertkit.serve.reading import prepare_embed, prepare_embed_all, prepare_predict, prepare_tokenize, tokenize
from bertkit.serve.shapes import (
    EmbedAllRequest,
    EmbedRequest,
    OpenAIRequest,
    PredictRequest,
    SimilarityParameters,
    SimilarityRequest,
    TokenizeRequest,
)
from bertkit.serve.shapes_answers import OpenAIAnswer, OpenAIProblem, Score, Token

router = APIRouter(responses=PROBLEMS)
openai_router = APIRouter(responses=problems(OpenAIProblem))


def is_left(direction: str) -> bool:
    """Whether texts lose their beginning."""
    return direction.lower() == "left"


@router.post("/embed", responses={200: {"model": list[list[float]]}}, tags=["vectors"])
async def embed(request: Request, body: EmbedRequest) -> Response:
    """One vector a text."""
    service, trace = service_of(request), trace_of(request)
    details = (body.truncate, is_left(body.truncation_direction), body.normalize, body.dimensions)
    vectors = await service.perform(trace, body.model, "embed", prepare_embed, as_list(body.inputs), *details)
    return json_answer(trace, await service.write(vectors, lists_json))


def lists_json(vectors: list[Array]) -> bytes:
    """[[...], ...], every number exactly as it is."""
    return to_json([vector.tolist() for vector in vectors])


@router.post("/embed_all", responses={200: {"model": list[list[list[float]]]}}, tags=["vectors"])
async def embed_all(request: Request, body: EmbedAllRequest) -> Response:
    """One vector a token, special tokens included; a text must fit the model unless it may be truncated."""
    trace = trace_of(request)
    details = (as_list(body.inputs), body.truncate, is_left(body.truncation_direction))
    found = await service_of(request).perform(trace, body.model, "embed_all", prepare_embed_all, *details)
    return json_answer(trace, joined(found))


@router.post("/similarity", responses={200: {"model": list[float]}}, tags=["vectors"])
async def similarity(request: Request, body: SimilarityRequest) -> Response:
    """The cosine of one text with each of others."""
    service, trace, how = service_of(request), trace_of(request), body.parameters or SimilarityParameters()
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    details = (how.truncate, is_left(how.truncation_direction), True, None)
    first, *others = await service.perform(trace, body.model, "embed", prepare_embed, texts, *details)
    return json_answer(trace, to_json(np.clip(np.stack(others) @ first, -1.0, 1.0).tolist()))


@router.post("/predict", responses={200: {"model": list[Score] | list[list[Score]]}}, tags=["tasks"])
async def predict(request: Request, body: PredictRequest) -> Response:
    """Labels of a text or pair, best first; a list of them for a list of lists."""
    trace, many = trace_of(request), isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
    texts = [_one_or_two(one) for one in (body.inputs if many else [body.inputs])]
    details = (texts, body.truncate, is_left(body.truncation_direction), body.raw_scores)
    found = await service_of(request).perform(trace, body.model, "predict", prepare_predict, *details)
    return json_answer(trace, joined(found) if many else found[0].encode())


def _one_or_two(text: str | list[str] | list[list[str]]) -> tuple[str, str | None]:
    if isinstance(text, str):
        return text, None
    first, *rest = map(str, text)
    return first, rest[0] if rest else None


@router.post("/tokenize", responses={200: {"model": list[list[Token]]}}, tags=["vectors"])
async def tokenize_texts(request: Request, body: TokenizeRequest) -> Response:
    """The tokens of each text, with the characters they stand for: text[start:stop]."""
    service, trace, texts = service_of(request), trace_of(request), as_list(body.inputs)
    async with service.admitted(trace, body.model, "tokenize") as model:
        service.note(trace, await service.in_thread(trace, prepare_tokenize, model, texts))
        tokens = await service.in_thread(trace, tokenize, model, texts, body.add_special_tokens)
    return json_answer(trace, tokens)


@openai_router.post("/v1/embeddings", responses={200: {"model": OpenAIAnswer}}, tags=["vectors"])
async def openai_embeddings(request: Request, body: OpenAIRequest) -> Response:
    """One vector of length 1 a text, as OpenAI's client expects; `model` is one that is served here."""
    service, trace = service_of(request), trace_of(request)
    details = (None, False, True, body.dimensions)
    vectors = await service.perform(trace, body.model, "embed", prepare_embed, as_list(body.input), *details)
    usage = {"prompt_tokens": trace.num_tokens, "total_tokens": trace.num_tokens}
    answer = {"object": "list", "model": trace.model, "usage": usage}
    write = partial(openai_json, answer, as_base64=body.encoding_format == "base64")
    return json_answer(trace, await service.write(vectors, write))


def openai_json(answer: dict[str, Any], vectors: list[Array], *, as_base64: bool) -> bytes:
    """The answer with its vectors, as numbers or as base64 of little-endian float32."""

    def told(vector: Array) -> str | list[float]:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector.tolist()

    data = [{"object": "embedding", "embedding": told(vector), "index": i} for i, vector in enumerate(vectors)]
    return to_json({**answer, "data": data})
