"""Start and end cross-entropy on packed sequences: as each sequence by itself, in any shape, compiled, in half precision."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.tasks.answering.loss import ENDS, STARTS, segment_log_softmax, span_loss_sum
from bertkit.tasks.task import IGNORED

LENGTHS = (5, 1, 9, 3)
STARTS_AT, ENDS_AT = (2, 0, 0, 1), (4, 0, 0, 1)


def make(scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, targets and segments of four sequences end to end."""
    torch.manual_seed(0)
    scores = torch.randn(sum(LENGTHS), 2) * scale
    targets = torch.zeros(sum(LENGTHS), dtype=torch.int64)
    first = 0
    for length, start, end in zip(LENGTHS, STARTS_AT, ENDS_AT, strict=True):
        targets[first + start] |= STARTS
        targets[first + end] |= ENDS
        first += length
    return scores, targets, torch.repeat_interleave(torch.tensor(LENGTHS))


def one_by_one(scores: Tensor) -> Tensor:
    losses = []
    for part, start, end in zip(scores.float().split(LENGTHS), STARTS_AT, ENDS_AT, strict=True):
        losses.append(F.cross_entropy(part.T, torch.tensor([start, end])))
    return torch.stack(losses).sum()


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_loss_and_gradient_are_those_of_each_sequence_by_itself(scale: float) -> None:
    scores, targets, segments = make(scale)
    ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    loss, expected = span_loss_sum(ours, targets, segments, 4), one_by_one(theirs)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    expected.backward()
    assert ours.grad is not None
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)  # type: ignore[arg-type]


def test_rows_that_only_fill_the_shape_change_nothing() -> None:
    scores, targets, segments = make()
    filled = torch.cat([scores, torch.full((6, 2), 99.0)]).requires_grad_()
    more_targets = F.pad(targets, (0, 6), value=IGNORED)
    # Four rows are copies of row 0, as a filled-up batch has them, two belong to a sequence that has nothing else.
    more_segments = torch.cat([segments, torch.tensor([0, 0, 0, 0, 4, 4])])
    loss = span_loss_sum(filled, more_targets, more_segments, 7)
    assert loss.item() == pytest.approx(span_loss_sum(scores, targets, segments, 4).item(), rel=1e-6)
    loss.backward()
    assert filled.grad is not None
    assert torch.isfinite(filled.grad).all()
    assert not filled.grad[-6:].any()


def test_a_sequence_whose_truth_is_not_known_costs_nothing() -> None:
    scores, targets, segments = make()
    unknown = targets.masked_fill(segments == 2, IGNORED)
    kept = span_loss_sum(scores, targets, segments, 4) - span_loss_sum(scores, unknown, segments, 4)
    alone = F.cross_entropy(scores[6:15].T, torch.tensor([0, 0]))
    assert float(kept) == pytest.approx(float(alone), rel=1e-4)
    assert float(span_loss_sum(scores, torch.full_like(targets, IGNORED), segments, 4)) == 0.0


def test_half_precision_scores_are_reduced_in_float32() -> None:
    scores, targets, segments = make()
    half = scores.bfloat16()
    loss = span_loss_sum(half, targets, segments, 4)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(float(one_by_one(half)), rel=1e-6)


def test_it_compiles_in_one_piece() -> None:
    scores, targets, segments = make()
    compiled = torch.compile(span_loss_sum, backend="aot_eager", fullgraph=True)
    ours = scores.clone().requires_grad_()
    loss = compiled(ours, targets, segments, 4)
    loss.backward()
    assert loss.item() == pytest.approx(float(one_by_one(scores)), rel=1e-6)


def test_the_same_bits_every_time() -> None:
    scores, targets, segments = make()
    losses = {span_loss_sum(scores, targets, segments, 4).item() for _ in range(20)}
    assert len(losses) == 1


def test_log_softmax_within_segments() -> None:
    scores, _, segments = make()
    found = segment_log_softmax(scores, segments, 4)
    expected = torch.cat([part.log_softmax(0) for part in scores.split(LENGTHS)])
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own, while it compiles
def test_on_a_gpu_in_half_precision_compiled() -> None:
    scores, targets, segments = (tensor.cuda() for tensor in make())
    half = scores.bfloat16().requires_grad_()
    loss = torch.compile(span_loss_sum, fullgraph=True)(half, targets, segments, 4)
    loss.backward()
    assert loss.item() == pytest.approx(float(one_by_one(half.detach().cpu())), rel=1e-5)
