"""`bertkit embed`: every way in and every way out gives the vectors of the Python call, in the order of the texts."""

import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from bertkit.errors import LongTextWarning
from bertkit.inference.bert import Bert
from tests.cli.running import refusal, refused, run, run_json, spawn

TEXTS = ["The dog sleeps.", "", "A cat in the garden, and a dog", "  ", "Ünïcödé 中文 😀 \u2028 one line", "Milk"]
LINES = "".join(f"{text}\n" for text in TEXTS).encode()
JSON_LINES = "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)).encode()
FILES: dict[str, bytes] = {
    "texts.txt": LINES,
    "texts": LINES,
    "windows.txt": LINES.replace(b"\n", b"\r\n"),
    "no-last-end.txt": LINES[:-1],
    "texts.txt.gz": gzip.compress(LINES),
    "texts.txt.xz": lzma.compress(LINES),
    "texts.jsonl": JSON_LINES,
    "texts.jsonl.gz": gzip.compress(JSON_LINES),
    "texts.v2.jsonl.xz": lzma.compress(JSON_LINES),
}
ENDINGS = (".npy", ".parquet", ".jsonl")


def read(path: Path) -> tuple[list[str] | None, NDArray[Any]]:
    """The texts of a written file, where it has them, and the vectors."""
    if path.suffix == ".npy":
        return None, np.load(path)
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return table["text"].to_pylist(), np.stack(table["vector"].to_numpy())
    return parse(path.read_text(encoding="utf-8"))


def parse(lines: str) -> tuple[list[str], NDArray[Any]]:
    plain = [json.loads(line) for line in lines.split("\n")[:-1]]
    return [row["text"] for row in plain], np.array([row["vector"] for row in plain])


def assert_near(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-3 if expected.dtype == np.float16 else 1e-5)


@pytest.fixture
def embed(folder: Path) -> Callable[..., tuple[str, str]]:
    return lambda *arguments, **options: run("embed", "-m", str(folder), "--device", "cpu", *arguments, **options)


@pytest.fixture
def refuse(folder: Path) -> Callable[..., str]:
    return lambda *arguments: refusal("embed", "-m", str(folder), "--device", "cpu", *map(str, arguments))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder for what is written, beside what is read."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("name", FILES)
def test_every_way_in(name: str, bert: Bert, embed: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    embed("-f", str(tmp_path / name), "-o", str(tmp_path / "vectors.npy"))
    assert_near(np.load(tmp_path / "vectors.npy"), bert.embed(TEXTS))


def test_from_standard_input(bert: Bert, embed: Any) -> None:
    texts, vectors = parse(embed("-f", "-", stdin=LINES)[0])
    assert texts == TEXTS
    assert_near(vectors, bert.embed(TEXTS))


def test_from_arguments(bert: Bert, embed: Any) -> None:
    texts, vectors = parse(embed(*TEXTS)[0])
    assert texts == TEXTS
    assert_near(vectors, bert.embed(TEXTS))
    assert_near(parse(embed("--", "-5 degrees")[0])[1], bert.embed(["-5 degrees"]))


def test_another_field(bert: Bert, embed: Any, tmp_path: Path) -> None:
    (tmp_path / "reviews.ndjson").write_text('{"text": "no", "review": "The dog"}\n', encoding="utf-8")
    texts, vectors = parse(embed("-f", str(tmp_path / "reviews.ndjson"), "--field", "review")[0])
    assert texts == ["The dog"]
    assert_near(vectors, bert.embed(["The dog"]))


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_way_out(ending: str, bert: Bert, embed: Any, place: Path) -> None:
    output = place / f"vectors{ending}"
    output.write_text("what was there before")
    shown, notes = embed(*TEXTS, "-o", str(output))
    assert shown == ""
    assert notes == f"{len(TEXTS)} vectors of 32 dimensions written to {output}\n"
    assert [path.name for path in place.iterdir()] == [output.name]
    texts, vectors = read(output)
    assert texts in (None, TEXTS)
    assert_near(vectors, bert.embed(TEXTS))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--normalize"], {"normalize": True}),
        (["--dtype", "float16"], {"dtype": "float16"}),
        (["--layer", "concat-last-4", "--dtype", "float16"], {"layer": "concat-last-4", "dtype": "float16"}),
        (["--layer", "mean-last-4", "--pooling", "max"], {"layer": "mean-last-4", "pooling": "max"}),
        (["--layer", "-2", "--pooling", "cls"], {"layer": -2, "pooling": "cls"}),
        (["--layer", "0"], {"layer": 0}),
    ],
)
def test_options(
    arguments: list[str], options: dict[str, Any], ending: str, bert: Bert, embed: Any, place: Path
) -> None:
    output, expected = place / f"vectors{ending}", bert.embed(TEXTS, **options)
    embed(*TEXTS, *arguments, "-o", str(output))
    vectors = read(output)[1]
    assert_near(vectors, expected)
    assert ending == ".jsonl" or vectors.dtype == expected.dtype
    assert_near(parse(embed(*TEXTS, *arguments)[0])[1], expected)


