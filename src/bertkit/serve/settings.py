"""What the server allows: limits that keep it answering whatever comes, checked when made."""

from dataclasses import dataclass

from bertkit.errors import BertkitError

MOST_TEXTS = 1024  # of one request, whatever is allowed: the shapes of requests say so


@dataclass(frozen=True)
class ServeSettings:
    """Limits; times in seconds, sizes in bytes or tokens."""

    max_requests: int = 512  # being tokenized, waiting or computed at once; beyond, 429
    max_texts: int = 256  # of one request
    max_request_tokens: int = 65_536  # of one request
    max_body: int = 2_000_000
    deadline: float = 30.0  # from a request's arrival to its answer
    batch_tokens: int | None = None  # a batch; None: what the engine likes on this device
    tokenizer_threads: int = 2
    header_timeout: float = 20.0  # for a client to send the head of a request
    body_timeout: float = 30.0  # for a client to send its body
    answer_timeout: float = 60.0  # for a client to take its answer
    stall_timeout: float = 300.0  # a worker that has not answered a batch by then is replaced
    drain_wait: float = 0.5  # after SIGTERM requests are taken until none came for so long, each told to close
    drain_timeout: float = 60.0  # for those under way to be answered

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0 and name != "drain_wait":
                raise BertkitError(f"{name} is {value}; it must be above 0")
        if self.max_texts > MOST_TEXTS:
            raise BertkitError(f"max_texts is {self.max_texts}; a request may have {MOST_TEXTS} at most")
