"""The real task files, unpacked from the data folder; a test that wants them is skipped where it is not there."""

import os
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def unpack(name: str, folder: Path) -> Path:
    """Unpack one archive of the data folder's tasks."""
    data = Path(os.environ.get("BERTKIT_DATA", ROOT.parent / "shared" / "data"))
    archive = data / "tasks" / f"{name}.tar.xz"
    if not archive.is_file():
        pytest.skip(f"no {archive.name}; set BERTKIT_DATA to a data folder with tasks/")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / name
