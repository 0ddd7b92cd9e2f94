"""What loading found, in plain words for people and as JSON for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from bertkit.model.config import Head

MAX_NAMES = 4  # of ignored tensors shown to people


@dataclass(frozen=True)
class LoadReport:
    """What was found in a checkpoint, what is new in the model, what was left in the file."""

    source: str
    format: str
    files: tuple[str, ...]
    dtypes: tuple[str, ...]  # as stored
    num_tensors: int  # read into the model, by the file's count
    num_parameters: int  # of the model, new heads included
    heads: tuple[Head, ...]  # found in the file and loaded
    new: tuple[str, ...] = ()  # heads that the file does not have, freshly initialised as asked
    ignored: tuple[str, ...] = ()  # tensors of the file that the model has no place for
    broken: tuple[str, ...] = ()  # tensors that hold NaN or infinite values in the file
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """A few lines for people."""
        files = self.files[0] if len(self.files) == 1 else f"{self.files[0]} and {len(self.files) - 1} more"
        lines = [
            f"read {files} ({self.format}, {' and '.join(self.dtypes)}): {self.num_tensors} tensors",
            f"the model has {self.num_parameters:,} parameters; heads from the file: {', '.join(self.heads) or 'none'}",
        ]
        if self.new:
            lines.append(f"new, as asked, to be trained before use: {', '.join(self.new)}")
        if self.ignored:
            lines.append(f"ignored, not part of this model: {_some(self.ignored)}")
        if self.broken:
            lines.append(f"NaN or infinite values in: {_some(self.broken)}")
        return lines + [f"note: {note}" for note in self.notes]

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
