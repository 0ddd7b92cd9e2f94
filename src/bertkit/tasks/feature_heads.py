"""A trained head in its folder: `head.safetensors` with the weights, `head.json` with labels and how its features are made.

The encoder stays where it is; the head remembers its folder and a fingerprint of its weights.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.errors import BertkitError
from bertkit.model.feature_heads import BiLstmHead, Head, HeadConfig, LogisticHead, make_head
from bertkit.model.formats.safetensors_files import read_safetensors, write_safetensors
from bertkit.tasks.features import FeatureRecipe, read_recipe, recipe_json
from bertkit.text.files import written_aside

DESCRIPTION = "head.json"
WEIGHTS = "head.safetensors"
FORMAT = 1
BATCH_SENTENCES = 64
Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class TrainedHead:
    """A head, how its features are made, and how good it was."""

    head: Head
    recipe: FeatureRecipe
    scores: Mapping[str, float] = field(default_factory=dict)  # on dev, empty without one
    history: Sequence[Mapping[str, float]] = ()  # step, loss and, of a tagger, its scores on dev

    @property
    def config(self) -> HeadConfig:
        """Its shape and labels."""
        return self.head.config

    @property
    def layer_weights(self) -> list[float] | None:
        """The learned share of each layer, lowest first; None where there is nothing to weigh."""
        weights = self.head.intake.layer_weights
        return None if weights is None else [float(weight) for weight in weights.detach()]

    def save(self, folder: str | Path) -> Path:
        """Write the folder; while it has no description, as when this is stopped in between, it is no head."""
        target = Path(folder)
        described = {
            "format": FORMAT,
            "head": asdict(self.config),
            "features": recipe_json(self.recipe),
            "scores": dict(self.scores),
            "history": [dict(row) for row in self.history],
        }
        try:
            target.mkdir(parents=True, exist_ok=True)
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
            with written_aside(target / DESCRIPTION) as description, written_aside(target / WEIGHTS) as weights:
                write_safetensors(weights, tensors)
                description.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
                weights.chmod(description.stat().st_mode)  # safetensors makes files that only their owner can read
                (target / DESCRIPTION).unlink(missing_ok=True)  # an earlier head's: it does not describe these weights
        except OSError as error:
            raise BertkitError(f"{target} cannot be written: {error.strerror or error}") from None
        return target


@torch.inference_mode()
def class_probabilities(head: LogisticHead, vectors: Vectors) -> NDArray[np.float32]:
    """The probability of every label: [R, C]."""
    logits = head(torch.from_numpy(np.asarray(vectors, dtype=np.float32)))
    return np.asarray(torch.softmax(logits, -1).numpy())


@torch.inference_mode()
def sentence_logits(head: BiLstmHead, vectors: Vectors, lengths: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    """The logits of the words of each sentence, which lie end to end in the vectors."""
    was_training = head.training
    head.eval()
    ends = np.cumsum([0, *lengths])
    for start in range(0, len(lengths), BATCH_SENTENCES):
        chosen = torch.tensor(lengths[start : start + BATCH_SENTENCES])
        rows = np.asarray(vectors[ends[start] : ends[start + len(chosen)]], dtype=np.float32)
        logits = head(torch.from_numpy(rows).to(head.intake.mean.device), chosen).cpu()
        yield from (part.numpy() for part in torch.split(logits, chosen.tolist()))
    head.train(was_training)


def is_head(folder: str | Path) -> bool:
    """Whether `bertkit train-head` made this folder, and there is no checkpoint in it."""
    return (Path(folder) / DESCRIPTION).is_file() and not (Path(folder) / "config.json").is_file()


def load_trained_head(folder: str | Path) -> TrainedHead:
    """What `save` wrote, ready to be used."""
    source = Path(folder)
    described = _read_description(source / DESCRIPTION)
    recipe = read_recipe(described["features"], str(source))
    config = HeadConfig(**{**described["head"], "labels": tuple(described["head"]["labels"])})
    head = make_head(config)
    try:
        head.load_state_dict(read_safetensors(source / WEIGHTS))
    except RuntimeError:
        raise BertkitError(f"{source / WEIGHTS} does not fit {DESCRIPTION}; train the head again") from None
    return TrainedHead(head.eval(), recipe, described.get("scores", {}), described.get("history", ()))


def _read_description(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        if described["format"] != FORMAT or not {"head", "features"} <= described.keys():
            raise BertkitError(f"{path} is of another version of bertkit; train the head again")
    except FileNotFoundError:
        raise BertkitError(f"{path.parent} holds no head ({DESCRIPTION}); `bertkit train-head` makes one") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BertkitError(f"{path} is damaged; train the head again") from None
    return dict(described)
