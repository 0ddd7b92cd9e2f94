"""A worker process of `bertkit prepare`: takes jobs from its pipe and answers, until the pipe closes.

Started as a program of its own, so that no caller's script is imported again; when the parent dies, it ends.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any

from bertkit.corpus.prepare.jobs import Jobs, Progress
from bertkit.errors import BertkitError
from bertkit.tokenizer.wordpiece import Tokenizer


def serve(connection: Connection) -> None:
    """Answer jobs until the parent closes the pipe or is gone."""
    folder, work, options = connection.recv()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parent loaded the same tokenizer and has said what there is to say
        tokenizer = Tokenizer.load(work / "tokenizer")
    jobs = Jobs(tokenizer, options, folder, work)
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_answer(jobs, name, arguments, lambda count: connection.send(("progress", count))))


def _answer(jobs: Jobs, name: str, arguments: tuple[Any, ...], progress: Progress) -> tuple[str, Any]:
    try:
        return "done", getattr(jobs, name)(*arguments, progress)
    except BertkitError as error:
        return "refused", str(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        return "failed", (error.errno, error.strerror, error.filename)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who closes the pipe
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):
        os._exit(1)  # the parent is gone, perhaps in the middle of a message, and with it the reason to finish anything
