"""Where commands write: a place that cannot be is refused before any work is done, and what is read is never overwritten."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from bertkit.errors import BertkitError

Verb = TypeVar("Verb", bound=Callable[..., Any])


def path(text: str | Path) -> Path:
    """A file or folder as it was typed; an empty name is none, though pathlib would take it for the current folder."""
    if text == "":
        raise typer.BadParameter("the name is empty; '.' is the current folder")
    return Path(text)


def file(text: str) -> str:
    """A file to read, or - for standard input, as it was typed; an empty name is none here either."""
    path(text)
    return text


def with_paths(verb: Verb) -> Verb:
    """The same command; every file and folder that it is given goes through `path`."""
    for hint in get_type_hints(verb, include_extras=True).values():
        if get_origin(hint) is Annotated and Path in (hint.__origin__, *get_args(hint.__origin__)):
            hint.__metadata__[0].parser = path
    return verb


def check_file(*paths: Path | None) -> None:
    """Refuse a file whose folder is not there or is closed, and one that is a folder."""
    for path in paths:
        if path is not None and (why := _why_not(path)):
            raise BertkitError(f"cannot write {path}: {why}; choose another place")


def _why_not(path: Path) -> str:
    try:
        if path.is_dir():
            return os.strerror(errno.EISDIR)
        os.stat(os.path.join(path.parent, ""))  # the slash at its end: a file is no folder
        closed = not os.access(path if path.exists() else path.parent, os.W_OK)
    except OSError as error:
        return error.strerror or str(error)
    return os.strerror(errno.EACCES) if closed else ""


def check_folder(path: Path) -> None:
    """Refuse a folder that is a file, or lies in one, or in a folder that is closed."""
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise BertkitError(f"{path} cannot be written: {above} is a file; choose another folder")
    if not os.access(above, os.W_OK):
        raise BertkitError(f"{path} cannot be written: {os.strerror(errno.EACCES)}; choose another folder")


def check_apart(source: str | Path, output: Path | None) -> None:
    """Refuse to put results where the input lies: columns or rows of it could be lost."""
    if output is not None and output.exists() and Path(source).exists() and output.samefile(source):
        raise BertkitError(f"{output} is what is read; name another file with --output")
