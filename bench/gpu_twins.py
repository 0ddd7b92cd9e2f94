"""What each of our training kernels gains over what torch.compile, or a library, makes of the same work.

    python -m bench.gpu_twins [--size base] [--lengths 128 512] [--tokens 65536] [--rate 1020000] [--json twins.json]

The twin computes the same from the same tensors: plain torch, compiled, or FlashAttention with the biases around it. The gain
is what the kernel saves in a step, times how often it runs there, as a share of the step at --rate tokens a second. Also beside
plain torch as it is: what a kernel saves there is saved without a compiler, which every start of a run would wait for.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.config import BertConfig, preset
from bertkit.model.kernels.attention import LONGEST, attention_backward, attention_forward
from bertkit.model.kernels.cross_entropy import cross_entropy_
from bertkit.model.kernels.e4m3 import ACTIVATION, LARGEST
from bertkit.model.kernels.gelu import gelu_backward_, gelu_forward
from bertkit.model.kernels.layer_norm import norm_backward, norm_forward
from bertkit.model.kernels.long_attention import long_attention_backward, long_attention_forward
from bertkit.model.kernels.rows8 import narrow_and_sum, narrow_rows

EPSILON = 1e-12
MASKED = 0.15
STACKS = 3  # all weights that go to eight bits are about so many of the larger matrices, as they are and transposed
MULTIPLE = 64  # the vocabulary is padded to it in memory
Call = Callable[[], Any]


@dataclass(frozen=True)
class Pair:
    """A kernel and its twin on the same tensors, and how often a step calls it."""

    name: str
    calls: int
    ours: Call
    twin: Call


def normed(product: Tensor, residual: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, eight: bool) -> list[Tensor]:
    """LayerNorm(product + bias + residual), its statistics, and its rows in eight bits where asked for."""
    values = product.float() + residual.float() + bias
    deviations, means = torch.var_mean(values, 1, correction=0, keepdim=True)
    inverse = torch.rsqrt(deviations + EPSILON)
    scaled = (values - means) * inverse * weight + shift
    rows8 = [(scaled * ACTIVATION).to(torch.float8_e4m3fn)] if eight else []
    return [scaled.to(product.dtype), means, inverse, *rows8]


def normed_back(
    d_out: Tensor,
    product: Tensor,
    residual: Tensor,
    bias: Tensor,
    weight: Tensor,
    means: Tensor,
    inverse: Tensor,
    eight: bool,
) -> list[Tensor]:
    """The gradient of the sum and those of weight, shift and bias."""
    grad = d_out.float()
    normal = (product.float() + residual.float() + bias - means[:, None]) * inverse[:, None]
    scaled = grad * weight
    along, level = (scaled * normal).mean(1, keepdim=True), scaled.mean(1, keepdim=True)
    summed = (scaled - normal * along - level) * inverse[:, None]
    rows8 = []
    if eight:
        scales = summed.abs().amax(1) / LARGEST
        rows8 = [(summed / scales[:, None]).to(torch.float8_e4m3fn), scales]
    return [summed.to(product.dtype), (grad * normal).sum(0), grad.sum(0), summed.sum(0), *rows8]


def activated(product: Tensor, bias: Tensor, eight: bool) -> list[Tensor]:
    """GELU with the bias before it."""
    active = F.gelu(product.float() + bias)
    return [active.to(product.dtype), *([(active * ACTIVATION).to(torch.float8_e4m3fn)] if eight else [])]


def activated_back(
    grad: Tensor, product: Tensor, bias: Tensor, scales: Tensor, gain: Tensor, eight: bool
) -> list[Tensor]:
    """The product's gradient, and the bias's."""
    d_product = torch.ops.aten.gelu_backward(grad.float(), product.float() + bias)
    rows8 = []
    if eight:
        larger = scales * gain
        rows8 = [(d_product / larger[:, None]).to(torch.float8_e4m3fn), larger]
    return [d_product.to(grad.dtype), d_product.sum(0), *rows8]


def cross_entropy(logits: Tensor, bias: Tensor, targets: Tensor, scale: Tensor) -> list[Tensor]:
    """Losses, hits, and the gradient of scale times the summed loss."""
    scores = logits[:, : bias.shape[0]].float() + bias
    normaliser = scores.logsumexp(1)
    wanted = scores.gather(1, targets[:, None])[:, 0]
    grad = (scores - normaliser[:, None]).exp().scatter_add(1, targets[:, None], -torch.ones_like(wanted)[:, None])
    hits = (wanted >= scores.amax(1)).float()
    return [normaliser - wanted, hits, F.pad((grad * scale).to(logits.dtype), (0, logits.shape[1] - bias.shape[0]))]


def embedded(
    ids: tuple[Tensor, Tensor], table: Tensor, places: Tensor, weight: Tensor, shift: Tensor, eight: bool
) -> list[Tensor]:
    """Token + place, normalised."""
    rows = places[ids[1]]
    return normed(table[ids[0]], rows, torch.zeros_like(weight), weight, shift, eight)


def narrowed(stack_GRK: Tensor) -> list[Tensor]:
    """Every row of every matrix in eight bits, with its scale."""
    values = stack_GRK.float()
    scales = values.abs().amax(2).clamp(min=1e-20) / LARGEST
    return [(values / scales[..., None]).to(torch.float8_e4m3fn).contiguous(), scales]


def narrowed_and_summed(rows: Tensor) -> list[Tensor]:
    """Rows in eight bits, and the sum of all as they were."""
    return [*narrowed(rows[None]), rows.float().sum(0)]


class FlashTwin:
    """FlashAttention of packed sequences: biases are added before it, and their gradients summed after it."""

    def __init__(self, qkv_T3HE: Tensor, bias: Tensor, cu_seqlens: Tensor, length: int) -> None:
        self.qkv, self.cu_seqlens, self.length = qkv_T3HE.detach(), cu_seqlens, length
        self.bias = bias.view(1, *qkv_T3HE.shape[1:])
        shifted = self._shifted().requires_grad_()
        self.leaf, self.out = shifted, self._mix(shifted)

    def _shifted(self) -> Tensor:
        return (self.qkv + self.bias).to(self.qkv.dtype)

    def _mix(self, shifted: Tensor) -> Tensor:
        bounds = (self.cu_seqlens, self.cu_seqlens, self.length, self.length)
        mixed: Tensor = torch.ops.aten._flash_attention_forward(*shifted.unbind(1), *bounds, 0.0, False, False)[0]
        return mixed

    def forward(self) -> list[Tensor]:
        """The mixed values."""
        with torch.no_grad():
            return [self._mix(self._shifted())]

    def backward(self, grad: Tensor) -> list[Tensor]:
        """The packed gradient, and the biases'."""
        (found,) = torch.autograd.grad(self.out, self.leaf, grad, retain_graph=True)
        return [found, found.flatten(1).sum(0, dtype=torch.float32)]


