"""The real task files, unpacked from the data folder; a test that wants them is skipped where it is not there."""

import tarfile
from pathlib import Path

import pytest

from tests.tokenizer.strings import DATA


def unpack(name: str, folder: Path) -> Path:
    """Unpack one archive of the data folder's tasks."""
    archive = DATA / "tasks" / f"{name}.tar.xz"
    if not archive.is_file():
        pytest.skip(f"no {archive.name}; set BERTKIT_DATA to a data folder with tasks/")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / name
