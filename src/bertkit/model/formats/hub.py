"""What a person typed -> a path: a folder, a weights file, a TensorFlow prefix, a bundled model, or a name on the hub.

A name is looked up within a bounded time; of its files only config, tokenizer and one form of the weights are
fetched. What was fetched before is found without a network.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from bertkit.bundled import MODELS, folder_of, is_here
from bertkit.errors import BertkitError
from bertkit.model.formats.sentence_transformers import SENTENCE_FILES
from bertkit.model.formats.tf_bundle import index_path

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
MOST_SHOWN = 200  # characters of what was typed
TIMEOUT = 8.0  # seconds to the hub's first answer
CONFIG_FILES = (
    "config.json",
    "bert_config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    *SENTENCE_FILES,
)
# (the file that tells, what to fetch then), the preferred first
WEIGHT_FILES = (
    (r"model\.safetensors", ("model.safetensors",)),
    (r"model\.safetensors\.index\.json", ("model.safetensors.index.json", "model-*.safetensors")),
    (r"pytorch_model\.bin", ("pytorch_model.bin",)),
    (r"pytorch_model\.bin\.index\.json", ("pytorch_model.bin.index.json", "pytorch_model-*.bin")),
    (r"[^/]+\.ckpt\.index", ("*.ckpt.index", "*.ckpt.data-*")),
    (r"model-int8\.safetensors", ("model-int8.safetensors",)),
)


def resolve(source: str) -> Path:
    """The path of this checkpoint: what exists here, else a model that comes with bertkit, else fetched from the hub."""
    try:
        path = Path(source).expanduser()
        if source and (path.exists() or index_path(path).is_file()):
            return path
    except (OSError, RuntimeError):  # too long for a name, in a folder that is closed to us, or the home of nobody
        raise BertkitError(f"no file or folder {source[:MOST_SHOWN]!r} that can be read") from None
    if source in MODELS:
        return _bundled(source)
    if not HUB_NAME.fullmatch(source):
        raise BertkitError(f"no file or folder {source!r}")
    return _fetch(source)


def _bundled(name: str) -> Path:
    if not is_here(name):
        raise BertkitError(
            f"{name} comes with bertkit, but this copy lacks it ({folder_of(name)}); install bertkit anew"
        )
    return folder_of(name)


def _fetch(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        info = HfApi().model_info(name, timeout=TIMEOUT)
        files = [sibling.rfilename for sibling in info.siblings or []]
        patterns = _patterns(name, files)
        return Path(snapshot_download(name, allow_patterns=patterns, etag_timeout=TIMEOUT))
    except BertkitError:
        raise
    except GatedRepoError:
        raise BertkitError(f"{name} is gated: accept its terms on huggingface.co and set HF_TOKEN") from None
    except HFValidationError:
        raise BertkitError(f"no folder {name} here, and it is no name that the hub allows") from None
    except RepositoryNotFoundError:
        raise BertkitError(f"no folder {name} here, and no public model of that name on the hub{_hint(name)}") from None
    except Exception as error:  # no network, proxies, time-outs: each library below has its own exceptions
        return _from_cache(name, error)


def _from_cache(name: str, error: Exception) -> Path:
    """What an earlier run fetched, or the reason why the hub did not answer."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=["config.json"]))
        _patterns(name, [path.name for path in folder.iterdir()])
        return folder
    except Exception:  # nothing whole there: the first reason is the one to tell
        reason = " ".join(str(error).split()) or type(error).__name__
        text = f"no folder {name} here, and the hub could not be reached: {reason[:200]}{_hint(name)}"
        raise BertkitError(text) from None


def _hint(name: str) -> str:
    near = get_close_matches(name, MODELS, n=1)
    return f"; did you mean {near[0]}, which comes with bertkit?" if near else ""


def _patterns(name: str, files: Sequence[str]) -> list[str]:
    for tell, weights in WEIGHT_FILES:
        if any(re.fullmatch(tell, file) for file in files):
            return [*CONFIG_FILES, *weights]
    raise BertkitError(f"{name} on the hub holds no weights that bertkit reads (safetensors, .bin, .ckpt)")
