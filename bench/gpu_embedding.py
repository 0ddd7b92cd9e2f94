"""Embedding on a GPU: full sequences through the encoder alone, and real texts of mixed length from string to vector.

    python -m bench.gpu_embedding --store FOLDER --tokenizer FOLDER   # which tiles our products are best cut into

The peer of full sequences is transformers' BertModel in bf16, eager: compiled it was slower (docs/log.md). The peer of
texts is sentence-transformers in bf16, with its default batch and with larger ones. What is measured is a dictionary of
functions, so that a way that fails does not take the others with it.
"""

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu_training import DEVICE, Data, Ways
from bertkit.corpus.store import TokenStore
from bertkit.inference.bert import Bert
from bertkit.model.bert import BertModel
from bertkit.model.config import preset
from bertkit.model.fast_inference import can_use_eight_bits
from bertkit.model.packed import pack
from bertkit.model.pooling import pool
from bertkit.tokenizer import Tokenizer

LENGTH = 128
OWN_ROWS, PEER_ROWS = (1056, 528), (512, 1056)  # the first of ours is as many tokens as `embed` computes at once
PEER_BATCHES = (32, 128, 512)  # texts; the first is its default
Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Speed:
    """One contender: units (tokens or texts) a second, and how near its vectors are to float32's."""

    way: str
    per_second: float
    spread: tuple[float, float]
    min_cosine: float


def encoder_ways(data: Data, size: str = "base") -> Ways:
    """Tokens a second of full rows, the peer and bertkit in bf16, and bertkit in eight bits."""
    torch.manual_seed(0)
    model = BertModel(preset(size, vocab_size=data.tokenizer.vocab_size, heads=())).to(DEVICE).eval()
    ids = real_rows(data, max(OWN_ROWS + PEER_ROWS))
    whole = pack([row.tolist() for row in ids]).to(DEVICE)
    with torch.inference_mode():
        exact = pool(model.encoder(whole, backend="sdpa"), whole, "mean").float()
    half = copy.deepcopy(model).to(torch.bfloat16)

    def own(way: str, rows: int, *, eight_bits: bool) -> dict[str, Any]:
        if eight_bits and not can_use_eight_bits(half.encoder):
            raise RuntimeError("this device does not multiply in eight bits")  # and bf16 would be measured in its place
        if eight_bits:
            half.encoder.use_eight_bits()
        batch = pack([row.tolist() for row in ids[:rows]]).to(DEVICE)
        return asdict(measure(way, lambda: pool(half.encoder(batch), batch, "mean"), batch.num_tokens, exact[:rows]))

    def peer(way: str, rows: int) -> dict[str, Any]:
        some = ids[:rows]
        return asdict(measure(way, peer_encoder(model, torch.from_numpy(some).to(DEVICE)), some.size, exact[:rows]))

    theirs = {f"transformers eager, {rows} rows": rows for rows in PEER_ROWS}
    ours = {
        f"bertkit {kind}, {rows} rows": (rows, kind != "bf16") for kind in ("bf16", "eight bits") for rows in OWN_ROWS
    }
    return {
        **{way: partial(peer, way, rows) for way, rows in theirs.items()},
        **{way: partial(own, way, rows, eight_bits=eight) for way, (rows, eight) in ours.items()},
    }


def real_rows(data: Data, num: int) -> NDArray[np.int64]:
    """Rows of corpus tokens, full to the last place."""
    tokens = np.asarray(data.store.shards[0].tokens[: num * (LENGTH - 2)]).astype(np.int64).reshape(num, -1)
    cls, sep = (np.full((num, 1), token) for token in (data.tokenizer.cls_id, data.tokenizer.sep_id))
    return np.hstack([cls, tokens, sep])


def peer_encoder(model: BertModel, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
    """transformers' encoder with the same weights."""
    from transformers import AutoModel

    from bertkit.model.formats import save_model

    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder))
        peer = AutoModel.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").to(DEVICE).eval()
    return lambda: peer(input_ids=ids).last_hidden_state.mean(1)


def measure(way: str, run: Callable[[], torch.Tensor], units: int, exact: torch.Tensor, rounds: int = 15) -> Speed:
    """Rounds of ten calls each, after twenty calls that do not count."""
    with torch.inference_mode():
        for _ in range(20):
            vectors = run()
        cosine = torch.nn.functional.cosine_similarity(vectors.float(), exact, dim=-1).min().item()
        rates = []
        for _ in range(rounds):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(10):
                run()
            torch.cuda.synchronize()
            rates.append(10 * units / (time.perf_counter() - began))
    return Speed(way, median(rates), (min(rates), max(rates)), cosine)


