"""The models that are served: what each can do, its tokenizer, its queue; and which one a request means.

Names are looked up in a table that was made at the start; nothing that a request says is ever opened as a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from bertkit.serve.dispatch import Dispatcher
from bertkit.serve.refusals import Refusal, invalid
from bertkit.serve.shapes_answers import ModelInfo
from bertkit.tokenizer import LongPolicy, Tokenizer

ROUTES = {
    "embed": ("embed", "similarity", "v1/embeddings"),
    "fill_mask": ("fill-mask",),
    "next_sentence": ("next-sentence",),
}
NEEDED = {
    "predict": "a classifier (`bertkit finetune classification`)",
    "entities": "a tagger (`bertkit finetune tagging`)",
    "answer": "a span head (`bertkit finetune answering`)",
    "fill_mask": "a masked language model's head",
    "next_sentence": "a next sentence head",
}


@dataclass(frozen=True)
class Facts:
    """What a worker says of a model."""

    can: tuple[str, ...]
    takes_pairs: bool
    labels: tuple[str, ...]
    hidden_size: int
    num_layers: int
    num_heads: int
    max_positions: int
    embed_limit: int
    task_limit: int
    task_long: LongPolicy
    pooling: str
    dtype: str
    device: str
    engine: str
    batch_tokens: int

    @classmethod
    def read(cls, told: dict[str, Any]) -> "Facts":
        """From the worker's JSON."""
        chosen = {field.name: told[field.name] for field in fields(cls)}
        return cls(**{**chosen, "can": tuple(told["can"]), "labels": tuple(told["labels"])})


@dataclass(frozen=True)
class ServedModel:
    """A model behind its queue."""

    name: str
    facts: Facts
    tokenizer: Tokenizer
    dispatcher: Dispatcher

    def info(self) -> ModelInfo:
        """As /info and /models tell it."""
        facts = self.facts
        routes = [route for kind in facts.can for route in ROUTES.get(kind, (kind,))]
        return ModelInfo(
            name=self.name,
            can=[*routes, "tokenize"],
            labels=list(facts.labels),
            hidden_size=facts.hidden_size,
            num_layers=facts.num_layers,
            num_heads=facts.num_heads,
            max_input_length=facts.max_positions,
            vocab_size=self.tokenizer.vocab_size,
            lowercase=self.tokenizer.lowercase,
            pooling=facts.pooling,
            device=facts.device,
            engine=facts.engine,
        )


class Models:
    """All served models, the first one first."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self.by_name = {model.name: model for model in models}

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def named(self, name: str | None) -> ServedModel:
        """The model of this name; the first, without one."""
        model = next(iter(self.by_name.values())) if name is None else self.by_name.get(name)
        if model is None:
            raise Refusal(404, "model_not_found", f"no such model is served; choose one of {', '.join(self.by_name)}")
        return model

    def pick(self, name: str | None, kind: str) -> ServedModel:
        """The named model, or the first that can do this."""
        if name is not None:
            return self._able(self.named(name), kind)
        for model in self.by_name.values():
            if kind in model.facts.can or kind == "tokenize":
                return model
        raise Refusal(404, "no_model", f"no model served here can do this: it needs {NEEDED[kind]}")

    def _able(self, model: ServedModel, kind: str) -> ServedModel:
        if kind != "tokenize" and kind not in model.facts.can:
            raise invalid(f"the model {model.name} cannot do this: it needs {NEEDED[kind]}")
        return model
