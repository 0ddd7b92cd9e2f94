"""Does NSP read the pair? Accuracy on balanced held-out pairs, and again with the B sides shuffled among them.

    python -m bench.nsp_shuffled MODEL STORE [--length 128] [--pairs 4000]

A model that reads both sides falls to chance when every B belongs to another pair; one that lives on lengths or on a
single side does not. Labels stay as they were, half of them IsNext.
"""

import argparse
import json
from dataclasses import replace

import numpy as np
import torch

import bertkit
from bertkit.corpus.masking import generator
from bertkit.corpus.pairs import PairConfig, SentencePair, draw_pairs
from bertkit.corpus.store import TokenStore
from bertkit.inference.bert import Bert
from bertkit.tasks.examples import collate, make_examples, ordinary_ids
from bertkit.tasks.pretraining import pretraining_losses

BATCH = 64


def balanced(pairs: list[SentencePair], num_pairs: int) -> list[SentencePair]:
    """As many next as not."""
    sides = [[pair for pair in pairs if pair.is_next == label][: num_pairs // 2] for label in (True, False)]
    size = min(map(len, sides))
    return sides[0][:size] + sides[1][:size]


@torch.inference_mode()
def nsp_accuracy(bert: Bert, pairs: list[SentencePair]) -> float:
    """The share of pairs whose label the model finds."""
    examples = make_examples(pairs, bert.tokenizer, ordinary_ids(bert.tokenizer), generator(7))
    correct = 0
    for start in range(0, len(examples), BATCH):
        batch = collate(examples[start : start + BATCH]).to(bert.device)
        correct += int((pretraining_losses(bert.model, batch).nsp_logits.argmax(-1) == batch.next_labels).sum())
    return correct / len(examples)


def main() -> None:
    """Measure and print both accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("store")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=4000)
    arguments = parser.parse_args()
    bert = bertkit.load(arguments.model)
    store = TokenStore.open(arguments.store, bert.tokenizer)
    documents = [[sentence.tolist() for sentence in document] for document in store.documents()]
    drawn = list(draw_pairs(documents, PairConfig(max_length=arguments.length), generator(5)))
    pairs = balanced(drawn, arguments.pairs)
    order = np.roll(generator(6).permutation(len(pairs)), 1)
    shuffled = [replace(pair, b=pairs[other].b) for pair, other in zip(pairs, order.tolist(), strict=True)]
    room = arguments.length - 3
    shuffled = [replace(pair, b=pair.b[: max(1, room - len(pair.a))]) for pair in shuffled]
    figures = {"pairs": len(pairs), "accuracy": nsp_accuracy(bert, pairs), "shuffled": nsp_accuracy(bert, shuffled)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
