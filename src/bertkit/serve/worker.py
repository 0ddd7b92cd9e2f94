"""A worker process: models on one side of a socket, batches in, results out, one after another; long texts beside them.

Started by the server as `python -m bertkit.serve.worker FD`. It ends when the server's end of the socket closes, so
none is left behind, and leaves signals to the server, which finishes what is under way first.
"""

import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from bertkit.errors import BertkitError, LongTextWarning
from bertkit.serve.frames import Message, receive, to_frame
from bertkit.serve.logs import log, where

if TYPE_CHECKING:
    from bertkit.inference.bert import Bert


def main() -> None:
    """Load, say what was loaded, then answer batches until the server hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(ConnectionError):  # the server has gone meanwhile: nobody is left to be told
        work_for(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # nobody waits for a long text any more, and a thread at work must not meet an interpreter that ends


def work_for(connection: socket.socket) -> None:
    """All that the server at the other end wants, until it hangs up."""
    first = receive(connection)
    if first is None:
        return
    try:
        berts = open_models(first[0])
    except BertkitError as error:
        connection.sendall(to_frame({"error": str(error)}))
        return
    from bertkit.serve.describing import describe

    sources = dict(first[0]["models"])
    connection.sendall(to_frame({"models": {name: describe(bert, sources[name]) for name, bert in berts.items()}}))
    answer_all(connection, berts)


def open_models(plan: Message) -> dict[str, "Bert"]:
    """Every model of this process by name."""
    import torch

    from bertkit.inference.loading import load

    warnings.simplefilter("ignore", LongTextWarning)  # told in the answers instead
    warnings.showwarning = lambda message, *_, **__: log("warning", "load", message=" ".join(str(message).split()))
    torch.set_num_threads(plan["threads"])
    berts = {name: load(source, device=plan["device"], dtype=plan["dtype"]) for name, source in plan["models"]}
    for bert in berts.values():
        for num_texts in (1, 16, 4):  # first calls are slow and take memory, and no client should wait for them
            bert.embed(["warm " * 60] * num_texts)
    return berts


def answer_all(connection: socket.socket, berts: Mapping[str, "Bert"]) -> None:
    """Answer batches until the server hangs up; a long text is computed in a thread, so that short ones go on meanwhile."""
    turn, long = threading.Lock(), SimpleQueue[Message]()

    def work(batch: Message) -> None:
        frame = answer(berts, batch)
        with turn:
            connection.sendall(frame)

    def work_long() -> None:
        try:
            while True:
                work(long.get())
        except ConnectionError:  # as in `main`
            os._exit(0)
        except Exception as error:  # who waits for this thread would wait for ever: the server starts another process
            log("error", "worker-failed", reason=where(error))
            os._exit(1)

    threading.Thread(target=work_long, daemon=True).start()
    while (got := receive(connection)) is not None:
        if got[0]["long"]:
            long.put(got[0])
        else:
            work(got[0])


def answer(berts: Mapping[str, "Bert"], batch: Message) -> bytes:
    """A batch's results as one frame: arrays, JSON texts and refusals, each in its place."""
    from bertkit.serve.compute import Refused, Text, run_batch

    start = time.perf_counter()
    results = run_batch(berts[batch["model"]], batch["kind"], batch["options"], batch["inputs"])
    told: list[Any] = []
    arrays = []
    for result in results:
        if isinstance(result, Text):
            told.append({"json": result.json, "cut": result.num_cut})
        elif isinstance(result, Refused):
            told.append({"error": result.message, "type": result.kind})
        else:
            told.append(None)
            arrays.append(result)
    seconds = time.perf_counter() - start
    return to_frame({"id": batch["id"], "results": told, "seconds": seconds}, arrays)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
