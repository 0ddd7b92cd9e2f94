"""Does a model stand the dropout that fine-tuning brings? Held-out MLM loss without it, and with it.

    python -m bench.with_dropout MODEL STORE [--rate 0.1] [--length 128] [--batches 16]

A model pre-trained without dropout may lean on every one of its values. Where the second loss is far above the first,
fine-tuning with dropout learns nothing; more weight decay in pre-training is the remedy.
"""

import argparse
import json

import torch

import bertkit
from bertkit.corpus.store import TokenStore
from bertkit.inference.bert import Bert
from bertkit.model.dropout import set_dropout
from bertkit.tasks.feed.epochs import FeedConfig
from bertkit.tasks.feed.pretraining import held_out_feed
from bertkit.tasks.pretraining import pretraining_losses

TOKENS, RATE = 8192, 0.1


@torch.no_grad()
def mlm_loss(bert: Bert, store: TokenStore, length: int, num_batches: int) -> float:
    """The mean over all masked tokens, in whatever mode the model is."""
    feed = held_out_feed(store, bert.tokenizer, FeedConfig(max_length=length, tokens_per_batch=TOKENS))
    indices = range(min(num_batches, feed.epoch_size))
    losses = (pretraining_losses(bert.model, feed.micro_batch(index).to(bert.device)) for index in indices)
    return sum(float(loss.mlm_sum) for loss in losses) / sum(feed.counts(index).num_masked for index in indices)


def main() -> None:
    """Measure and print both losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("store")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batches", type=int, default=16)
    given = parser.parse_args()
    bert = bertkit.load(given.model, dtype="float32")
    store = TokenStore.open(given.store, bert.tokenizer)
    without = mlm_loss(bert, store, given.length, given.batches)
    set_dropout(bert.model, given.rate)
    bert.model.train()
    torch.manual_seed(0)
    print(json.dumps({"mlm_loss": without, "with_dropout": mlm_loss(bert, store, given.length, given.batches)}))


if __name__ == "__main__":
    main()
