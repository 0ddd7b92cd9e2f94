"""The files with which sentence-transformers says how a folder's sentence vectors are made: read and written.

`modules.json` lists the parts, `1_Pooling/config.json` the pooling (flags in older versions, a name in newer ones),
`sentence_bert_config.json` the length. Written are those that every version since 2.0 reads.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from bertkit.errors import BertkitError
from bertkit.model.config import BertConfig
from bertkit.model.pooling import Pooling

SENTENCE_FILES = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Normalize/config.json",
)
POOLING_FLAGS = {  # the older spelling; their order is that of the joined vector
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
KNOWN_PARTS = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class SentenceStyle:
    """How the last layer becomes a sentence vector; the names are EmbedOptions' own."""

    pooling: Pooling = "mean"
    normalize: bool = False
    max_length: int | None = None  # tokens, special tokens included; None: all positions

    def __post_init__(self) -> None:
        if self.pooling not in get_args(Pooling):
            raise BertkitError(f"unknown pooling {self.pooling!r}; choose one of {', '.join(get_args(Pooling))}")
        if self.max_length is not None and self.max_length < 3:
            raise BertkitError(f"max_length is {self.max_length} but [CLS], one token and [SEP] need 3")


def read_style(folder: Path) -> tuple[SentenceStyle | None, list[str]]:
    """The folder's style, None where it has none, and what sentence-transformers would do differently all the same."""
    try:
        parts = [(part["type"].rpartition(".")[2], part["path"]) for part in _read(folder / "modules.json") or []]
        place = next((path for kind, path in parts if kind == "Pooling"), "1_Pooling")
        pooling = _read(folder / place / "config.json")
        if pooling is None:
            return None, []
        modes = pooling_modes(pooling)
        length = (_read(folder / "sentence_bert_config.json") or {}).get("max_seq_length")
        departures = [*_other_parts(parts), *_other_texts(folder)]
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return None, [f"{folder} looks like sentence-transformers', but its files cannot be read; the mean is taken"]
    if len(modes) > 1 or modes[0] not in get_args(Pooling):
        departures.append(f"it pools by {' and '.join(modes)}, which bertkit does not do; the mean is taken")
        modes = ["mean"]
    normalize = any(kind == "Normalize" for kind, _ in parts)
    max_length = length if isinstance(length, int) and length >= 3 else None
    return SentenceStyle(modes[0], normalize, max_length), departures  # type: ignore[arg-type]


def remove_style(folder: Path) -> None:
    """Take away the files that say it, where they say anything: those of a model that stood here before."""
    if read_style(folder)[0] is not None:
        for name in SENTENCE_FILES:
            (folder / name).unlink(missing_ok=True)


def part_folders(folder: Path) -> list[Path]:
    """The folders of the parts that `modules.json` lists; only those that lie in this folder itself."""
    try:
        names = [part["path"] for part in _read(folder / "modules.json") or []]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    plain = [name for name in names if isinstance(name, str) and name == Path(name).name and name not in ("", "..")]
    return [folder / name for name in plain if (folder / name).is_dir()]


def pooling_modes(config: dict[str, Any]) -> list[str]:
    """The poolings that a config names, in either spelling; the mean where it names none."""
    named = config.get("pooling_mode")
    if named is not None:
        return [str(named)] if isinstance(named, str) else [str(mode) for mode in named] or ["mean"]
    return [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag) is True] or ["mean"]


def _other_parts(parts: list[tuple[str, str]]) -> list[str]:
    others = [kind for kind, _ in parts if kind not in KNOWN_PARTS]
    return [f"it goes on with {', '.join(others)}, which bertkit leaves out"] if others else []


def _other_texts(folder: Path) -> list[str]:
    """What is done to texts before they are tokenized."""
    said = []
    if (_read(folder / "sentence_bert_config.json") or {}).get("do_lower_case") is True:
        said.append("it lower-cases texts first (do_lower_case); do so too where the tokenizer does not")
    config = _read(folder / "config_sentence_transformers.json") or {}
    if prompt := (config.get("prompts") or {}).get(config.get("default_prompt_name")):
        said.append(f"it puts {prompt!r} before every text; do so too")
    return said


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_style(folder: Path, style: SentenceStyle, config: BertConfig) -> None:
    """Write the files, so that sentence-transformers loads the folder and gives the same vectors."""
    parts = ["Transformer", "Pooling", *(["Normalize"] if style.normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    flags = {flag: mode == style.pooling for flag, mode in POOLING_FLAGS.items()}
    length = min(style.max_length or config.max_positions, config.max_positions)
    contents: dict[str, Any] = {
        "1_Pooling/config.json": {"word_embedding_dimension": config.hidden_size, **flags},
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {},
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "modules.json": [
            {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{part}"}
            for i, part in enumerate(parts)
        ],
    }
    if style.normalize:
        contents["2_Normalize/config.json"] = {}
    try:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BertkitError(f"{folder} cannot be written: {error.strerror or error}") from None
