"""The page to try every model: its files, read once, and the routes that give them out.

No request opens a file: names are looked up in a table. The headers let the page load and ask nothing but its own host.
"""

import hashlib
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # asked for again each time, and answered by 304 while it is the same
}


def page_routes() -> list[Route]:
    """The page at /, and its parts at /page/...; open to all, since the key is typed into the page."""
    routes = []
    shared = resources.files("bertkit.pages").joinpath("parts")  # what the pages of one file each have, too
    for file in (*resources.files(__package__).iterdir(), *shared.iterdir()):
        ending = file.name.rpartition(".")[2]
        if ending in MEDIA_TYPES:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            routes.append(_route(path, file.read_bytes(), MEDIA_TYPES[ending]))
    return routes


def _route(path: str, content: bytes, media_type: str) -> Route:
    mark = f'"{hashlib.sha256(content).hexdigest()[:20]}"'

    async def give(request: Request) -> Response:
        headers = {**HEADERS, "ETag": mark}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return Route(path, give, methods=["GET"], include_in_schema=False)
