"""New words in a checkpoint: rows that are means of the old pieces, everything else as it was, loadable by others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertForMaskedLM

from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.engines.choose import use_engine
from bertkit.inference.extend_vocabulary import extend_bert, extend_checkpoint
from bertkit.inference.loading import load
from bertkit.model import BertModel, preset
from bertkit.model.formats.sentence_transformers import SentenceStyle
from bertkit.tasks.registry import StoredTask
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import train_vocabulary

WORDS = ["myocarditis", "Penicillin", "the"]
NEW = ["myocarditis", "penicillin"]
TEXT = "The dog sleeps in the [MASK]."


def tiny(**changes: Any) -> Bert:
    """Narrow, with large weights so that rows differ visibly, and three unused rows."""
    lines = [sentence for document in sample_documents() for sentence in document]
    tokenizer = train_vocabulary(lines, size=600, lowercase=True, num_unused=3)
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "max_positions": 64, "initializer_range": 0.5}
    config = preset("tiny", **{"vocab_size": tokenizer.vocab_size, **sizes, **changes})
    model = BertModel(config)
    assert model.mlm is not None
    torch.nn.init.normal_(model.mlm.bias)
    return Bert(model, tokenizer)


@pytest.mark.parametrize("tied_decoder", [True, False])
@pytest.mark.parametrize("into_unused", [True, False])
def test_new_rows_are_means_and_old_ones_stay(into_unused: bool, tied_decoder: bool) -> None:
    bert = tiny(tied_decoder=tied_decoder)
    old_size = bert.config.vocab_size
    before = {name: tensor.clone() for name, tensor in bert.model.state_dict().items()}
    extended, report = extend_bert(bert, WORDS, into_unused=into_unused)
    tables = {name for name, tensor in before.items() if tensor.shape[:1] == (old_size,)}
    assert len(tables) == (2 if tied_decoder else 3)
    rows = [entry.id for entry in report.added]
    kept = [row for row in range(old_size) if row not in rows]
    for name, tensor in extended.model.state_dict().items():
        if name not in tables:
            assert torch.equal(tensor, before[name])
            continue
        assert len(tensor) == old_size + 2 * (not into_unused)
        assert torch.equal(tensor[kept], before[name][kept])
        for entry in report.added:
            assert len(entry.pieces) > 1
            torch.testing.assert_close(tensor[entry.id], before[name][entry.pieces].mean(0))
    assert extended.config.vocab_size == extended.tokenizer.vocab_size == old_size + 2 * (not into_unused)


@pytest.mark.parametrize("into_unused", [True, False])
@pytest.mark.parametrize("tied_decoder", [True, False])
def test_transformers_loads_it_with_the_same_ids_and_numbers(
    into_unused: bool, tied_decoder: bool, tmp_path: Path
) -> None:
    source, target = tiny(tied_decoder=tied_decoder).save(tmp_path / "old"), tmp_path / "new"
    extend_checkpoint(source, WORDS, target, into_unused=into_unused)
    ours = load(target, device="cpu")
    theirs, tokenizer = BertForMaskedLM.from_pretrained(target).eval(), AutoTokenizer.from_pretrained(target)
    text = "Myocarditis needs penicillin, and the [MASK]."
    ids = tokenizer(text, return_tensors="pt")
    assert ids["input_ids"][0].tolist() == ours.tokenizer.encode(text).ids
    with torch.no_grad():
        logits = theirs(**ids).logits[0]
        hidden = ours.encode(text).layers[-1]
        assert logits.shape[-1] == ours.config.vocab_size
        torch.testing.assert_close(ours.model.mlm_logits(torch.as_tensor(hidden)), logits, atol=1e-4, rtol=1e-4)


def test_text_without_the_new_words_is_read_as_before(tmp_path: Path) -> None:
    source = tiny().save(tmp_path / "old")
    extend_checkpoint(source, WORDS, tmp_path / "new")
    old, new = load(source, device="cpu"), load(tmp_path / "new", device="cpu")
    assert old.tokenizer.encode(TEXT).ids == new.tokenizer.encode(TEXT).ids
    assert abs(old.embed(TEXT) - new.embed(TEXT)).max() == 0


def test_a_table_larger_than_the_vocabulary_is_used_before_it_grows() -> None:
    bert = tiny()
    size = bert.tokenizer.vocab_size
    wide = BertModel(replace(bert.config, vocab_size=size + 1))
    extended, report = extend_bert(Bert(wide, bert.tokenizer), WORDS)
    assert [entry.id for entry in report.added] == [size, size + 1]
    assert (report.num_rows, extended.config.vocab_size) == (size + 2, size + 2)
    one, report = extend_bert(Bert(BertModel(replace(bert.config, vocab_size=size + 8)), bert.tokenizer), WORDS)
    assert (one.tokenizer.vocab_size, report.num_rows) == (size + 2, size + 8)


def test_half_precision_and_headless_models_are_extended() -> None:
    bert = tiny()
    headless = BertModel(bert.config.with_heads(["pooler"])).to(torch.bfloat16)
    extended, report = extend_bert(Bert(headless, bert.tokenizer), WORDS)
    table = extended.model.encoder.embeddings.token.weight
    assert table.dtype == torch.bfloat16
    entry = report.added[0]
    assert torch.equal(table[entry.id], table[entry.pieces].float().mean(0).bfloat16())


def test_the_report_tells_before_and_after() -> None:
    _, report = extend_bert(tiny(), WORDS, held_out=["Myocarditis needs penicillin."])
    assert [entry.word for entry in report.skipped] == ["the"]
    assert report.before is not None
    assert report.after is not None
    assert report.before.fertility > report.after.fertility
    stored = json.loads(json.dumps(report.to_json()))
    assert [entry["word"] for entry in stored["added"]] == NEW
    assert stored["pieces_before"] == sum(len(entry["pieces"]) for entry in stored["added"]) / 2
    shown = "\n".join(report.lines())
    assert "skipped: the is whole already" in shown
    assert "held-out text: " in shown


def test_the_checkpoint_itself_is_not_written_over(tmp_path: Path) -> None:
    source = tiny().save(tmp_path / "old")
    with pytest.raises(BertkitError, match="is the checkpoint itself"):
        extend_checkpoint(source, WORDS, source)


def test_the_file_of_a_checkpoint_is_the_checkpoint_itself(tmp_path: Path) -> None:
    source = tiny().save(tmp_path / "old")
    with pytest.raises(BertkitError, match="is the checkpoint itself"):
        extend_checkpoint(source / "model.safetensors", WORDS, source)


def test_what_it_was_tuned_for_stays(tmp_path: Path) -> None:
    bert = tiny(heads=("mlm", "span"))
    stored = StoredTask("answering", {"no_answer_threshold": 1.5}, 32, "error", 4)
    source = Bert(bert.model, bert.tokenizer, stored=stored).save(tmp_path / "old")
    extend_checkpoint(source, WORDS, tmp_path / "new")
    assert load(tmp_path / "new", device="cpu").stored == load(source, device="cpu").stored
    styled = Bert(tiny().model, bert.tokenizer, style=SentenceStyle("cls", True, 32))
    assert extend_bert(styled, WORDS)[0].style == styled.style


def test_an_engine_with_the_old_rows_is_left() -> None:
    bert = use_engine(tiny(), "onnx", threads=1)
    extended, _ = extend_bert(bert, WORDS)
    again, _ = extend_bert(tiny(), WORDS)
    assert (extended.embed("Myocarditis!") == again.embed("Myocarditis!")).all()
