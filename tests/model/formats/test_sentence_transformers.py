"""Folders of sentence-transformers: their pooling, normalisation and length are read, honoured, written and told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertkit
from bertkit.errors import BertkitError, LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.model.formats.sentence_transformers import SentenceStyle, read_style, write_style

TEXTS = ["The dog sleeps.", "", "A very long walk by the river " * 4, "Ünïcödé 中文"]
PARTS = [("Transformer", ""), ("Pooling", "1_Pooling")]


@pytest.fixture(scope="module")
def bert() -> Bert:
    return untrained(0, num_layers=2, max_positions=64, initializer_range=0.3)


def lay_out(folder: Path, pooling: Any, parts: list[tuple[str, str]] = PARTS, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(parts)
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    contents = {"modules": modules, "1_Pooling/config": pooling, **files}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["max"]}, "max"),
        ({"embedding_dimension": 8}, "mean"),
    ],
)
def test_both_spellings_of_pooling(config: dict[str, Any], pooling: str, tmp_path: Path) -> None:
    style, departures = read_style(lay_out(tmp_path, config))
    assert style == SentenceStyle(pooling)  # type: ignore[arg-type]
    assert departures == []


def test_normalisation_and_length(tmp_path: Path) -> None:
    parts = [*PARTS, ("Normalize", "2_Normalize")]
    folder = lay_out(tmp_path, {"pooling_mode": "mean"}, parts, sentence_bert_config={"max_seq_length": 40})
    assert read_style(folder)[0] == SentenceStyle("mean", True, 40)


@pytest.mark.parametrize(
    ("pooling", "parts", "files", "said"),
    [
        ({"pooling_mode": ["cls", "mean"]}, PARTS, {}, "pools by cls and mean"),
        ({"pooling_mode_weightedmean_tokens": True}, PARTS, {}, "pools by weightedmean"),
        ({"pooling_mode": "mean"}, [*PARTS, ("Dense", "2_Dense")], {}, "goes on with Dense"),
        ({"pooling_mode": "mean"}, PARTS, {"sentence_bert_config": {"do_lower_case": True}}, "lower-cases texts"),
        (
            {"pooling_mode": "mean"},
            PARTS,
            {"config_sentence_transformers": {"prompts": {"q": "query: "}, "default_prompt_name": "q"}},
            "puts 'query: ' before every text",
        ),
        ([], PARTS, {}, "cannot be read"),
    ],
)
def test_what_bertkit_does_otherwise_is_told(
    pooling: Any, parts: list[tuple[str, str]], files: dict[str, Any], said: str, bert: Bert, tmp_path: Path
) -> None:
    lay_out(bert.save(tmp_path / "model"), pooling, parts, **files)
    with pytest.warns(UserWarning, match=said):
        assert bertkit.load(tmp_path / "model", device="cpu").embed_options().pooling == "mean"


def test_conversion_takes_parts_of_other_kinds_along(bert: Bert, tmp_path: Path) -> None:
    parts = [*PARTS, ("Dense", "2_Dense"), ("Dense", "../elsewhere"), ("Dense", "absent")]
    source = lay_out(bert.save(tmp_path / "source"), {"pooling_mode": "cls"}, parts)
    (tmp_path / "elsewhere").mkdir()
    (source / "2_Dense").mkdir()
    (source / "2_Dense" / "model.safetensors").write_bytes(b"weights")
    with pytest.warns(UserWarning, match="goes on with Dense"):
        bertkit.convert(source, tmp_path / "target")
    assert (tmp_path / "target" / "2_Dense" / "model.safetensors").read_bytes() == b"weights"
    assert (tmp_path / "target" / "modules.json").read_bytes() == (source / "modules.json").read_bytes()


def test_an_ordinary_folder_has_no_style(bert: Bert, tmp_path: Path) -> None:
    assert read_style(bert.save(tmp_path)) == (None, [])
    assert bertkit.load(tmp_path, device="cpu").style is None


@pytest.mark.parametrize("style", [SentenceStyle(), SentenceStyle("cls", True, 40), SentenceStyle("max", False, 64)])
def test_what_is_written_is_read_and_gives_the_same_vectors_there(
    style: SentenceStyle, bert: Bert, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    styled = Bert(bert.model, bert.tokenizer, style=style)
    folder = styled.save(tmp_path / "model")
    assert read_style(folder)[0] == SentenceStyle(style.pooling, style.normalize, style.max_length or 64)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == (style.max_length or 64)
    ours = bertkit.load(folder, device="cpu")
    assert np.abs(ours.embed(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5
    long = "the dog ran to the house and slept . " * 12
    with pytest.warns(LongTextWarning):
        cut = ours.embed(long, long="truncate")
    assert np.abs(cut - theirs.encode(long)).max() < 1e-5


def test_a_folder_that_sentence_transformers_wrote_is_honoured(bert: Bert, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = Bert(bert.model, bert.tokenizer, style=SentenceStyle("cls", True, 32)).save(tmp_path / "ours")
    theirs = SentenceTransformer(str(folder), device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    loaded = bertkit.load(tmp_path / "theirs", device="cpu")
    assert loaded.style == SentenceStyle("cls", True, 32)
    assert np.abs(loaded.embed(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5
    plain = loaded.embed(TEXTS, pooling="mean", normalize=False, max_length=None)
    assert np.abs(plain - bert.embed(TEXTS)).max() < 1e-5


def test_a_task_head_makes_it_another_model(bert: Bert, tmp_path: Path) -> None:
    from bertkit.model import BertModel

    config = bert.config.with_heads(["pooler", "classifier"], labels=("a", "b"))
    Bert(BertModel(config), bert.tokenizer, style=SentenceStyle()).save(tmp_path)
    assert not (tmp_path / "modules.json").exists()


def test_bad_styles(bert: Bert, tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match="unknown pooling 'median'"):
        SentenceStyle("median")  # type: ignore[arg-type]
    with pytest.raises(BertkitError, match="max_length is 2"):
        SentenceStyle(max_length=2)
    (tmp_path / "1_Pooling").write_text("a file")
    with pytest.raises(BertkitError, match="cannot be written"):
        write_style(tmp_path, SentenceStyle(), bert.config)


def test_info_tells_the_style(bert: Bert, tmp_path: Path) -> None:
    from bertkit.inference.describe import describe

    Bert(bert.model, bert.tokenizer, style=SentenceStyle("mean", True, 40)).save(tmp_path)
    assert ("sentence vectors", "mean, scaled to length 1, up to 40 tokens") in describe(str(tmp_path)).rows()
