"""What each part of a model goes through in a step: its gradient's norm, and how far its weights move.

In: a model, looked at before and after some steps' updates. Out: figures a part (embeddings, each layer, heads), which
stay on the device until they are taken: no step waits for them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel

FIGURES = ("grad_norm", "weight_norm", "update_ratio")  # the last: norm of the update / norm of the weights


def check_log_layers(every: int, parallel: str) -> None:
    """Refuse what cannot be, in one line."""
    if every < 0:
        raise BertkitError(f"log_layers is {every}; it must be at least 0, the steps between two looks (0: none)")
    if every and parallel == "fsdp":
        raise BertkitError("log_layers needs whole layers, which fsdp shards: set log_layers = 0 or parallel = 'ddp'")


def parts_of(model: BertModel) -> dict[str, list[nn.Parameter]]:
    """The parameters of each part, by its name."""
    parts = {"embeddings": list(model.encoder.embeddings.parameters())}
    parts |= {f"layer_{number:02d}": list(layer.parameters()) for number, layer in enumerate(model.encoder.layers)}
    known = {p for parameters in parts.values() for p in parameters}
    parts["heads"] = [p for p in model.parameters() if p not in known]
    return {name: parameters for name, parameters in parts.items() if parameters}


class LayerWatch:
    """Looks at every so many steps; other steps cost nothing."""

    def __init__(self, model: BertModel, every: int) -> None:
        self._model, self._every = model, every
        self._before: list[list[Tensor]] = []
        self._grads: list[Tensor] = []
        self._seen: list[tuple[int, list[str], Tensor]] = []  # step, parts, [parts, figures] on the device

    def is_due(self, step: int) -> bool:
        """Whether this step, 0, 1, ..., is looked at."""
        return (step + 1) % self._every == 0

    @torch.no_grad()
    def before_update(self) -> None:
        """The gradients are whole and not yet clipped."""
        parts = parts_of(self._model).values()
        self._grads = [_norm([p.grad for p in parameters if p.grad is not None]) for parameters in parts]
        self._before = [[p.detach().clone() for p in parameters] for parameters in parts]

    @torch.no_grad()
    def after_update(self, step: int) -> None:
        """The weights have moved."""
        rows, parts = [], parts_of(self._model)
        for grad, before, parameters in zip(self._grads, self._before, parts.values(), strict=True):
            moves = [p.detach() - old for p, old in zip(parameters, before, strict=True)]
            weight, moved = _norm(before), _norm(moves)
            rows.append(torch.stack([grad.to(weight.device), weight, moved / weight.clamp(min=1e-12)]))
        self._seen.append((step, list(parts), torch.stack(rows)))
        self._grads, self._before = [], []

    def take(self) -> list[dict[str, Any]]:
        """What was seen since the last time, as lines for the journal; this waits for the device."""
        seen, self._seen = self._seen, []
        return [{"step": step + 1, **_named(parts, table.tolist())} for step, parts, table in seen]


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(list(tensors), foreach=True)


def _named(parts: list[str], table: list[list[float]]) -> dict[str, float]:
    """Every figure of every part as `figure/part`."""
    return {
        f"{figure}/{part}": value
        for part, row in zip(parts, table, strict=True)
        for figure, value in zip(FIGURES, row, strict=True)
    }