def passes(config: BertConfig, tokens: int, device: str, *, eight: bool, wrap: Callable[[Any], Any]) -> Iterator[Pair]:
    """LayerNorm and GELU of all layers, copies in eight bits, embeddings and the loss."""
    hidden, wide, layers = config.hidden_size, config.intermediate_size, config.num_layers
    half = partial(_half, device=device)
    product, residual, d_out = half(tokens, hidden), half(tokens, hidden), half(tokens, hidden)
    bias, weight, shift = (torch.randn(hidden, device=device) for _ in range(3))
    up, d_up, wide_bias = half(tokens, wide), half(tokens, wide), torch.randn(wide, device=device)
    known = norm_forward(product, residual, bias, weight, shift, EPSILON)
    given = product, residual, bias, weight
    statistics = known.means, known.deviations
    scales, gain = torch.full((tokens,), 0.01, device=device), torch.full((1,), 2.0, device=device)
    yield Pair(
        "LayerNorm",
        2 * layers,
        partial(norm_forward, *given, shift, EPSILON, eight=eight),
        partial(wrap(normed), *given, shift, eight),
    )
    yield Pair(
        "LayerNorm backward",
        2 * layers,
        partial(norm_backward, d_out, *given, *statistics, eight=eight),
        partial(wrap(normed_back), d_out, *given, *statistics, eight),
    )
    yield Pair(
        "GELU",
        layers,
        partial(gelu_forward, up, wide_bias, eight=eight),
        partial(wrap(activated), up, wide_bias, eight),
    )
    narrow = (scales, gain) if eight else ()
    yield Pair(
        "GELU backward",
        layers,
        lambda: gelu_backward_(d_up, up, wide_bias, *narrow),
        partial(wrap(activated_back), d_up.clone(), up, wide_bias, scales, gain, eight),
    )
    if eight:
        weights, d_qkv = half(layers, wide, hidden), half(tokens, 3 * hidden)
        for name, stack in (("weights in eight bits", weights), ("the same, transposed", weights.mT)):
            yield Pair(name, STACKS, partial(narrow_rows, stack), partial(wrap(narrowed), stack))
        yield Pair(
            "rows in eight bits and their sum, of 512 alone",
            layers,
            partial(narrow_and_sum, d_qkv),
            partial(wrap(narrowed_and_summed), d_qkv),
        )
    num_masked, vocab = int(MASKED * tokens), config.vocab_size
    logits = half(num_masked, -(-vocab // MULTIPLE) * MULTIPLE)
    loss = (
        torch.randn(vocab, device=device),
        torch.randint(vocab, (num_masked,), device=device),
        torch.full((), 0.5, device=device),
    )
    yield Pair(
        "cross-entropy", 1, partial(cross_entropy_, logits.clone(), *loss), partial(wrap(cross_entropy), logits, *loss)
    )
    table, places = half(vocab, hidden), torch.randn(config.num_segments * config.max_positions, hidden, device=device)
    ids = torch.randint(vocab, (tokens,), device=device), torch.randint(len(places), (tokens,), device=device)
    yield Pair(
        "LayerNorm of embeddings",
        1,
        partial(norm_forward, table, places, torch.zeros_like(bias), weight, shift, EPSILON, ids=ids, eight=eight),
        partial(wrap(embedded), ids, table, places, weight, shift, eight),
    )


def attention(config: BertConfig, tokens: int, length: int, device: str) -> Iterator[Pair]:
    """Of full rows, short or long."""
    shape = tokens, 3, config.num_heads, config.head_size
    qkv, grad = _half(*shape, device=device), _half(tokens, *shape[2:], device=device)
    bias = torch.randn(3 * config.hidden_size, device=device)
    bounds = torch.arange(0, tokens + 1, length, device=device, dtype=torch.int32)
    twin, calls = FlashTwin(qkv, bias, bounds, length), config.num_layers
    if length <= LONGEST:
        forward: Call = partial(attention_forward, qkv, bias, bounds, length)
        backward: Call = partial(attention_backward, grad, qkv, bias, bounds, length)
    else:  # the product before it has added its biases
        out, normalisers = long_attention_forward(qkv, bounds, length)
        forward = partial(long_attention_forward, qkv, bounds, length)
        backward = partial(long_attention_backward, grad, qkv, out, normalisers, bounds, length)
    yield Pair(f"attention, {length}", calls, forward, twin.forward)
    yield Pair(f"attention backward, {length}", calls, backward, partial(twin.backward, grad))


def _half(*shape: int, device: str) -> Tensor:
    return torch.randn(*shape, device=device).bfloat16()


@dataclass(frozen=True)
class Gain:
    """What one kernel saves."""

    kernel: str
    calls: int
    ms: float
    twin_ms: float
    share: float  # of a step
    seconds: float  # until the twin had run for the first time: compiled where it is
    plain_ms: float | None = None  # of the twin that is not compiled
    plain_share: float | None = None


HEAD = (
    "| kernel | calls a step | ms | twin's ms | saved of a step | the twin's first call, s | plain torch's ms | saved |\n"
    "|---|---|---|---|---|---|---|---|"
)


def line(gain: Gain) -> str:
    """Of the table."""
    cells = [f"{gain.ms:.3f}", f"{gain.twin_ms:.3f}", f"{100 * gain.share:.1f} %", f"{gain.seconds:.1f}"]
    if gain.plain_ms is not None and gain.plain_share is not None:
        cells += [f"{gain.plain_ms:.3f}", f"{100 * gain.plain_share:.1f} %"]
    return f"| {gain.kernel} | {gain.calls} | {' | '.join([*cells, '', ''][:6])} |"


def measure(pair: Pair, plain: Pair | None, step_ms: float, milliseconds: Callable[[Call], float]) -> Gain:
    """A kernel, its twin, and the twin as plain torch runs it."""
    began = time.perf_counter()
    pair.twin()
    first = time.perf_counter() - began
    ours, twin = milliseconds(pair.ours), milliseconds(pair.twin)
    gain = Gain(pair.name, pair.calls, ours, twin, pair.calls * (twin - ours) / step_ms, first)
    if plain is None:
        return gain
    alone = milliseconds(plain.twin)
    return replace(gain, plain_ms=alone, plain_share=pair.calls * (alone - ours) / step_ms)


def main() -> None:
    """Time every pair, and print what is saved."""
    from triton.testing import do_bench

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[128, 512], help="of the rows that attention is given"
    )
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--rate", type=float, default=1.02e6)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bf16", action="store_true", help="without eight bits")
    given = parser.parse_args()
    config, step_ms = preset(given.size), 1e3 * given.tokens / given.rate
    compiled = partial(torch.compile, dynamic=False)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; a step takes {step_ms:.1f} ms\n\n{HEAD}")
    milliseconds = partial(do_bench, warmup=20, rep=60, return_mode="median")
    make = partial(passes, config, given.tokens, "cuda", eight=not given.bf16)
    pairs: Iterator[tuple[Pair, Pair | None]] = zip(make(wrap=compiled), make(wrap=lambda twin: twin), strict=True)
    flash = chain.from_iterable(attention(config, given.tokens, length, "cuda") for length in given.lengths)
    gains = []
    for pair, plain in chain(pairs, ((pair, None) for pair in flash)):
        gains.append(measure(pair, plain, step_ms, milliseconds))
        print(line(gains[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(gain) for gain in gains], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