def text_ways(data: Data, size: str = "base", num_texts: int = 4_000) -> Ways:
    """Texts a second, from string to vector in host memory."""
    torch.manual_seed(0)
    model = BertModel(preset(size, vocab_size=data.tokenizer.vocab_size, heads=())).to(DEVICE).eval()
    texts = mixed_texts(data, num_texts)
    bert = Bert(model, data.tokenizer)
    exact = np.asarray(bert.embed(texts[:500]))
    model.to(torch.bfloat16)
    peer = cache(lambda: sentence_transformer(model, data))

    def theirs(way: str, batch_size: int) -> dict[str, Any]:
        return asdict(measure_texts(way, partial(peer().encode, texts, batch_size=batch_size), len(texts), exact))

    def own(way: str) -> dict[str, Any]:
        return asdict(measure_texts(way, lambda: np.asarray(bert.embed(texts)), len(texts), exact))

    names = {f"sentence-transformers, batches of {size_}": size_ for size_ in PEER_BATCHES}
    ways: Ways = {name: partial(theirs, name, size_) for name, size_ in names.items()}
    return {**ways, "bertkit bf16": partial(own, "bertkit bf16")}


def mixed_texts(data: Data, num: int) -> list[str]:
    """One to eight sentences of the corpus each."""
    texts: list[str] = []
    for document in data.store.documents():
        sentences = [sentence.tolist() for sentence in document]
        start = 0
        while start < len(sentences) and len(texts) < num:
            stop = start + 1 + len(texts) % 8
            texts.append(data.tokenizer.decode([token for s in sentences[start:stop] for token in s][:500]))
            start = stop
        if len(texts) == num:
            break
    return texts


def sentence_transformer(model: BertModel, data: Data) -> Any:
    """The library's own model of the same weights, in bf16."""
    from sentence_transformers import SentenceTransformer

    from bertkit.model.formats import save_model
    from bertkit.model.formats.sentence_transformers import SentenceStyle, write_style

    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder))
        data.tokenizer.save(folder)
        write_style(Path(folder), SentenceStyle(), model.config)
        chosen = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
        return SentenceTransformer(folder, device=str(DEVICE), model_kwargs=chosen)


def measure_texts(way: str, embed: Callable[[], Vectors], num: int, exact: Vectors, rounds: int = 3) -> Speed:
    """Rounds over all texts after one to warm up."""
    vectors = embed()[: len(exact)]
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact, axis=1)
    cosine = float(((vectors * exact).sum(1) / norms).min())
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        embed()
        rates.append(num / (time.perf_counter() - began))
    return Speed(way, median(rates), (min(rates), max(rates)), cosine)


def compare_tiles(data: Data, seconds: float, rounds: int = 3, size: str = "base") -> None:
    """The whole encoder with one way to cut after another, in turns: at the GPU's power limit, only steady runs tell."""
    from bench.gpu_kernels import HALVES, WHOLES
    from bertkit.model.kernels import tiled_products

    torch.manual_seed(0)
    half = BertModel(preset(size, vocab_size=data.tokenizer.vocab_size, heads=())).to(DEVICE, torch.bfloat16).eval()
    batch = pack([row.tolist() for row in real_rows(data, OWN_ROWS[0])]).to(DEVICE)
    own = [(name, getattr(tiled_products, name)) for name in ("HALF", "INT8", "INT8_GELU")]
    ways = [own[0], *(("HALF", cut) for cut in HALVES)], [*own[1:], *((n, cut) for n, _ in own[1:] for cut in WHOLES)]
    for eight, tried in enumerate(ways):
        if eight:
            half.encoder.use_eight_bits()
        rates: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, cut in tried:
                for known, usual in own:
                    setattr(tiled_products, known, cut if known == name else usual)
                rate = steady_rate(lambda: pool(half.encoder(batch), batch, "mean"), batch.num_tokens, seconds)
                rates.setdefault(f"{name} {tuple(cut)}", []).append(rate)
        for known, usual in own:
            setattr(tiled_products, known, usual)
        for way, found in rates.items():
            each = ", ".join(f"{rate / 1e3:,.0f}" for rate in found)
            print(f"{way}: {median(found) / 1e3:,.0f} k tokens/s ({each})", flush=True)


def steady_rate(run: Callable[[], torch.Tensor], units: int, seconds: float) -> float:
    """Units a second, after as long a time that does not count."""
    with torch.inference_mode():
        for _ in range(2):
            began, calls = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                run()
                calls += 1
                if calls % 8 == 0:
                    torch.cuda.synchronize()
            torch.cuda.synchronize()
            taken = time.perf_counter() - began
    return calls * units / taken


def main() -> None:
    """Compare the tiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--seconds", type=float, default=0.8)
    given = parser.parse_args()
    tokenizer = Tokenizer.load(given.tokenizer)
    compare_tiles(Data(TokenStore.open(given.store, tokenizer), tokenizer, given.tokenizer), given.seconds)


if __name__ == "__main__":
    main()
