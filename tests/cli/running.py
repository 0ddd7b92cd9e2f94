"""Commands as people run them: inside this process where that is enough, as a program of its own where it is not."""

import io
import json
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from bertkit.cli.main import app, main


def run(*arguments: str, stdin: bytes | None = None) -> tuple[str, str]:
    """What a command that succeeds writes to standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def run_json(*arguments: str) -> Any:
    """The JSON document of a command that succeeds."""
    return json.loads(run(*arguments, "--json")[0])


def refusal(*arguments: str) -> str:
    """The one line with which the program's own entry refuses; nothing else is written, and the exit code is 2."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["bertkit", *arguments]),
        patch.object(warnings, "showwarning", warnings.showwarning),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    assert out.getvalue() == ""
    return refused(stopped.value.code, err.getvalue())


def refused(exit_code: Any, stderr: str) -> str:
    """The one line of a program that refused."""
    assert exit_code == 2, stderr
    assert stderr.startswith("bertkit: ")
    (line,) = stderr.splitlines()
    return line


def spawn(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A program of its own, to its end."""
    return subprocess.run(command(*arguments), input=stdin, env=environment(), capture_output=True, check=False)


def command(*arguments: str) -> list[str]:
    """What to start."""
    return [sys.executable, "-m", "bertkit.cli.main", *arguments]


def environment() -> dict[str, str]:
    """No model from outside, no network, and one thread, which is quicker for small models."""
    kept = {name: value for name, value in os.environ.items() if name != "BERTKIT_MODEL"}
    return kept | {"OMP_NUM_THREADS": "1", "HF_ENDPOINT": "http://127.0.0.1:9", "COLUMNS": "160"}


def rows(shown: str) -> list[list[str]]:
    """The cells of a printed table, its heading left out."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
