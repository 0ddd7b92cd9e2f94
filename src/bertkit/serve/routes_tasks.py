"""Routes that no embedding server has: blanks, next sentences, answers, entities, words, attention."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bertkit.serve import shapes, shapes_answers
from bertkit.serve.answers import PROBLEMS, as_list, joined, json_answer, service_of, trace_of
from bertkit.serve.reading import (
    prepare_answer,
    prepare_attention,
    prepare_entities,
    prepare_fill_mask,
    prepare_next_sentence,
    prepare_words,
)

router = APIRouter(responses=PROBLEMS, tags=["tasks"])


@router.post("/fill-mask", responses={200: {"model": list[list[shapes_answers.Mask]]}})
async def fill_mask(request: Request, body: shapes.FillMaskRequest) -> Response:
    """The best tokens for each [MASK] of each text."""
    trace, details = trace_of(request), (as_list(body.inputs), body.top_k, body.candidates)
    found = await service_of(request).perform(trace, body.model, "fill_mask", prepare_fill_mask, *details)
    return json_answer(trace, joined(found))


@router.post("/next-sentence", responses={200: {"model": list[shapes_answers.NextSentence]}})
async def next_sentence(request: Request, body: shapes.NextSentenceRequest) -> Response:
    """For each pair, the probability that its second text follows the first; one pair is a list of one."""
    trace = trace_of(request)
    pairs = body.inputs if isinstance(body.inputs[0], list) else [body.inputs]
    found = await service_of(request).perform(trace, body.model, "next_sentence", prepare_next_sentence, pairs)
    return json_answer(trace, joined(found))


@router.post("/answer", responses={200: {"model": shapes_answers.Answer}})
async def answer(request: Request, body: shapes.AnswerRequest) -> Response:
    """The stretch of the context that answers the question, and the next best."""
    trace = trace_of(request)
    options = body.model_dump(include={"top_k", "max_answer_tokens", "no_answer_threshold"})
    details = (body.question, body.context, options)
    found = await service_of(request).perform(trace, body.model, "answer", prepare_answer, *details)
    return json_answer(trace, found[0].encode())


@router.post("/entities", responses={200: {"model": list[shapes_answers.Entities]}})
async def entities(request: Request, body: shapes.EntitiesRequest) -> Response:
    """The named entities of each text, and every word with its tag."""
    trace = trace_of(request)
    found = await service_of(request).perform(trace, body.model, "entities", prepare_entities, as_list(body.inputs))
    return json_answer(trace, joined(found))


@router.post("/words", responses={200: {"model": shapes_answers.Words}})
async def words(request: Request, body: shapes.WordsRequest) -> Response:
    """Uses of words compared: by each word's fixed vector, and by its vector in its sentence."""
    trace, uses = trace_of(request), [use.model_dump() for use in body.inputs]
    found = await service_of(request).perform(trace, body.model, "words", prepare_words, uses, body.layer)
    return json_answer(trace, found[0].encode())


@router.post("/attention", responses={200: {"model": shapes_answers.Attention}})
async def attention(request: Request, body: shapes.AttentionRequest) -> Response:
    """How much each token looks at each other, by layer and head."""
    trace = trace_of(request)
    a, b = (body.inputs, None) if isinstance(body.inputs, str) else (*body.inputs, None)[:2]
    details = (a, b, body.layer, body.head)
    found = await service_of(request).perform(trace, body.model, "attention", prepare_attention, *details)
    return json_answer(trace, found[0].encode())
