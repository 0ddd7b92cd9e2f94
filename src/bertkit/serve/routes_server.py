"""Routes about the server itself: what it serves, whether it is well, its figures."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic_core import to_json

import bertkit
from bertkit.serve.answers import problems, service_of, trace_of
from bertkit.serve.models import ServedModel
from bertkit.serve.refusals import Refusal
from bertkit.serve.shapes_answers import Info, ModelInfo, OpenAIProblem, Problem

router = APIRouter(tags=["server"])
NEED_KEY = problems(Problem, [401])


@router.get("/info", response_model=Info, responses=NEED_KEY)
async def info(request: Request) -> Info:
    """The server and its models; the first of them in TEI's fields, or the one that the path names."""
    service = service_of(request)
    first, settings = service.models.named(trace_of(request).wanted), service.settings
    return Info(
        model_id=first.name,
        model_dtype=first.facts.dtype,
        model_type=_type_of(first),
        max_concurrent_requests=settings.max_requests,
        max_input_length=first.facts.embed_limit,
        max_batch_tokens=first.dispatcher.batch_tokens,
        max_client_batch_size=settings.max_texts,
        tokenization_workers=settings.tokenizer_threads,
        version=bertkit.__version__,
        models=[model.info() for model in service.models],
    )


def _type_of(model: ServedModel) -> dict[str, object]:
    if "predict" in model.facts.can:
        named = list(enumerate(model.facts.labels))
        return {"classifier": {"id2label": {str(i): n for i, n in named}, "label2id": {n: i for i, n in named}}}
    return {"embedding": {"pooling": model.facts.pooling}}


@router.get("/models", response_model=list[ModelInfo], responses=NEED_KEY)
async def models(request: Request) -> list[ModelInfo]:
    """Every model; /models/NAME/embed and so on ask one of them."""
    return [model.info() for model in service_of(request).models]


@router.get("/v1/models", responses=problems(OpenAIProblem, [401]))
async def openai_models(request: Request) -> Response:
    """The same as OpenAI's client lists them."""
    told = [
        {"id": model.name, "object": "model", "created": 0, "owned_by": "bertkit"}
        for model in service_of(request).models
    ]
    return Response(to_json({"object": "list", "data": told}), media_type="application/json")


@router.head("/health", include_in_schema=False)
@router.get("/health", response_class=Response, responses={503: {"model": Problem}})
async def health(request: Request) -> Response:
    """200 when every model can answer, 503 while a worker is away or the server is stopping."""
    service_of(request).models.named(trace_of(request).wanted)
    if not service_of(request).is_up:
        raise Refusal(503, "unhealthy", "not ready: a worker is starting, or the server is stopping")
    return Response()


@router.get("/metrics", response_class=PlainTextResponse, responses=NEED_KEY)
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
