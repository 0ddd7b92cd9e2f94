"""A checkpoint of any known layout -> a BertModel and a report of what was found.

The model is built without memory and takes over the stored tensors, so nothing is initialised only to be
overwritten. What is missing, misshapen or no BERT stops with one line.
"""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.config import BertConfig, Head
from bertkit.model.formats.config import read_config
from bertkit.model.formats.names import NUM_PARTS, TOKEN_EMBEDDINGS, Name, layer_of, names_of
from bertkit.model.formats.plan import Plan, plan_model
from bertkit.model.formats.report import LoadReport
from bertkit.model.formats.stored import Stored, locate, read_stored

MAX_NAMES = 3  # in an error
FIRST_QUERY = "bert.encoder.layer.0.attention.self.query.weight"


def load_model(
    source: Path,
    *,
    heads: Iterable[Head] | None = None,
    labels: Sequence[str] | None = None,
    dtype: torch.dtype | None = torch.float32,
) -> tuple[BertModel, LoadReport]:
    """The model at this place, in evaluation mode, with its own heads or those asked for; dtype None keeps the stored one."""
    location = locate(Path(source))
    said = read_config(location.config)
    stored = read_stored(location)
    _check_layers(stored, said.encoder)
    plan = plan_model(stored, said, heads, labels)
    names = [name for name in names_of(plan.config) if name.head not in plan.fresh]
    _check_missing(stored, names)
    with torch.device("meta"), _Unfilled():
        model = BertModel(plan.config)
    _check_shapes(stored, names, model)
    taken = {name.huggingface: stored.tensors.pop(name.huggingface) for name in names}
    report = _report(stored, taken, plan, model)
    # Tensors of several dtypes cannot be multiplied: the narrowest that holds them all.
    kept = dtype or reduce(torch.promote_types, (tensor.dtype for tensor in taken.values()))
    state = _assemble(names, taken, kept)
    if not report.broken and (overflown := [name for name, t in state.items() if not _is_finite(t)]):
        raise BertkitError(f"{location.weights}: {overflown[0]} has values too large for {_plain(kept)}; use bfloat16")
    model.load_state_dict(state, strict=False, assign=True)
    for head in plan.fresh:
        _initialise(getattr(model, head), plan.config.initializer_range, kept)
    return model.eval(), report


class _Unfilled(TorchFunctionMode):
    """Leaves out random initialisation: without memory it has no effect, but it loads PyTorch's compiler (two seconds)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _check_layers(stored: Stored, config: BertConfig) -> None:
    """Refuse what is no plain BERT or has fewer layers than its config says."""
    path, names = stored.location.weights, stored.tensors.keys()
    projected = [name for name in (*names, *stored.unread) if "embedding_hidden_mapping_in" in name]
    if projected or _width(stored, TOKEN_EMBEDDINGS) < _width(stored, FIRST_QUERY):
        raise BertkitError(
            f"{path}: its embeddings are factorised (narrower than hidden_size); bertkit reads plain BERT"
        )
    layers = [layer for name in names if (layer := layer_of(name)) is not None]
    if not layers:
        like = ", ".join([*names, *stored.unread][:MAX_NAMES]) or "nothing at all"
        raise BertkitError(f"{path} holds no BERT encoder; it has {like}")
    if max(layers) + 1 < config.num_layers:
        counts = f"{max(layers) + 1} layers, but {stored.location.config.name} says {config.num_layers}"
        raise BertkitError(f"{path} has {counts}: it is incomplete, or the config is another model's")


def _width(stored: Stored, name: str) -> int:
    tensor = stored.tensors.get(name)
    return 0 if tensor is None or tensor.dim() != 2 else tensor.shape[1]


def _check_missing(stored: Stored, names: list[Name]) -> None:
    missing = [name for name in names if name.huggingface not in stored.tensors]
    if not missing:
        return
    where = "encoder" if missing[0].head == "encoder" else f"{missing[0].head} head"
    shown = ", ".join(name.huggingface for name in missing[:MAX_NAMES])
    more = f" and {len(missing) - MAX_NAMES} more" if len(missing) > MAX_NAMES else ""
    raise BertkitError(f"{stored.location.weights}: the {where} is incomplete; missing are {shown}{more}")


def _check_shapes(stored: Stored, names: list[Name], model: nn.Module) -> None:
    parameters = dict(model.named_parameters())
    for name in names:
        tensor, expected = stored.tensors[name.huggingface], list(parameters[name.native].shape)
        if name.part is not None:
            expected[0] //= NUM_PARTS
        if list(tensor.shape) != expected:
            sizes = f"is {list(tensor.shape)}, but {stored.location.config.name} makes it {expected}"
            raise BertkitError(f"{stored.location.weights}: {name.huggingface} {sizes}")
        if not tensor.is_floating_point():
            raise BertkitError(
                f"{stored.location.weights}: {name.huggingface} is {_plain(tensor.dtype)}, not real numbers"
            )


def _assemble(names: list[Name], taken: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Native tensors in memory of their own; `taken` is emptied on the way."""
    parts: dict[str, list[Tensor]] = {}
    for name in names:
        parts.setdefault(name.native, []).append(taken.pop(name.huggingface))
    return {
        # A copy, not a view: the file may change or vanish, and its tensors lie at odd addresses.
        native: torch.cat([tensor.to(dtype) for tensor in tensors])
        if len(tensors) > 1
        else tensors[0].to(dtype, copy=True, memory_format=torch.contiguous_format)
        for native, tensors in parts.items()
    }


def _initialise(head: nn.Module, std: float, dtype: torch.dtype) -> None:
    """Give a new head memory and the values that an untrained model has."""
    head.to(dtype).to_empty(device="cpu")
    for module in head.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=std)


def _report(stored: Stored, taken: dict[str, Tensor], plan: Plan, model: nn.Module) -> LoadReport:
    location = stored.location
    dtypes = sorted({_plain(tensor.dtype) for tensor in taken.values()})
    broken = [name for name, tensor in taken.items() if not _is_finite(tensor)]
    return LoadReport(
        source=str(location.weights),
        format=location.kind,
        files=tuple(path.name for path in stored.files),
        dtypes=tuple(dtypes),
        num_tensors=len(taken),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        heads=tuple(head for head in plan.config.heads if head not in plan.fresh),
        new=tuple(_described(head, plan.config) for head in plan.fresh),
        ignored=(*stored.tensors, *stored.unread),
        broken=tuple(broken),
        notes=plan.notes,
    )


def _described(head: Head, config: BertConfig) -> str:
    return f"{head} ({len(config.labels)} labels)" if head in ("classifier", "tagger") else head


def _is_finite(tensor: Tensor) -> bool:
    """A finite sum means finite values, and is quick; only the rare other sum needs a closer look."""
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return math.isfinite(tensor.sum(dtype=wide).item()) or bool(torch.isfinite(tensor).all())


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
