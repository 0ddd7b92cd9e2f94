"""Fixed and contextual vectors of words, their cosines and maps, word2vec files, pictures."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from bertkit.errors import BertkitError
from bertkit.inference.plots import plot_head, plot_heads, plot_words
from bertkit.inference.word2vec import read_word2vec
from bertkit.inference.words import EXAMPLES, Occurrence, compare_words, parse_occurrence, project
from bertkit.pages import AttentionData
from tests.pages.tiny import tiny_bert

VECTORS = {"fair": [1.0, 0.0, 0.5], "naïve": [0.0, -2.0, 1e-3], "unbiased": [0.25, 0.5, -1.0]}
PNG = b"\x89PNG\r\n"


def text_file(folder: Path, *, header: str = "3 3") -> Path:
    rows = [f"{word} {' '.join(map(str, values))}" for word, values in VECTORS.items()]
    path = folder / "vectors.txt"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def binary_file(folder: Path, newline: bytes = b"") -> Path:
    rows = [word.encode() + b" " + struct.pack("<3f", *values) + newline for word, values in VECTORS.items()]
    path = folder / "vectors.bin"
    path.write_bytes(b"3 3\n" + b"".join(rows))
    return path


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_fixed_and_contextual_cosines_are_those_of_the_vectors() -> None:
    bert = tiny_bert()
    found = compare_words(bert)
    rows = bert.model.encoder.embeddings.token.weight.detach().numpy()
    fair = rows[bert.tokenizer.id("fair")]
    unbiased = np.mean([rows[bert.tokenizer.id(piece)] for piece in ("un", "##bia", "##sed")], axis=0)
    assert found.fixed.cosines[0][1] == pytest.approx(1.0, abs=1e-6)
    assert found.fixed.cosines[0][2] == pytest.approx(cosine(fair, unbiased), abs=1e-5)
    vectors = [bert.encode(use.sentence).vectors for use in EXAMPLES]
    places = ([6], [2], [3, 4, 5])  # he didn ' t receive fair; fun fair; tom deserves un ##bia ##sed
    contextual = [layer[place].mean(axis=0) for layer, place in zip(vectors, places, strict=True)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert found.contextual.cosines[i][j] == pytest.approx(cosine(contextual[i], contextual[j]), abs=1e-5)
    assert found.contextual.cosines[0][1] < 0.999
    assert "input embedding" in found.fixed.name
    assert found.contextual.name == "layer 2 of 2"
    assert any("3 pieces (un ##bia ##sed)" in note for note in found.notes)
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


def test_layers_are_chosen_and_named() -> None:
    first = compare_words(tiny_bert(), layer=1)
    assert first.contextual.name == "layer 1 of 2"
    assert "layer 0" in compare_words(tiny_bert(), layer=0).contextual.name
    names = {num: compare_words(tiny_bert(num_layers=num)).contextual.name for num in (4, 6, 12, 15)}
    assert names == {
        4: "layer 4 of 4",
        6: "layers 5 to 6 of 6, averaged",
        12: "layers 9 to 12 of 12, averaged",
        15: "layers 12 to 15 of 15, averaged",
    }
    with pytest.raises(BertkitError, match="no layer 7"):
        compare_words(tiny_bert(), layer=7)


def test_the_first_of_several_is_taken_and_said() -> None:
    found = compare_words(tiny_bert(), [Occurrence("Dog", "my dog likes the dog"), Occurrence("fair", "fair")])
    assert (found.uses[0].start, found.uses[0].end) == (3, 6)
    assert any("occurs 2 times" in note for note in found.notes)


@pytest.mark.parametrize("sentence", ["my cat", "my dogs", "hotdog"])
def test_a_word_that_is_not_there(sentence: str) -> None:
    with pytest.raises(BertkitError, match="'dog' does not occur"):
        compare_words(tiny_bert(), [Occurrence("dog", sentence)])


def test_occurrences_are_parsed() -> None:
    assert parse_occurrence("fair = 1 = one, fair") == Occurrence("fair", "1 = one, fair")
    for bad in ("fair", "=sentence", "fair="):
        with pytest.raises(BertkitError, match="write it as"):
            parse_occurrence(bad)
    with pytest.raises(BertkitError, match="no words"):
        compare_words(tiny_bert(), [])


def distances(points: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(points[:, None] - points[None], axis=-1))


def test_principal_components() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(6, 2)) * [5.0, 2.0]
    turned = (plane @ np.linalg.qr(rng.normal(size=(8, 8)))[0][:2]).astype(np.float32) + 3
    found = project(turned)
    np.testing.assert_allclose(distances(np.array(found.points)), distances(plane), atol=1e-4)
    assert sum(found.shares) == pytest.approx(1.0)
    assert found.shares[0] > found.shares[1]
    assert project(turned[:1]).points == [[0.0, 0.0]]


@pytest.mark.parametrize("make", [text_file, binary_file, lambda folder: binary_file(folder, b"\n")])
def test_word2vec_files_are_read(tmp_path: Path, make: object) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        found = read_word2vec(file, ["unbiased", "naïve", "missing"])
        assert set(found) == {"unbiased", "naïve"}
        np.testing.assert_allclose(found["naïve"], VECTORS["naïve"])
        np.testing.assert_allclose(found["unbiased"], VECTORS["unbiased"])


def test_word2vec_vectors_take_the_place_of_the_rows(tmp_path: Path) -> None:
    found = compare_words(tiny_bert(), word2vec=text_file(tmp_path))
    expected = cosine(np.array(VECTORS["fair"]), np.array(VECTORS["unbiased"]))
    assert found.fixed.cosines[0][2] == pytest.approx(expected, abs=1e-6)
    assert "vectors.txt" in found.fixed.name
    with pytest.raises(BertkitError, match="no vector for 'dog'"):
        compare_words(tiny_bert(), [Occurrence("dog", "my dog")], word2vec=text_file(tmp_path))


def test_wide_vectors_in_text_are_no_binary(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 8000, dtype=np.float32)
    (tmp_path / "wide.txt").write_text("1 8000\ndog " + " ".join(f"{value:.9f}" for value in values) + "\n")
    np.testing.assert_allclose(read_word2vec(tmp_path / "wide.txt", ["dog"])["dog"], values, atol=1e-8)


def test_broken_word2vec_files_are_one_line(tmp_path: Path) -> None:
    text, binary = text_file(tmp_path), binary_file(tmp_path)
    cases = {
        "cut.bin": (binary.read_bytes()[:-5], "cut short"),
        "cut.txt": (b"\n".join(text.read_bytes().split(b"\n")[:3]), "cut short"),
        "word.bin": (b"3 3\n" + b"\0" * 20_000, "does not end"),
        "width.txt": (text.read_bytes().replace(b" 0.5 ", b" "), "line 4 is not a word and 3 numbers"),
        "empty.txt": (b"", "first line"),
        "glove.txt": (b"fair 0.1 0.2 0.3\n", "first line"),
        "huge.bin": (b"3 99999999999\n", "first line"),
        "nan.bin": (b"1 1\nfair " + struct.pack("<f", float("nan")), "not finite"),
        "bad.gz": (b"not packed", "cannot read"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BertkitError, match=message) as caught:
            read_word2vec(path, ["fair", "missing"])
        assert "\n" not in str(caught.value)
    with pytest.raises(BertkitError, match="cannot read"):
        read_word2vec(tmp_path / "nowhere.bin", ["fair"])


def test_pictures_are_written_without_warnings(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3, 4)).astype(np.float32)
    seen = AttentionData(("[CLS]", "$x^", "犬", "_$"), (0, 0, 0, 0), weights)
    plot_head(seen, tmp_path / "head.png", layer=2, head=3)
    plot_head(seen, tmp_path / "mean.png", layer=1)
    plot_heads(seen, tmp_path / "heads.png")
    plot_words(compare_words(tiny_bert(), [Occurrence("x", "$x$ $ _{"), *EXAMPLES]), tmp_path / "words.png")
    for name in ("head", "mean", "heads", "words"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    with pytest.raises(BertkitError, match="cannot write"):
        plot_heads(seen, tmp_path / "missing" / "heads.png")


@pytest.mark.parametrize(("word", "sentence", "start"), [("'s", "The dog's bone", 7), ("$", "It cost 5$now", 9)])
def test_only_letters_need_a_gap_around_them(word: str, sentence: str, start: int) -> None:
    (use,) = compare_words(tiny_bert(), [Occurrence(word, sentence)]).uses
    assert use.start == start


def test_a_picture_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(BertkitError, match=r"cannot write .*No space left on device"):
        plot_words(compare_words(tiny_bert()), tmp_path / "words.png")
    assert list(tmp_path.iterdir()) == []
