"""A worker process of jobs.py: reads jobs from a pipe, answers with progress and results, ends when the pipe does."""

import signal
import sys
from multiprocessing.connection import Connection

from bertkit.errors import BertkitError
from bertkit.studies.jobs import Job, run_job


def serve(connection: Connection) -> None:
    """One job after another."""
    while True:
        job: Job = connection.recv()
        try:
            answer = ("done", run_job(job, lambda share: connection.send(("progress", share))))
        except BertkitError as error:
            answer = ("refused", str(error))
        connection.send(answer)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it, and ends this one
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):  # nobody listens any more
        sys.exit(0)
