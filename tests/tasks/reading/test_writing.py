"""Predictions beside their rows: every column and the order kept in every kind of file, nothing half written."""

import csv
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import BertkitError
from bertkit.tasks.reading.problems import Problems
from bertkit.tasks.reading.tables import Row, Table, TableKind, open_table
from bertkit.tasks.reading.texts import TextOptions, TextSource
from bertkit.tasks.reading.writing import prediction_writer, table_writer
from tests.text.packing import PACKERS

KINDS: list[TableKind] = ["csv", "tsv", "jsonl", "parquet"]
cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
tables = st.integers(1, 4).flatmap(
    lambda width: st.tuples(
        st.lists(cells.filter(lambda cell: cell.strip() == cell != ""), min_size=width, max_size=width, unique=True),
        st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=6),
    )
)


def values(path: Path, **options: Any) -> list[dict[str, Any]]:
    table = open_table(path, **options)
    return [dict(row.values) for row in table.rows(Problems(str(path)))]


@pytest.mark.parametrize("kind", KINDS)
def test_any_unicode_comes_back(tmp_path_factory: pytest.TempPathFactory, kind: TableKind) -> None:
    path = tmp_path_factory.mktemp("any") / f"a.{kind}"

    @settings(max_examples=150, deadline=None)
    @given(tables)
    def check(content: tuple[list[str], list[list[str]]]) -> None:
        columns, rows = content
        expected = [dict(zip(columns, row, strict=True)) for row in rows]
        with table_writer(path, Table(Path("in.jsonl"), "jsonl", tuple(columns))) as write:
            for row in expected:
                write(row)
        options = {"header": True, "quotes": "wrap"} if kind in ("csv", "tsv") else {}
        assert values(path, **options) == expected

    check()


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=6))
def test_quotes_of_a_tsv_file_that_we_wrote_are_understood(
    tmp_path_factory: pytest.TempPathFactory, rows: Sequence[Sequence[str]]
) -> None:
    path = tmp_path_factory.mktemp("tsv") / "a.tsv"
    with table_writer(path, Table(Path("in.jsonl"), "jsonl", ("text", "label"))) as write:
        for text, label in rows:
            write({"text": text, "label": label})
    assert [tuple(row.values()) for row in values(path)] == [tuple(row) for row in rows]


def predict(source: Path, target: Path, **options: Any) -> None:
    found = TextSource(source, TextOptions(labelled=False, **options))
    with prediction_writer(target, found.table) as write:
        for number, (row, _) in enumerate(found.rows()):
            write(row, f"L{number}", 0.5 + number / 3)


def test_predictions_keep_all_columns(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text('id,text,,note\n007,"a, b",x,\n8,c,y,"two\nlines"\n', encoding="utf-8")
    predict(source, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["id", "text", "", "note", "label", "confidence"],
            ["007", "a, b", "x", "", "L0", "0.5"],
            ["8", "c", "y", "two\nlines", "L1", "0.833333"],
        ]


def test_a_literal_tsv_file_stays_one(tmp_path: Path) -> None:
    source = tmp_path / "in.tsv"
    rows = ['gj04\t1\t\tHe said " no "', 'gj04\t0\t*\t"Yes" I said to them']
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    predict(source, tmp_path / "out.tsv", text="4")
    out = (tmp_path / "out.tsv").read_text(encoding="utf-8")
    assert out == f"{rows[0]}\tL0\t0.5\n{rows[1]}\tL1\t0.833333\n"  # no header before, none after
    with (
        pytest.raises(BertkitError, match=r"write \.csv"),
        prediction_writer(tmp_path / "b.tsv", open_table(source)) as w,
    ):
        w(next(open_table(source).rows(Problems(""))), "a\tb", None)


def test_names_that_are_taken(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "a", "label": "gold", "more": [1, {"x": null}]}\n', encoding="utf-8")
    predict(source, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8")) == {
        "text": "a",
        "label": "gold",
        "more": [1, {"x": None}],
        "predicted_label": "L0",
        "confidence": 0.5,
    }


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    kinds = pyarrow.dictionary(pyarrow.int8(), pyarrow.string())
    given_table = pyarrow.table(
        {
            "text": ["a", "b"],
            "when": [date(2020, 1, 2), None],
            "n": pyarrow.array([1, None], pyarrow.int16()),
            "tags": [["x"], []],
            "kind": pyarrow.array(["u", "v"]).cast(kinds),
        }
    )
    pyarrow.parquet.write_table(given_table, tmp_path / "in.parquet")
    predict(tmp_path / "in.parquet", tmp_path / "out.parquet")
    out = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert out.column_names == ["text", "when", "n", "tags", "kind", "label", "confidence"]
    assert out.schema.field("n").type == pyarrow.int16()
    assert out.select(given_table.column_names).to_pylist() == given_table.to_pylist()
    assert out.column("confidence").to_pylist() == [0.5, 0.833333]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_into_every_kind(tmp_path: Path, kind: str, suffix: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text,score\n" + "".join(f"text {n},{n / 7}\n" for n in range(1200)), encoding="utf-8")
    out = tmp_path / f"out.{kind}{suffix}"
    predict(source, out)
    found = values(out)
    assert [row["text"] for row in found] == [f"text {n}" for n in range(1200)]
    assert [row["label"] for row in found] == [f"L{n}" for n in range(1200)]
    assert float(found[700]["score"]) == 100.0


@pytest.mark.parametrize(
    ("label", "cell"), [(("a", "b"), "a;b"), ((), ""), (("a;b", "c"), '["a;b", "c"]'), (2.5, "2.5")]
)
def test_labels_as_cells(tmp_path: Path, label: Any, cell: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text\nx\n", encoding="utf-8")
    table = open_table(source)
    with prediction_writer(tmp_path / "out.csv", table) as write:
        write(next(table.rows(Problems(""))), label, None)
    assert values(tmp_path / "out.csv") == [{"text": "x", "label": cell, "confidence": ""}]


def test_nothing_half_written(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text\nx\ny\n", encoding="utf-8")
    (tmp_path / "out.csv").write_text("old", encoding="utf-8")

    def fail() -> None:
        with prediction_writer(tmp_path / "out.csv", open_table(source)):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.csv", "out.csv"]
    with pytest.raises(BertkitError, match="cannot write"):
        predict(source, tmp_path / "no" / "out.csv")
    with pytest.raises(BertkitError, match="no ending"):
        predict(source, tmp_path / "out")


def test_classes_may_come_after_many_rows_without_any(tmp_path: Path) -> None:
    labels: list[tuple[str, ...]] = [()] * 600 + [("a", "b")]
    with table_writer(tmp_path / "a.parquet", Table(Path("in.csv"), "csv", ("text",)), ["label"]) as write:
        for label in labels:
            write({"text": "x", "label": label})
    assert [tuple(row["label"]) for row in values(tmp_path / "a.parquet")] == labels


def test_the_name_that_comes_late_is_the_one_that_is_told(tmp_path: Path) -> None:
    late, table = Row(7, {"text": "b", "confidence": 1}), Table(Path("in.jsonl"), "jsonl", ("text",))
    with (
        prediction_writer(tmp_path / "out.jsonl", table) as write,
        pytest.raises(BertkitError, match="line 7 has a field 'confidence'"),
    ):
        write(late, "yes", 0.5)
