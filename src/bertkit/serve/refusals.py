"""Why a request is not answered: a status, a type and one line, in the shape of the route's family."""

from typing import Any


class Refusal(Exception):  # noqa: N818 - it is told to the client, not raised at a caller
    """Told to the client as {"error", "error_type"}, or as OpenAI's client expects under /v1."""

    def __init__(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, headers or {}

    def body(self, path: str) -> dict[str, Any]:
        """What the client reads."""
        if path.startswith("/v1/"):
            return {"error": {"message": self.message, "type": self.kind, "param": None, "code": self.kind}}
        return {"error": self.message, "error_type": self.kind}


def invalid(message: str) -> Refusal:
    """The request makes no sense."""
    return Refusal(422, "validation", message)


def too_large(message: str) -> Refusal:
    """More than is allowed."""
    return Refusal(413, "too_large", message)


def overloaded(seconds: float) -> Refusal:
    """Come again in so many seconds."""
    wait = str(max(1, round(seconds)))
    return Refusal(429, "overloaded", f"too many requests are waiting; try again in {wait} s", {"retry-after": wait})


def stopped() -> Refusal:
    """The server ends before the answer."""
    return Refusal(503, "stopped", "the server was stopped before it could answer; send this again when it is back")


def out_of_time(deadline: float) -> Refusal:
    """The deadline passed."""
    return Refusal(504, "timeout", f"not answered within {deadline:g} s; send fewer or shorter texts, or try again")
