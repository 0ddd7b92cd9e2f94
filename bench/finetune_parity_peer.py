"""A plain fine-tuning with transformers, to compare with: its models and losses, dynamic padding, SDPA, AdamW.

It is given bertkit's encoded examples and its predictions are decoded and scored by bertkit's tasks, so that both sides
read the same tokens and are measured alike; what differs is the model's code, the batches, the loop and the optimizer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import transformers

from bertkit.tasks.answering.loss import ENDS, STARTS
from bertkit.tasks.task import IGNORED, Item, Task
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.data import Prepared

KINDS = {
    "classification": transformers.AutoModelForSequenceClassification,
    "tagging": transformers.AutoModelForTokenClassification,
    "answering": transformers.AutoModelForQuestionAnswering,
}
EVALUATION_BATCH = 128
transformers.utils.logging.set_verbosity_error()  # that the head is new is known
transformers.utils.logging.disable_progress_bar()


def start_peer(folder: str, task: Task[Any, Any], config: Any) -> Any:
    """The checkpoint under the task's head; new weights are drawn by torch's seed."""
    options: dict[str, Any] = {}
    if task.name != "answering":
        options["num_labels"] = max(1, len(config.labels))
    if task.name == "classification":
        options["problem_type"] = "regression" if config.problem == "regression" else "single_label_classification"
    return KINDS[task.name].from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa", **options)


def features_of(task: Task[Any, Any], item: Item) -> dict[str, Any]:
    """One example as transformers takes it, labels included."""
    made: dict[str, Any] = {"input_ids": item.ids, "token_type_ids": item.segment_ids}
    if task.name == "classification":
        label = item.targets[0]
        made["labels"] = float(label) if item.targets.dtype.kind == "f" else int(label)
    elif task.name == "tagging":
        labels = np.full(len(item.ids), IGNORED)
        labels[item.rows] = item.targets
        made["labels"] = labels.tolist()
    else:
        made["start_positions"], made["end_positions"] = (_position(item, bit) for bit in (STARTS, ENDS))
    return made


def _position(item: Item, bit: int) -> int:
    """Where the answer starts or ends; beyond every sequence, which the loss ignores, where that is not known."""
    found = np.flatnonzero((item.targets != IGNORED) & ((item.targets & bit) != 0))
    return int(found[0]) if len(found) else 10**6


def pad(features: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch padded to its longest."""
    width = max(len(one["input_ids"]) for one in features)

    def filled(name: str, value: int) -> torch.Tensor:
        return torch.tensor([[*one[name], *[value] * (width - len(one[name]))] for one in features])

    batch = {"input_ids": filled("input_ids", 0), "token_type_ids": filled("token_type_ids", 0)}
    lengths = torch.tensor([len(one["input_ids"]) for one in features])
    batch["attention_mask"] = (torch.arange(width) < lengths[:, None]).long()
    for name in features[0].keys() - batch.keys():
        listed = isinstance(features[0][name], list)
        batch[name] = filled(name, IGNORED) if listed else torch.tensor([one[name] for one in features])
    return batch


def train_peer(
    model: Any,
    features: Sequence[dict[str, Any]],
    config: FinetuneConfig,
    device: torch.device,
    progress: Callable[[float], None],
) -> int:
    """Epochs of shuffled batches, linear warm-up and decay; the number of steps comes back."""
    model.to(device).train()
    per_epoch = -(-len(features) // config.batch_size)
    num_steps = per_epoch * config.epochs
    optimizer = make_optimizer(model, config)
    warmup = round(config.warmup_share * num_steps)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, num_steps)
    order, step = np.random.default_rng(config.seed), 0
    for _ in range(config.epochs):
        shuffled = order.permutation(len(features))
        for start in range(0, len(features), config.batch_size):
            batch = pad([features[index] for index in shuffled[start : start + config.batch_size]])
            with autocast(device):
                loss = model(**{name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                progress(0.95 * step / num_steps)
    return step


def make_optimizer(model: Any, config: FinetuneConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on all but biases and LayerNorms."""
    named = list(model.named_parameters())
    spared = [p for name, p in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in named if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.999), eps=config.epsilon, fused=True)


def autocast(device: torch.device) -> AbstractContextManager[Any]:
    """bf16 on a GPU, float32 elsewhere."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


@torch.inference_mode()
def peer_logits(model: Any, task: Task[Any, Any], items: Sequence[Item], device: torch.device) -> Iterator[Any]:
    """What the model says at each item's rows: [R, C], in the items' order."""
    model.eval()
    order = sorted(range(len(items)), key=lambda index: -len(items[index].ids))
    found: dict[int, Any] = {}
    for start in range(0, len(order), EVALUATION_BATCH):
        part = order[start : start + EVALUATION_BATCH]
        batch = pad([{"input_ids": items[i].ids, "token_type_ids": items[i].segment_ids} for i in part])
        with autocast(device):
            output = model(**{name: tensor.to(device) for name, tensor in batch.items()})
        if task.name == "answering":
            scores = torch.stack([output.start_logits, output.end_logits], dim=-1).float().cpu().numpy()
        else:
            scores = output.logits.float().cpu().numpy()
        for row, index in enumerate(part):
            found[index] = scores[row][None] if task.name == "classification" else scores[row][items[index].rows]
    return (found[index] for index in range(len(items)))


def score_peer(model: Any, given: Prepared, device: torch.device) -> dict[str, float]:
    """Scores on the held-out examples, decoded as bertkit decodes."""
    scorer = given.task.scorer()
    for chunk in given.data.dev:
        logits = list(peer_logits(model, given.task, chunk.items, device))
        predictions = given.task.decode(chunk.examples, chunk.items, logits)
        for example, prediction in zip(chunk.examples, predictions, strict=True):
            scorer.add(example, prediction)
    return scorer.scores()
