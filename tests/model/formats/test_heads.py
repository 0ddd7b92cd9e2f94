"""Which heads a loaded model has: those of the file, or those asked for, with labels that mean what they say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit.errors import BertkitError
from bertkit.model.formats import load_model, save_model
from tests.model.formats.peers import LABELS, assert_one_line, make_model, make_peer


def test_new_heads_are_expected_and_reported(tmp_path: Path) -> None:
    save_model(make_model("pooler", "mlm"), tmp_path)
    model, report = load_model(tmp_path, heads=["pooler", "nsp", "classifier"], labels=["ham", "spam"])
    assert model.config.heads == ("pooler", "nsp", "classifier")
    assert report.heads == ("pooler",)
    assert report.new == ("nsp", "classifier (2 labels)")
    assert "cls.predictions.bias" in report.ignored
    assert model.classifier is not None
    assert model.classifier.weight.shape == (2, 32)
    assert 0.01 < float(model.classifier.weight.detach().std()) < 0.04
    assert not model.classifier.bias.any()
    assert all(parameter.requires_grad and not parameter.is_meta for parameter in model.parameters())
    assert torch.equal(model.state_dict()["pooler.weight"], make_model("pooler", "mlm").state_dict()["pooler.weight"])


@pytest.mark.parametrize("tied", [True, False])
def test_new_mlm_head(tied: bool, tmp_path: Path) -> None:
    save_model(make_model("pooler", tied_decoder=tied), tmp_path)
    model, report = load_model(tmp_path, heads=["mlm"], dtype=torch.bfloat16)
    assert report.new == ("mlm",)
    assert model.mlm is not None
    assert (model.mlm.decoder is None) == tied
    assert bool((model.mlm.norm.weight == 1).all())
    assert not model.mlm.bias.any()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_no_heads_asked_for(tmp_path: Path) -> None:
    save_model(make_model("pooler", "mlm", "nsp"), tmp_path)
    model, report = load_model(tmp_path, heads=[])
    assert model.config.heads == ()
    assert len(report.ignored) == 9


@pytest.mark.parametrize("heads", [["mlm", "decoder"], ["nsp"], ["pooler", "classifier"]])
def test_impossible_wishes(heads: Any, tmp_path: Path) -> None:
    save_model(make_model("pooler"), tmp_path)
    with pytest.raises(BertkitError) as caught:
        load_model(tmp_path, heads=heads)
    assert_one_line(caught.value)


def test_labels_in_another_order_are_refused(tmp_path: Path) -> None:
    save_model(make_model("tagger"), tmp_path)
    assert load_model(tmp_path, labels=LABELS)[0].config.labels == LABELS
    with pytest.raises(BertkitError) as caught:
        load_model(tmp_path, labels=LABELS[::-1])
    assert_one_line(caught.value, "config.json", *LABELS)


def test_other_labels_mean_a_new_head(tmp_path: Path) -> None:
    save_model(make_model("pooler", "classifier"), tmp_path)
    model, report = load_model(tmp_path, heads=["pooler", "classifier"], labels=["a", "b", "c", "d"])
    assert model.config.labels == ("a", "b", "c", "d")
    assert report.new == ("classifier (4 labels)",)
    assert set(report.ignored) == {"classifier.weight", "classifier.bias"}


def test_labels_without_names_take_the_given_ones(tmp_path: Path) -> None:
    make_peer("BertForSequenceClassification", id2label=None, label2id=None, num_labels=2).save_pretrained(tmp_path)
    assert load_model(tmp_path)[0].config.labels == ("LABEL_0", "LABEL_1")
    model, report = load_model(tmp_path, labels=["no", "yes"])
    assert model.config.labels == ("no", "yes")
    assert report.new == ()


def test_labels_that_do_not_fit_the_tensor(tmp_path: Path) -> None:
    save_model(make_model("tagger"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"id2label": {"0": "O"}}))
    with pytest.raises(BertkitError) as caught:
        load_model(tmp_path)
    assert_one_line(caught.value, "config.json", "1 labels", "3 rows")


def test_one_label_is_regression(tmp_path: Path) -> None:
    make_peer("BertForSequenceClassification", id2label=None, label2id=None, num_labels=1).save_pretrained(tmp_path)
    assert load_model(tmp_path)[0].config.problem == "regression"


@pytest.mark.parametrize(("pooler", "head"), [(True, "classifier"), (False, "tagger")])
def test_unknown_architecture_is_told_by_its_pooler(pooler: bool, head: str, tmp_path: Path) -> None:
    heads = ("pooler", "classifier") if pooler else ("tagger",)
    save_model(make_model(*heads), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path)[0].config.heads == ((("pooler",) if pooler else ()) + (head,))


def test_multiple_choice_is_no_regression(tmp_path: Path) -> None:
    make_peer("BertForMultipleChoice").save_pretrained(tmp_path)
    model, report = load_model(tmp_path)
    assert model.config.heads == ("pooler",)
    assert set(report.ignored) == {"classifier.weight", "classifier.bias"}


def test_report_in_words_and_json(tmp_path: Path) -> None:
    save_model(make_model("pooler", "mlm", "nsp"), tmp_path)
    _, report = load_model(tmp_path, heads=["mlm", "span"])
    lines = "\n".join(report.lines())
    assert "read model.safetensors (safetensors, float32): 42 tensors" in lines
    assert "heads from the file: mlm" in lines
    assert "new, as asked, to be trained before use: span" in lines
    assert "ignored, not part of this model: bert.pooler.dense.bias" in lines
    data = json.loads(json.dumps(report.to_json()))
    assert data["new"] == ["span"]
    assert data["num_parameters"] == sum(p.numel() for p in load_model(tmp_path, heads=["mlm", "span"])[0].parameters())


def test_a_new_head_is_of_another_problem(tmp_path: Path) -> None:
    save_model(make_model("pooler", "classifier", labels=("score",), problem="regression"), tmp_path)
    assert load_model(tmp_path, labels=["good"])[0].config.problem == "regression"
    assert load_model(tmp_path, labels=["good", "bad"])[0].config.problem == "single_label"


@pytest.mark.parametrize("head", ["nsp", "classifier"])
def test_a_head_without_the_pooler_that_it_reads(head: Any, tmp_path: Path) -> None:
    save_model(make_model("pooler", head), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BertkitError) as caught:
        load_model(tmp_path)
    assert_one_line(caught.value, "model.safetensors", f"the {head} head is there", "heads=[]")
    assert load_model(tmp_path, heads=[])[0].config.heads == ()
    assert load_model(tmp_path, heads=["pooler", head])[1].new == ("pooler",)
