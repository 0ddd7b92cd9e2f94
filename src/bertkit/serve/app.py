"""The application: routes, the page, errors in one shape, and the guard around all."""

from collections.abc import Iterable, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import bertkit
from bertkit.serve import routes_server, routes_tasks, routes_vectors
from bertkit.serve.answers import trace_of
from bertkit.serve.direct import Direct
from bertkit.serve.docs_page import docs_html
from bertkit.serve.guard import Guard, Keys
from bertkit.serve.page import page_routes
from bertkit.serve.refusals import Refusal, invalid, too_large
from bertkit.serve.service import Service
from bertkit.serve.settings import MOST_TEXTS

DESCRIPTION = """BERT behind HTTP: vectors, labels, blanks, answers, entities.

Where several models are served, `/models/NAME/embed` and so on ask the model NAME, as the field `model` does.
Answers tell in their headers how many texts were cut (`x-bertkit-truncated`) or read in windows
(`x-bertkit-windows`), the tokens read (`x-compute-tokens`) and where the time went, in milliseconds."""


WORKING = (routes_vectors.router, routes_vectors.openai_router, routes_tasks.router)  # those that ask a model


def create_app(service: Service, keys: Iterable[str] = ()) -> ASGIApp:
    """All routes over these models; with keys, only who bears one is answered."""
    app = create_routes(service)
    direct = Direct(app, [route for router in WORKING for route in router.routes], _refused, _not_understood)
    return Guard(direct, service, Keys(keys))


def create_routes(service: Service) -> FastAPI:
    """The routes alone, with their OpenAPI schema."""
    app = FastAPI(
        title="bertkit",
        version=bertkit.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # /models/NAME/embed/ would be sent on to /embed, which is another model's
    )
    app.state.service = service
    for router in (*WORKING, routes_server.router):
        app.include_router(router)
    app.add_api_route("/docs", _docs, methods=["GET"], include_in_schema=False)
    app.router.routes.extend(page_routes())
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _failed)
    return app


async def _docs(request: Request) -> HTMLResponse:
    """Every route with an example that can be sent."""
    return HTMLResponse(docs_html(request.app.openapi()))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    body = to_json(error.body(request.url.path))
    return Response(body, error.status, headers=error.headers, media_type="application/json")


async def _not_understood(request: Request, error: Exception) -> Response:
    """What is wrong and where; what the client sent is not repeated."""
    assert isinstance(error, RequestValidationError | ValidationError)
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return await _refused(request, Refusal(400, "validation", "the body is no valid JSON in UTF-8"))
    if any(problem["type"] == "too_long" and problem["ctx"]["max_length"] == MOST_TEXTS for problem in problems):
        return await _refused(request, too_large(f"a request may have {MOST_TEXTS} texts at most; send several"))
    # FastAPI puts "body" before each place; pydantic alone does not.
    skipped = 1 if isinstance(error, RequestValidationError) else 0
    return await _refused(
        request, invalid(explain([(problem["loc"][skipped:], problem["msg"]) for problem in problems]))
    )


def explain(problems: Sequence[tuple[tuple[int | str, ...], str]]) -> str:
    """The first field that is wrong, and everything that it could have been instead; nothing that was sent."""
    places = [tuple(part for part in place if not _is_kind(part)) for place, _ in problems]
    first = places[0]
    if not first:
        return "the body must be a JSON object, with the header content-type: application/json"
    told = [message for (_, message), place in zip(problems, places, strict=True) if place[: len(first)] == first]
    return f"{'.'.join(map(str, first))!a}: {' or: '.join(dict.fromkeys(told))}"


def _is_kind(part: int | str) -> bool:
    """Whether a part of a place is no field but one of the kinds that a field may be of, as pydantic writes them."""
    return isinstance(part, str) and (part == "str" or part.startswith("list["))


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    kinds = {
        404: ("not_found", "there is no such route; see /docs"),
        405: ("method", f"this route takes {headers.get('Allow', 'other methods')} and no {request.method}"),
    }
    kind, message = kinds.get(error.status_code, ("http", "the request cannot be answered"))
    return await _refused(request, Refusal(error.status_code, kind, message, headers))


async def _failed(request: Request, error: Exception) -> Response:
    """A bug: the guard sees it next and writes it to the log."""
    message = f"something went wrong here; the log has it as {trace_of(request).id}"
    return await _refused(request, Refusal(500, "internal", message))
