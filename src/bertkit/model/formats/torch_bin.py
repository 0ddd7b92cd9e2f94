"""`pytorch_model.bin`: a pickle of tensors, read without running anything in it.

In: a file that torch.save wrote, in today's zip form or the older one, on whatever device. Out: tensors by name, on
the CPU. A pickle that asks for anything but tensors is refused before it gets it.
"""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bertkit.errors import BertkitError

ZIP_MAGIC = b"PK\x03\x04"
CHUNK = 2**22


def read_bin(path: Path) -> dict[str, Tensor]:
    """The tensors of this file; zip files are mapped, not read."""
    try:
        with path.open("rb") as file:
            is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles of other makers, which are refused below
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        damaged = _find_damaged_record(path) if is_zip else None
    except pickle.UnpicklingError as error:
        raise BertkitError(_refusal(path, str(error))) from None
    except FileNotFoundError:
        raise BertkitError(f"{path} does not exist") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise BertkitError(_damage(path, str(error) or type(error).__name__)) from None
    if not isinstance(loaded, Mapping):
        raise BertkitError(f"{path} holds a {type(loaded).__name__}, not tensors by name")
    if damaged:
        raise BertkitError(_damage(path, f"the checksum of its record {damaged} is wrong"))
    tensors = {str(name): tensor for name, tensor in loaded.items() if isinstance(tensor, Tensor)}
    if not tensors:
        raise BertkitError(f"{path} holds no tensors by name, but {', '.join(map(str, [*loaded][:5])) or 'nothing'}")
    return tensors


def _find_damaged_record(path: Path) -> str | None:
    """The first record whose bytes do not fit their checksum, which torch.load does not look at."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(archive.namelist(), key=lambda name: not name.endswith("/data.pkl"))
        for place, name in enumerate(names):
            try:
                with archive.open(name) as record:
                    while record.read(CHUNK):
                        pass
            except zipfile.BadZipFile:
                # PyTorch can be told to write no checksums; then the pickle, which was read well, has none either.
                return name if place else None
    return None


def write_bin(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors as torch.save does."""
    try:
        torch.save(dict(tensors), path)
    except RuntimeError as error:  # a full disk, in words of PyTorch's own zip writer
        raise OSError(f"PyTorch could not write {path.name} whole; is the disk full?") from error


def _refusal(path: Path, message: str) -> str:
    wanted = re.search(r"GLOBAL (\S+)", message)
    if wanted:
        what = f"asks for {wanted[1]}, which is code and not a tensor"
    else:
        what = "is damaged, or holds other things than tensors"
    return (
        f"{path} is a pickle that {what}; bertkit reads weights only, so nothing was run; "
        "get the weights as safetensors from a source that you trust"
    )


def _damage(path: Path, message: str) -> str:
    first = message.strip().splitlines()[0] if message.strip() else "no reason given"
    return f"{path} is damaged, cut short or no PyTorch file ({first[:160]}); fetch it again"