def test_json_tells_what_was_written(folder: Path, place: Path) -> None:
    output = str(place / "vectors.npy")
    plain = run_json("embed", "-m", str(folder), *TEXTS, "-o", output, "--layer", "concat-last-4", "--normalize")
    assert plain["output"] == output
    assert (plain["texts"], plain["dimensions"]) == (len(TEXTS), 4 * 32)
    assert (plain["layer"], plain["normalize"], plain["pooling"]) == ("concat-last-4", True, "mean")


def test_twenty_thousand_texts_keep_their_order(bert: Bert, embed: Any, tmp_path: Path) -> None:
    known = [" ".join(["the", "dog", "ran", "home", "."][: 1 + n % 5]) + " x" * (n // 5) for n in range(20)]
    order = random.Random(0).choices(range(len(known)), k=20_000)
    (tmp_path / "many.txt").write_text("".join(f"{known[n]}\n" for n in order))
    _, notes = embed("-f", str(tmp_path / "many.txt"), "-o", str(tmp_path / "many.npy"))
    assert "20,000 vectors" in notes
    expected = bert.embed(known)
    assert np.abs(expected[:, None] - expected[None]).max(-1)[~np.eye(20, dtype=bool)].min() > 1e-2
    assert_near(np.load(tmp_path / "many.npy"), expected[order])


def test_no_lines_no_vectors(embed: Any, place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    for ending in ENDINGS:
        embed("-f", str(tmp_path / "empty.txt"), "-o", str(place / f"vectors{ending}"))
    assert np.load(place / "vectors.npy").shape == (0, 32)
    assert pq.read_table(place / "vectors.parquet").shape == (0, 2)
    assert (place / "vectors.jsonl").read_text() == ""
    assert embed("-f", str(tmp_path / "empty.txt")) == ("", "")


def test_a_long_text_is_told_of_and_still_a_vector(bert: Bert, folder: Path) -> None:
    texts = ["short", "the dog ran home . " * 50]
    result = spawn("embed", "-m", str(folder), "--device", "cpu", "-f", "-", stdin="\n".join(texts).encode())
    assert result.returncode == 0
    (line,) = result.stderr.decode().splitlines()
    assert line.startswith("bertkit: warning: 1 of 2 texts")
    with pytest.warns(LongTextWarning):
        expected = bert.embed(texts)
    assert_near(parse(result.stdout.decode())[1], expected)


def test_a_long_text_can_be_refused(refuse: Any, place: Path) -> None:
    assert "64" in refuse("short", "the dog " * 50, "--long", "error", "-o", place / "vectors.npy")
    assert list(place.iterdir()) == []


BROKEN: dict[str, tuple[bytes, str]] = {
    "latin.txt": (b"one\ntwo\ncaf\xe9\n", "latin.txt, line 3: not UTF-8"),
    "latin.txt.gz": (gzip.compress(b"caf\xe9\n"), "latin.txt.gz, line 1: not UTF-8"),
    "late.txt": (b"the dog\n" * 5000 + b"\xff\n", "late.txt, line 5001: not UTF-8"),
    "cut.jsonl": (JSON_LINES[:-4], f"cut.jsonl, line {len(TEXTS)}: not a JSON object"),
    "blank.jsonl": (b'{"text": "a"}\n\n', "blank.jsonl, line 2: not a JSON object"),
    "list.jsonl": (b'["text"]\n', "list.jsonl, line 1: not a JSON object"),
    "other.jsonl": (b'{"text": "a"}\n{"body": "b"}\n', 'other.jsonl, line 2: not a JSON object with the field "text"'),
    "number.jsonl": (b'{"text": 5}\n', 'number.jsonl, line 1: the field "text" is not text'),
    "half.jsonl": (b'{"text": "\\ud800"}\n', "half a surrogate pair"),
    "deep.jsonl": (b"[" * 200_000 + b"\n", "deep.jsonl, line 1: not a JSON object"),
    "cut.txt.gz": (gzip.compress(LINES * 100)[:-20], "cut.txt.gz: cannot be read to its end"),
    "cut.txt.xz": (lzma.compress(LINES * 100)[:-20], "cut.txt.xz: cannot be read to its end"),
    "plain.txt.gz": (LINES, "plain.txt.gz: cannot be read to its end"),
    "plain.txt.xz": (LINES, "plain.txt.xz: cannot be read to its end"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_input_is_named_and_leaves_nothing(name: str, refuse: Any, place: Path, tmp_path: Path) -> None:
    content, said = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    for ending in ENDINGS:
        assert said in refuse("-f", tmp_path / name, "-o", place / f"vectors{ending}")
    assert list(place.iterdir()) == []


def test_a_damaged_gz(refuse: Any, place: Path, tmp_path: Path) -> None:
    chance = random.Random(0)
    whole = bytearray(gzip.compress(bytes(chance.choices(b"abcdef ghij\n", k=20_000))))
    whole[1000:1100] = bytes(byte ^ 0xFF for byte in whole[1000:1100])
    (tmp_path / "bad.txt.gz").write_bytes(whole)
    assert "bad.txt.gz: cannot be read to its end" in refuse("-f", tmp_path / "bad.txt.gz", "-o", place / "v.npy")
    assert list(place.iterdir()) == []


def test_broken_input_as_a_program_of_its_own(folder: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "late.txt").write_bytes(BROKEN["late.txt"][0])
    (place / "vectors.npy").write_text("from an earlier run")
    result = spawn("embed", "-m", str(folder), "-f", str(tmp_path / "late.txt"), "-o", str(place / "vectors.npy"))
    assert "line 5001: not UTF-8" in refused(result.returncode, result.stderr.decode())
    assert [path.read_text() for path in place.iterdir()] == ["from an earlier run"]


def test_which_texts(refuse: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(LINES)
    for arguments in ([], ["a text", "-f", tmp_path / "texts.txt"]):
        assert "one of the two" in refuse(*arguments)
    assert f"no file {tmp_path / 'absent.txt'}" in refuse("-f", tmp_path / "absent.txt")
    assert f"no file {tmp_path}" in refuse("-f", tmp_path)


@pytest.mark.parametrize("name", ["vectors", "vectors.csv", "vectors.npy.gz", "npy"])
def test_endings_that_are_not_known(name: str, refuse: Any, place: Path) -> None:
    assert f"cannot write vectors to '{name}'; end it in .npy, .parquet, .jsonl" in refuse("a", "-o", place / name)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_places_that_cannot_be_written(ending: str, refuse: Any, place: Path) -> None:
    said = refuse("a", "-o", place / "absent" / f"v{ending}")
    assert f"cannot write {place / 'absent' / f'v{ending}'}: " in said
    assert "No such file or directory" in said
    (place / f"folder{ending}").mkdir()
    assert "Is a directory" in refuse("a", "-o", place / f"folder{ending}")
    assert [path.name for path in place.iterdir()] == [f"folder{ending}"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_place_under_a_file_or_with_too_long_a_name(ending: str, refuse: Any, place: Path) -> None:
    (place / "file").touch()
    assert "Not a directory" in refuse("a", "-o", place / "file" / f"v{ending}")
    assert "File name too long" in refuse("a", "-o", place / ("v" * 252 + ending))
    assert [path.name for path in place.iterdir()] == ["file"]


@pytest.mark.parametrize("ending", ["", *ENDINGS])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pooling", "median"], "unknown pooling 'median'"),
        (["--layer", "9"], "no layer 9: this model has 0"),
        (["--layer", "concat-last-5"], "'concat-last-5' needs 5 layers and this model has 4"),
        (["--dtype", "int8"], "unknown dtype 'int8'"),
        (["--dtype", "float99"], "unknown dtype 'float99'"),
        (["--long", "cut"], "unknown long 'cut'"),
        (["--device", "cuda:x"], "no device is named 'cuda:x'"),
    ],
)
@pytest.mark.parametrize("content", [LINES, b""], ids=["some texts", "no texts"])
def test_bad_options_whatever_the_input(
    content: bytes, arguments: list[str], said: str, ending: str, refuse: Any, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    output = ["-o", place / f"vectors{ending}"] if ending else []
    assert said in refuse("-f", tmp_path / "texts.txt", *arguments, *output)
    assert list(place.iterdir()) == []


def test_a_model_of_two_layers_has_no_last_four(place: Path, tmp_path: Path) -> None:
    from bertkit.inference.fresh import untrained

    untrained(0).save(tmp_path / "tiny")
    said = refusal("embed", "-m", str(tmp_path / "tiny"), "a", "--layer", "concat-last-4", "-o", str(place / "v.npy"))
    assert "needs four layers and this model has 2" in said
    assert list(place.iterdir()) == []


def test_json_is_one_array_of_all_texts(bert: Bert, folder: Path, tmp_path: Path) -> None:
    found = run_json("embed", "-m", str(folder), "the dog", "", "é")
    assert [one["text"] for one in found] == ["the dog", "", "é"]
    assert_near(np.array([one["vector"] for one in found]), np.asarray(bert.embed(["the dog", "", "é"])))
    (tmp_path / "none.txt").touch()
    assert run_json("embed", "-m", str(folder), "-f", str(tmp_path / "none.txt")) == []
