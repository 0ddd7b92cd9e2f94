"""The short way to the routes that do the work: path to function, body to its shape, without FastAPI in between.

FastAPI describes these routes (the schema, /docs) and runs all others; resolving each of their calls would cost it
more than everything else that the server does for a request.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, get_type_hints

from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from bertkit.serve.refusals import Refusal

Endpoint = Callable[[Request, Any], Awaitable[Response]]
Explain = Callable[[Request, Exception], Awaitable[Response]]


class Direct:
    """An application whose POST routes are called straight away."""

    def __init__(self, app: FastAPI, routes: Iterable[Any], refused: Explain, not_understood: Explain) -> None:
        self.app, self.refused, self.not_understood = app, refused, not_understood
        self.table: dict[str, tuple[APIRoute, Endpoint, Any]] = {
            route.path: (route, route.endpoint, get_type_hints(route.endpoint)["body"])
            for route in routes
            if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.table.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None or not _is_json(scope):
            await self.app(scope, receive, send)
            return
        route, endpoint, shape = found
        scope["app"], scope["route"] = self.app, route
        request = Request(scope)
        try:
            body = shape.model_validate_json((await receive())["body"])
            response = await endpoint(request, body)
        except Refusal as refusal:
            response = await self.refused(request, refusal)
        except ValidationError as error:
            response = await self.not_understood(request, error)
        await response(scope, receive, send)


def _is_json(scope: Scope) -> bool:
    return any(name == b"content-type" and value.startswith(b"application/json") for name, value in scope["headers"])
