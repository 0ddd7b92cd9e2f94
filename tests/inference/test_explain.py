"""explain's numbers are those of an independent computation, its choices those of training's masking."""

import json
import math

import numpy as np
import pytest
import torch

from bertkit.corpus.masking import MaskingConfig
from bertkit.errors import BertkitError, LongTextError
from bertkit.inference.explain import explain
from bertkit.inference.explanation import Explanation
from bertkit.model import pack
from bertkit.model.config import Head
from tests.pages.tiny import tiny_bert

A, B = "my dog is cute", "he likes playing"


def explained(
    seed: int = 1, *, b: str | None = B, mask: bool = True, is_next: bool = True, rate: float = 0.4
) -> Explanation:
    bert, masking = tiny_bert(), MaskingConfig(rate=rate)
    return explain(bert.model, bert.tokenizer, A, b, mask=mask, seed=seed, is_next=is_next, masking=masking)


def test_pieces_segments_and_positions() -> None:
    found = explained(mask=False)
    assert [piece.token for piece in found.pieces] == ["[CLS]", *A.split(), "[SEP]", *B.split(), "[SEP]"]
    assert [piece.segment for piece in found.pieces] == [0] * 6 + [1] * 4
    assert [piece.position for piece in found.pieces] == list(range(10))
    assert [A[piece.start : piece.end] for piece in found.pieces if piece.text == 0] == A.split()
    assert all(piece.seen_id == piece.token_id for piece in found.pieces)


def test_embeddings_add_up() -> None:
    bert, found = tiny_bert(), explained()
    tables = bert.model.encoder.embeddings
    seen = torch.tensor([piece.seen_id for piece in found.pieces])
    segments = torch.tensor([piece.segment for piece in found.pieces])
    by_hand = tables.token.weight[seen] + tables.segment.weight[segments] + tables.position.weight[: len(seen)]
    np.testing.assert_allclose(found.embeddings.sum, by_hand.detach(), rtol=1e-6)
    centred = by_hand - by_hand.mean(-1, keepdim=True)
    normalized = centred / (by_hand.var(-1, unbiased=False, keepdim=True) + 1e-12).sqrt()
    np.testing.assert_allclose(found.embeddings.normalized, normalized.detach(), atol=1e-5)
    parts = np.array(found.embeddings.token) + np.array(found.embeddings.segment)[segments] + found.embeddings.position
    np.testing.assert_allclose(parts, found.embeddings.sum, atol=1e-6)


@pytest.mark.parametrize("is_next", [True, False])
def test_losses_are_those_of_the_logits(is_next: bool) -> None:
    bert, found = tiny_bert(), explained(is_next=is_next)
    assert found.masking is not None
    assert found.next_sentence is not None
    batch = pack([[piece.seen_id for piece in found.pieces]], [[piece.segment for piece in found.pieces]])
    with torch.no_grad():
        hidden = bert.model.encoder(batch)
        chosen = [choice.position for choice in found.masking.choices]
        token_p = bert.model.mlm_logits(hidden[chosen]).softmax(-1)
        pair_p = bert.model.nsp_logits(hidden[:1]).softmax(-1)[0]
    each = []
    for row, choice in zip(token_p, found.masking.choices, strict=True):
        truth = row[bert.tokenizer.id(choice.token)]
        each.append(-math.log(truth))
        assert choice.probability == pytest.approx(float(truth), rel=1e-4)
        assert choice.rank == 1 + int((row > truth).sum())
        assert choice.loss == pytest.approx(each[-1], rel=1e-4)
        best = row.argsort(descending=True)[:5]
        assert [guess.token for guess in choice.top] == [bert.tokenizer.token(int(token)) for token in best]
        assert [guess.probability for guess in choice.top] == pytest.approx(row[best].tolist(), rel=1e-4)
    assert found.losses.mlm == pytest.approx(sum(each) / len(each), rel=1e-4)
    assert found.losses.nsp == pytest.approx(-math.log(pair_p[0 if is_next else 1]), rel=1e-4)
    assert found.losses.total == pytest.approx(sum(each) / len(each) - math.log(pair_p[0 if is_next else 1]), rel=1e-4)
    assert [found.next_sentence.p_next, found.next_sentence.p_not_next] == pytest.approx(pair_p.tolist(), rel=1e-4)


def test_choices_and_replacements_follow_the_draws() -> None:
    kinds = set()
    for seed in range(40):
        found = explained(seed)
        assert found.masking is not None
        assert found.masking.num_maskable == 7
        assert len(found.masking.choices) == 3
        for choice in found.masking.choices:
            piece = found.pieces[choice.position]
            expected = "mask" if choice.draw < 0.8 else "random" if choice.draw < 0.9 else "same"
            assert choice.replacement == expected
            assert (piece.token, piece.seen) == (choice.token, choice.seen)
            assert choice.seen == {"mask": "[MASK]", "same": choice.token}.get(expected, choice.seen)
            assert piece.text is not None
            kinds.add(expected)
    assert kinds == {"mask", "random", "same"}


def test_the_seed_decides_the_choices() -> None:
    def positions(seed: int) -> list[int]:
        masking = explained(seed).masking
        assert masking is not None
        return [choice.position for choice in masking.choices]

    assert positions(1) == positions(1)
    assert len({tuple(positions(seed)) for seed in range(10)}) > 1


def test_without_masks_nothing_is_said_of_mlm() -> None:
    found = explained(mask=False)
    assert found.masking is None
    assert found.losses.mlm is None
    assert found.losses.total == found.losses.nsp
    assert any("masking was not asked for" in note for note in found.notes)


def test_one_text_has_no_next_sentence() -> None:
    found = explained(b=None)
    assert found.next_sentence is None
    assert found.losses.total == found.losses.mlm
    assert any("One text alone" in note for note in found.notes)


@pytest.mark.parametrize(("heads", "parts"), [(("mlm",), "mlm"), (("pooler", "nsp"), "nsp"), ((), "")])
def test_missing_heads_are_said_and_skipped(heads: tuple[Head, ...], parts: str) -> None:
    bert = tiny_bert(heads)
    found = explain(bert.model, bert.tokenizer, A, B, mask=True, seed=1)
    assert found.masking is not None
    assert (found.masking.choices[0].probability is not None) == (parts == "mlm")
    assert (found.next_sentence is not None) == (parts == "nsp")
    assert found.losses.total == {"mlm": found.losses.mlm, "nsp": found.losses.nsp, "": None}[parts]
    assert len(found.notes) == (2 if not parts else 1)


def test_the_losses_of_one_head_equal_those_of_both() -> None:
    both = tiny_bert()
    alone = tiny_bert(("mlm",))
    alone.model.load_state_dict(both.model.state_dict(), strict=False)
    first, second = (explain(bert.model, bert.tokenizer, A, B, mask=True, seed=1) for bert in (both, alone))
    assert first.losses.mlm == pytest.approx(second.losses.mlm, rel=1e-6)


def test_json_is_plain() -> None:
    plain = explained().to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_the_model_is_left_as_it_was() -> None:
    bert = tiny_bert()
    bert.model.train()
    first, second = (explain(bert.model, bert.tokenizer, A, B, mask=True, seed=1) for _ in range(2))
    assert bert.model.training
    assert first == second


def test_bad_texts_are_one_line() -> None:
    bert = tiny_bert()
    with pytest.raises(BertkitError, match="no token to mask"):
        explain(bert.model, bert.tokenizer, "", None, mask=True, seed=1)
    with pytest.raises(LongTextError):
        explain(bert.model, bert.tokenizer, "dog " * 40, None, mask=True, seed=1)
