"""The texts of a command: arguments, lines, or a column of a table; none is lost, and none is made up."""

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bertkit.errors import BertkitError
from bertkit.tasks.reading.chosen import chosen_texts


def test_arguments_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a", "body": "b"}\n')
    assert list(chosen_texts(["one", "", "-"], None)) == ["one", "", "-"]
    assert list(chosen_texts([""], None)) == [""]
    assert list(chosen_texts(None, str(path))) == ["a"]
    assert list(chosen_texts([], str(path), "body")) == ["b"]
    for arguments, file in ((None, None), ([], None), (["one"], str(path))):
        with pytest.raises(BertkitError, match="one of the two"):
            chosen_texts(arguments, file)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'id,text\n1,"One, with\na ""line"" end."\n2,\n3,Three.\n'),
        ("a.csv", '\ufeffid;text\r\n1;"One, with\na ""line"" end."\r\n2;""\r\n3;Three.\r\n'),
        ("a.tsv", 'id\ttext\n1\t"One, with\na ""line"" end."\n2\t""\n3\tThree.\n'),
    ],
)
def test_a_column_of_a_table_gives_a_text_a_row(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    texts = list(chosen_texts(None, str(tmp_path / name)))
    assert texts == ['One, with\na "line" end.', "", "Three."]


def test_a_column_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"body": ["a", "b", None]}), path)
    texts = chosen_texts(None, str(path), "body")
    assert [next(texts), next(texts)] == ["a", "b"]
    with pytest.raises(BertkitError, match=r"line 3: the column 'body' is not text"):
        next(texts)


def test_a_table_without_that_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,review\n1,Good.\n2,Bad.\n")
    with pytest.raises(BertkitError, match=r"no column 'text', but 'id', 'review'; name the one .* \(--field\)"):
        chosen_texts(None, str(tmp_path / "a.csv"))


@pytest.mark.parametrize("rows", ["1,a,b\n2,good\n", "1,good\n2,a,b\n"])
def test_a_broken_row_stops(rows: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n" + rows)
    with pytest.raises(BertkitError, match=r"a.csv, line [23]: 3 cells between commas"):
        list(chosen_texts(None, str(tmp_path / "a.csv")))
