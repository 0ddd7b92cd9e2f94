"""The peer that a user would have picked: the same text, minutes and GPU through transformers at its best settings.

    python -m bench.pretrain_peer --size base --minutes 19 --store build/store-en --tokenizer build/vocab-en \
        --held-out build/store-validation -o build/peer-base
    bertkit evaluate -m build/peer-base --suite --data DATA

BertForPreTraining with SDPA, compiled, bf16 autocast, fused AdamW, linear decay after a warm-up, rows padded to one
length, masked by their own 15 % and 80/10/10. The rate is the best of a short list, each tried for a minute beforehand.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from bench.gpu_training import padded_rows
from bertkit.corpus.store import TokenStore
from bertkit.model.config import preset
from bertkit.model.formats import load_model
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import PretrainingFeed, held_out_feed
from bertkit.tasks.feed.workers import prefetch
from bertkit.tasks.pretraining import IGNORED
from bertkit.tokenizer import Tokenizer
from bertkit.training.evaluation import EvaluationConfig, evaluate, evaluation_indices
from bertkit.training.objective import Objective, make_objective
from bertkit.training.world import World

MULTIPLE = 64  # the vocabulary is padded to it while training: products of 30,000 columns are slower
AHEAD = 4  # batches made before they are needed
Rows = dict[str, Tensor]


@dataclass(frozen=True)
class Peer:
    """Everything that decides the peer's run."""

    size: str
    store: Path
    tokenizer: Path
    held_out: Path
    minutes: float
    rate: float = 3e-4
    rows: int = 512  # a step
    length: int = 128
    warmup_steps: int = 300
    dropout: float = 0.0
    compile: bool = True
    workers: int = 6
    seed: int = 1
    device: str = "cuda"

    @property
    def config(self) -> Any:
        """As transformers takes it."""
        vocabulary, sizes = Tokenizer.load(self.tokenizer).vocab_size, preset(self.size)
        return transformers.BertConfig(
            vocab_size=-(-vocabulary // MULTIPLE) * MULTIPLE,
            hidden_size=sizes.hidden_size,
            num_hidden_layers=sizes.num_layers,
            num_attention_heads=sizes.num_heads,
            intermediate_size=sizes.intermediate_size,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
            attn_implementation="sdpa",
        )


@dataclass(frozen=True)
class Trained:
    """How a run went, and how it does on held-out text."""

    rate: float
    minutes: float
    steps: int
    tokens: int
    tokens_per_second: float
    mlm_loss: float
    mlm_accuracy: float
    nsp_accuracy: float


def row_batches(peer: Peer, feed: PretrainingFeed) -> Generator[Rows, None, None]:
    """The store's pairs as rows of one length, unmasked, always as many; made ahead in a thread."""

    def make() -> Generator[Rows, None, None]:
        waiting: Rows = {}
        with closing(prefetch(feed, count(), peer.workers)) as batches:  # type: ignore[type-var]
            for batch in batches:
                found = padded_rows(batch, peer.length)
                found["input_ids"] = torch.where(found["labels"] != IGNORED, found.pop("labels"), found["input_ids"])
                waiting = {name: torch.cat([waiting[name], rows]) if waiting else rows for name, rows in found.items()}
                while len(waiting["input_ids"]) >= peer.rows:
                    whole = {name: rows[: peer.rows].contiguous() for name, rows in waiting.items()}
                    yield {n: rows.pin_memory() for n, rows in whole.items()} if peer.device == "cuda" else whole
                    waiting = {name: rows[peer.rows :] for name, rows in waiting.items()}

    with ThreadPoolExecutor(1) as thread, closing(make()) as made:
        coming = [thread.submit(next, made) for _ in range(AHEAD)]
        try:
            while True:
                yield coming.pop(0).result()
                coming.append(thread.submit(next, made))
        finally:
            for one in coming:
                one.cancel() or one.result()


def mask_rows(rows: Rows, special: Tensor, mask_id: int, vocab_size: int, generator: torch.Generator) -> Rows:
    """15 % of the ordinary tokens as targets; of these 80 % [MASK], 10 % any token, 10 % as they are."""
    ids = rows["input_ids"]
    draws = torch.rand((2, *ids.shape), device=ids.device, generator=generator)
    chosen = (draws[0] < 0.15) & ~special[ids]
    anything = torch.randint(vocab_size, ids.shape, device=ids.device, generator=generator)
    seen = torch.where(chosen & (draws[1] < 0.8), mask_id, torch.where(chosen & (draws[1] >= 0.9), anything, ids))
    return {**rows, "input_ids": seen, "labels": torch.where(chosen, ids, IGNORED)}


def make_optimizer(model: Any, rate: float) -> torch.optim.AdamW:
    """None of the decay on biases and LayerNorms."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-6, fused=True)


def train(peer: Peer, out: Path, began: float) -> Trained:
    """Train until the minutes are over, counted from `began`; the model is left in a folder."""
    torch.manual_seed(peer.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer, device = Tokenizer.load(peer.tokenizer), torch.device(peer.device)
    store = TokenStore.open(peer.store, tokenizer)
    shape = FeedConfig(max_length=peer.length, tokens_per_batch=peer.rows * peer.length, seed=peer.seed)
    model = transformers.BertForPreTraining(peer.config).to(device).train()
    run = torch.compile(model) if peer.compile else model
    optimizer = make_optimizer(model, peer.rate)
    special = torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
    special[list(tokenizer.special_ids)] = True
    special, generator = special.to(device), torch.Generator(device).manual_seed(peer.seed)
    seconds, step, tokens = 60.0 * peer.minutes, 0, torch.zeros((), dtype=torch.int64, device=device)
    steady = 0.0
    with closing(row_batches(peer, PretrainingFeed(store, tokenizer, shape))) as batches:
        for rows in batches:
            done = (time.monotonic() - began) / seconds
            if done >= 1.0 and step:
                break
            for group in optimizer.param_groups:
                group["lr"] = peer.rate * min(1.0, (step + 1) / max(1, peer.warmup_steps)) * max(0.0, 1.0 - done)
            moved = {name: tensor.to(device, non_blocking=True) for name, tensor in rows.items()}
            inputs = mask_rows(moved, special, tokenizer.mask_id, tokenizer.vocab_size, generator)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = run(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tokens += inputs["attention_mask"].sum()
            step += 1
            if step % 50 == 0:  # the host is never far ahead of the clock
                print(f"step {step}  {done:.0%}  loss {loss.item():.3f}", flush=True)
            steady = steady or time.monotonic()  # the first step compiled
    first, total = int(rows["attention_mask"].sum()), int(tokens)
    speed = (total - first) / max(1e-9, time.monotonic() - steady)
    save(model, tokenizer, out)
    found = measure(out, peer, tokenizer)
    return Trained(peer.rate, peer.minutes, step, total, speed, found.mlm_loss, found.mlm_accuracy, found.nsp_accuracy)


def save(model: Any, tokenizer: Tokenizer, out: Path) -> None:
    """An ordinary folder, without the rows that padded the vocabulary."""
    padded, config = model.config.vocab_size, model.config.to_dict()
    whole = transformers.BertForPreTraining(transformers.BertConfig(**{**config, "vocab_size": tokenizer.vocab_size}))
    tensors = {
        name: tensor[: tokenizer.vocab_size] if tensor.dim() and tensor.shape[0] == padded else tensor
        for name, tensor in model.state_dict().items()
    }
    whole.load_state_dict(tensors)
    whole.save_pretrained(out)
    tokenizer.save(out, max_length=512)


def measure(folder: Path, peer: Peer, tokenizer: Tokenizer) -> Any:
    """Held-out figures, by bertkit's own evaluation."""
    device = torch.device(peer.device)
    model, _ = load_model(folder)
    objective = make_objective(Objective(model.to(device)), torch.bfloat16 if device.type == "cuda" else None)
    shape = FeedConfig(max_length=peer.length, tokens_per_batch=128 * peer.length)
    feed = held_out_feed(TokenStore.open(peer.held_out, tokenizer), tokenizer, shape)
    return evaluate(objective, feed, evaluation_indices(feed, EvaluationConfig(num_batches=64)), World(device=device))


def tune(peer: Peer, rates: list[float], minutes: float) -> list[Trained]:
    """Each rate for some minutes, from nothing; the best held-out loss first."""
    tried = []
    if peer.compile:  # a first step, so that the first rate's time is not spent on compiling
        with tempfile.TemporaryDirectory() as folder:
            train(replace(peer, minutes=1e-3), Path(folder), time.monotonic())
    for rate in rates:
        with tempfile.TemporaryDirectory() as folder:
            short = replace(peer, rate=rate, minutes=minutes, warmup_steps=min(peer.warmup_steps, 100))
            tried.append(train(short, Path(folder), time.monotonic()))
        print(f"rate {rate:g}: held-out MLM loss {tried[-1].mlm_loss:.3f} after {minutes:g} minutes", flush=True)
    return sorted(tried, key=lambda one: one.mlm_loss if one.mlm_loss == one.mlm_loss else float("inf"))


def main() -> None:
    """Find the rate, train, write the folder and peer.json in it."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    for name in ("store", "tokenizer", "held-out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=19.0, help="of training, beside those that find the rate")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3])
    parser.add_argument("--tune-minutes", type=float, default=1.0)
    parser.add_argument("--tune-only", action="store_true", help="only say which rate is best")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true", help="do not compile")
    given = parser.parse_args()
    parts = (given.size, given.store, given.tokenizer, given.held_out, given.minutes)
    peer = Peer(*parts, rows=given.rows, dropout=given.dropout, compile=not given.eager, workers=given.workers,
                device=given.device)  # fmt: skip
    tried = tune(peer, given.rates, given.tune_minutes) if len(given.rates) > 1 or given.tune_only else []
    if given.tune_only:
        return
    peer = replace(peer, rate=tried[0].rate if tried else given.rates[0])
    trained = train(peer, given.out, time.monotonic() if tried else began)
    result = {**asdict(trained), "tuning": [asdict(one) for one in tried], "rows": peer.rows, "dropout": peer.dropout}
    (given.out / "peer.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(json.dumps(asdict(trained)))


if __name__ == "__main__":
    main()
