"""`model.safetensors`: tensors by name <-> one file."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertkit.errors import BertkitError

METADATA = {"format": "pt"}  # transformers refuses files without it


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of this file, mapped, not read."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise BertkitError(f"{path} does not exist") from None
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise BertkitError(f"{path} is damaged or cut short ({reason[:160]}); fetch it again") from None


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors, which share no memory."""
    save_file(dict(tensors), path, metadata=METADATA)
