"""Answers as bytes, with the headers that tell what they took, and what FastAPI needs to know of a route."""

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

from bertkit.serve.service import Service, Trace
from bertkit.serve.shapes_answers import Problem

DESCRIPTIONS = {
    400: "No valid JSON",
    401: "No valid API key",
    404: "No such model, or none that can do this",
    408: "The body came too slowly",
    413: "Too large, too many or too long",
    422: "The request makes no sense",
    429: "Too many requests wait; the header Retry-After says when to come again",
    500: "Something went wrong here",
    503: "The server was stopped meanwhile",
    504: "Not answered before the deadline",
}


def problems(shape: type[BaseModel], statuses: Iterable[int] = tuple(DESCRIPTIONS)) -> dict[int | str, dict[str, Any]]:
    """What a route may answer instead, for its schema."""
    told: dict[int | str, dict[str, Any]] = {
        status: {"model": shape, "description": DESCRIPTIONS[status]} for status in statuses
    }
    if 429 in told:
        told[429]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return told


PROBLEMS = problems(Problem)


def service_of(request: Request) -> Service:
    """What the application was made with."""
    found: Service = request.app.state.service
    return found


def trace_of(request: Request) -> Trace:
    """What the guard began."""
    found: Trace = request.state.trace
    return found


class JsonAnswer(Response):
    """A body that is JSON already, with headers that need no second look."""

    media_type = "application/json"

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        self.body, self.status_code, self.background = body, 200, None
        told = {**headers, "content-length": str(len(body)), "content-type": "application/json"}
        self.raw_headers = [(name.encode(), value.encode()) for name, value in told.items()]


def json_answer(trace: Trace, body: bytes) -> Response:
    """JSON with text-embeddings-inference's headers (milliseconds), and ours about what was cut or split."""
    ms = {stage: f"{1000 * seconds:.2f}" for stage, seconds in trace.seconds.items()}
    headers = {
        "x-compute-tokens": str(trace.num_tokens),
        "x-total-time": f"{1000 * (trace.deadline - trace.left()):.2f}",
        "x-tokenization-time": ms.get("tokenize", "0"),
        "x-queue-time": ms.get("queue", "0"),
        "x-inference-time": ms.get("compute", "0"),
        "x-bertkit-model": trace.model,
        "x-bertkit-truncated": str(trace.num_truncated),
        "x-bertkit-windows": str(trace.num_windowed),
    }
    return JsonAnswer(body, headers)


def joined(parts: Sequence[str]) -> bytes:
    """JSON texts as one JSON list."""
    return f"[{','.join(parts)}]".encode()


def as_list(texts: str | list[Any]) -> list[Any]:
    """One text, or the token ids of one, is a list of one."""
    return [texts] if isinstance(texts, str) or isinstance(texts[0], int) else texts
