"""`bertkit serve`: models behind HTTP, with a page to try them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from bertkit.cli.options import MOST_AT_ONCE, DeviceOption
from bertkit.errors import BertkitError


def serve(
    models: Annotated[list[str], typer.Argument(help="Checkpoints, each SOURCE or NAME=SOURCE.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free; the log names it.")] = 8080,
    shared: Annotated[bool, typer.Option("--shared", help="All models in one process; else one each.")] = False,
    workers: Annotated[
        int, typer.Option(min=1, max=MOST_AT_ONCE, help="Processes for each model (or for all, if shared).")
    ] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_AT_ONCE, help="Of each process; the cores shared out, unless said.")
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds from a request to its answer.")] = 30.0,
    max_requests: Annotated[int, typer.Option(help="Under way at once; beyond, 429.")] = 512,
    max_texts: Annotated[int, typer.Option(help="Texts of one request.")] = 256,
    max_body: Annotated[int, typer.Option(help="Bytes of one request.")] = 2_000_000,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a batch; what suits the device, unless said.")
    ] = None,
    client_timeout: Annotated[
        float, typer.Option(help="Seconds for a client to send a request, and to take its answer.")
    ] = 30.0,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with one API key a line; or set BERTKIT_API_KEYS, separated by commas.")
    ] = None,
    device: DeviceOption = "auto",
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; what suits the device.")] = None,
) -> None:
    """Serve models over HTTP: vectors, labels, blanks, answers, entities, a page at /, and docs at /docs.

    Example: bertkit serve small-en sentiment-en entities-en answers-en
    """
    if not all(model.rpartition("=")[2] for model in models):
        raise BertkitError("a checkpoint to serve has an empty name; give SOURCE or NAME=SOURCE, such as small-en")
    if not client_timeout > 0:
        raise BertkitError(f"--client-timeout is {client_timeout}; it must be above 0")
    try:
        from bertkit.serve.server import ServePlan
        from bertkit.serve.server import serve as run
        from bertkit.serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise BertkitError(f"serving needs {error.name}: install it with pip install 'bertkit[serve]'") from None

    settings = ServeSettings(
        deadline=deadline,
        max_requests=max_requests,
        max_texts=max_texts,
        max_body=max_body,
        batch_tokens=batch_tokens,
        header_timeout=client_timeout,
        body_timeout=client_timeout,
        answer_timeout=client_timeout,
    )
    plan = ServePlan(
        tuple(models), host, port, shared, workers, device, dtype, threads, read_keys(api_key_file), settings
    )
    run(plan)


def read_keys(file: Path | None) -> tuple[str, ...]:
    """API keys from a file, or from the environment, where other users do not see them."""
    if file is None:
        return tuple(key.strip() for key in os.environ.get("BERTKIT_API_KEYS", "").split(",") if key.strip())
    try:
        keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    except OSError as error:
        raise BertkitError(f"cannot read the API keys of {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BertkitError(f"cannot read the API keys of {file}: it is not UTF-8; write one key a line") from None
    if not keys:
        raise BertkitError(f"{file} has no API key; write one a line")
    return keys
