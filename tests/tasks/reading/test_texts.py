"""Files of labelled texts: the columns that are taken, the rows that come out, and the line that names a bad row."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from bertkit.errors import BertkitError
from bertkit.tasks.reading.examples import TextExample
from bertkit.tasks.reading.lines import SAMPLE_CHARACTERS
from bertkit.tasks.reading.texts import TextOptions, TextSource, read_texts
from tests.tasks.reading.real import unpack
from tests.text.packing import PACKERS


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def examples(path: Path, **options: Any) -> list[TextExample]:
    return read_texts(path, TextOptions(**options)).examples


def refused(path: Path, **options: Any) -> str:
    """The one line that says what is wrong."""
    with pytest.raises(BertkitError) as caught:
        read_texts(path, TextOptions(**options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


GLUE = {
    "SST-2/train.tsv": (67349, "text = column 'sentence', label = column 'label'"),
    "SST-2/dev.tsv": (872, "text = column 'sentence', label = column 'label'"),
    "CoLA/train.tsv": (8551, "text = column 4, label = column 2 (there is no header)"),
    "CoLA/dev.tsv": (1043, "text = column 4, label = column 2 (there is no header)"),
    "MRPC/train.tsv": (3668, "text = column '#1 String', second text = column '#2 String', label = column 'Quality'"),
    "MRPC/dev.tsv": (408, "text = column '#1 String', second text = column '#2 String', label = column 'Quality'"),
    "MRPC/test.tsv": (1725, "text = column '#1 String', second text = column '#2 String', label = column 'Quality'"),
    "RTE/train.tsv": (2490, "text = column 'sentence1', second text = column 'sentence2', label = column 'label'"),
    "RTE/dev.tsv": (277, "text = column 'sentence1', second text = column 'sentence2', label = column 'label'"),
    "STS-B/train.tsv": (5749, "text = column 'sentence1', second text = column 'sentence2', label = column 'score'"),
    "STS-B/dev.tsv": (1500, "text = column 'sentence1', second text = column 'sentence2', label = column 'score'"),
    "STS-B/test-original.tsv": (1379, "text = column 6, second text = column 7, label = column 5 (there is no header)"),
}


def test_glue_reads_as_it_is(tmp_path: Path) -> None:
    folder = unpack("glue", tmp_path)
    for name, (count, guess) in GLUE.items():
        table = read_texts(folder / name)
        assert len(table.examples) == count, name
        assert table.guess.split("; ")[0] == guess
        assert table.problem == ("regression" if name.startswith("STS-B") else "single_label")
        raw = (folder / name).read_bytes().decode("utf-8-sig").split("\n")
        for example in table.examples[:: max(1, count // 50)]:
            assert example.line is not None
            cells = raw[example.line - 1].split("\t")  # every text is the cell as it stands, quotes included
            assert example.text in cells
            assert example.pair is None or example.pair in cells
    assert {label for table in [read_texts(folder / "RTE/dev.tsv")] for label in {e.label for e in table.examples}} == {
        "entailment",
        "not_entailment",
    }


def test_csv_follows_rfc_4180(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.csv", 'text,label\r\n"two\r\nlines, a comma and ""quotes""",a\r\n\r\nplain,b\r\n5" pipe,c\r\n'
    )
    assert examples(path) == [
        TextExample('two\r\nlines, a comma and "quotes"', None, "a", 2),
        TextExample("plain", None, "b", 5),
        TextExample('5" pipe', None, "c", 6),
    ]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_csv_delimiter_is_guessed(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, "a.csv", f"text{delimiter}label\nred, or not{delimiter}a\nblue{delimiter}b\n")
    assert [(e.text, e.label) for e in examples(path)] == [("red, or not", "a"), ("blue", "b")]


def test_tsv_quotes_are_literal(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'sentence\tlabel\n" he said , " no\t1\n"whole"\t0\n')
    assert [e.text for e in examples(path)] == ['" he said , " no', '"whole"']
    split = write(
        tmp_path, "b.tsv", 'sentence\tlabel\n"He came .\t1\nHe left ."\t0\nSo .\t1\n'
    )  # said in two sentences
    assert [(e.text, e.label) for e in examples(split)] == [('"He came .', "1"), ('He left ."', "0"), ("So .", "1")]


@pytest.mark.parametrize("cell", ['"a\tb"', '"a\nb"', '"say ""hi"" now"'])
def test_tsv_quotes_wrap_where_that_is_clear(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, "a.tsv", f"sentence\tlabel\n{cell}\t1\nplain\t0\n")
    assert examples(path)[0].text == cell[1:-1].replace('""', '"')
    assert examples(write(tmp_path, "b.tsv", '"sentence"\t"label"\n"x"\t1\ny\t0\n'))[0].text == "x"
    assert examples(write(tmp_path, "c.tsv", 'sentence\tlabel\n"x"\t1\ny\t0\n'), quotes="wrap")[0].text == "x"


def test_headers(tmp_path: Path) -> None:
    with_header = write(tmp_path, "a.csv", "opinion,kind\nI really like this one,x\nnot good at all really,y\n")
    assert [e.label for e in examples(with_header, text="opinion", label="kind")] == ["x", "y"]
    without = write(tmp_path, "b.csv", "good film,x\nI really like this one a lot,y\nnot good at all really,x\nyes,y\n")
    assert len(examples(without)) == 4  # the first row's label comes again below it, so it is no name
    assert next(e.text for e in examples(without, text="1", label="2", header=False)) == "good film"
    assert len(examples(without, header=True, text="good film", label="x")) == 3
    twice = write(tmp_path, "c.csv", "text,text,label\none,x,a\ntwo,y,b\n")
    assert [(e.text, e.label) for e in examples(twice)] == [("one", "a"), ("two", "b")]


def test_columns_can_be_named_and_must_exist(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,text,label,other\n7,one,a,x\n8,two,b,y\n")
    assert [(e.text, e.label) for e in examples(path, text="other", label="id", problem="single_label")] == [
        ("x", "7"),
        ("y", "8"),
    ]
    assert refused(path, label="labels") == f"{path} has no column 'labels'; it has 'id', 'text', 'label', 'other'"
    assert "name both" in refused(path, pair="other")


def test_labels_may_be_missing_when_predicting(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text\nmy dog\nmy cat\n")
    assert [e.label for e in examples(path, labelled=False)] == [None, None]
    assert "no column looks like the label" in refused(path)
    lines = write(tmp_path, "b.txt", "my dog is cute\nhe likes playing\n")
    assert [e.text for e in examples(lines, labelled=False)] == ["my dog is cute", "he likes playing"]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_all_kinds_packed(tmp_path: Path, name: str, suffix: str) -> None:
    rows = [{"text": "naïve 👍", "label": "a"}, {"text": "plain", "label": "b"}]
    if name == "a.parquet":
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
        content = sink.getvalue().to_pybytes()
    elif name == "a.jsonl":
        content = "\n".join(map(json.dumps, rows)).encode()
    else:
        delimiter = "," if name == "a.csv" else "\t"
        content = "\n".join([delimiter.join(rows[0]), *(delimiter.join(row.values()) for row in rows)]).encode()
    found = examples(write(tmp_path, name + suffix, PACKERS[suffix](content)))
    assert [(e.text, e.label) for e in found] == [("naïve 👍", "a"), ("plain", "b")]


def test_multi_label_cells(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,labels\none,a;b\ntwo,b\nthree,a\nfour,\nfive,"[""a"", ""c;d""]"\n')
    table = read_texts(path)
    assert table.problem == "multi_label"
    assert [e.label for e in table.examples] == [("a", "b"), ("b",), ("a",), (), ("a", "c;d")]
    path = write(tmp_path, "a.jsonl", '{"text": "x", "labels": ["a", "b", "a"]}\n{"text": "y", "labels": []}\n')
    assert [e.label for e in examples(path)] == [("a", "b"), ()]


def test_values_of_other_types(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.jsonl", '{"text": "x", "label": 1}\n{"text": "y", "label": 0.0}\n{"text": "z", "label": true}\n'
    )
    assert [e.label for e in examples(path)] == ["1", "0", "true"]
    scores = write(tmp_path, "b.jsonl", '{"text": "x", "score": 1}\n{"text": "y", "score": 2.5}\n')
    assert [e.label for e in examples(scores)] == [1.0, 2.5]
    assert [e.label for e in examples(scores, problem="single_label")] == ["1", "2.5"]


BAD = [
    ("text,label\nok,a\n,b\nok,b\n", 3, "the text (column 'text') is empty"),
    ("text,label\nok,a\nno label,\n", 3, "the label is empty"),
    ("text,label\nok,a\nx,y,z\n", 3, "3 cells between commas where the header names 2"),
    ("text,label\nok,a\nalone\n", 3, "1 cells between commas where the header names 2"),
    ('text,label\nok,a\n"open,b\nok,b\n', 3, "never closed"),
    ('text,label\nok,a\n"in"side",b\nok,b\n', 3, "write it twice"),
    (b"text,label\nok,a\nna\xefve,b\nok,b\n", 3, "not UTF-8"),
]


@pytest.mark.parametrize(("content", "line", "reason"), BAD)
def test_bad_rows_are_named_or_left_out(tmp_path: Path, content: str | bytes, line: int, reason: str) -> None:
    path = write(tmp_path, "a.csv", content)
    said = refused(path)
    assert said.startswith(f"{path}, line {line}: ")
    assert reason in said
    assert re.search(r"; .*skip_bad", said)  # the remedy, and the way around
    table = read_texts(path, TextOptions(skip_bad=True))
    assert (table.problems.count, [p.line for p in table.problems.named]) == (1, [line])
    assert all(e.text == "ok" for e in table.examples)
    assert len(table.examples) == content.count(b"ok" if isinstance(content, bytes) else "ok")  # type: ignore[arg-type]
    assert reason in "\n".join(table.lines())


def test_labels_that_are_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "text\tlabel\none\ta\ntwo\tc\n")
    assert "line 3: the label 'c' is not known; the labels are a, b" in refused(path, labels=["b", "a"])
    path = write(tmp_path, "b.tsv", "text\tscore\none\t1.5\ntwo\thigh\nthree\tnan\n")
    said = refused(path, problem="regression")
    assert "line 3: the label 'high' is not a number" in said
    assert read_texts(path, TextOptions(problem="regression", skip_bad=True)).problems.count == 2


def test_jsonl_that_is_broken(tmp_path: Path) -> None:
    lines = [
        '{"text": "a", "label": "x"}',
        "{",
        "[1]",
        '{"text": 3, "label": "x"}',
        '{"text": "\\ud800", "label": "y"}',
        "",
    ]
    path = write(tmp_path, "a.jsonl", "\n".join(lines))
    found = [(p.line, p.reason.split(";")[0]) for p in read_texts(path, TextOptions(skip_bad=True)).problems.named]
    assert found == [
        (2, "not JSON"),
        (3, "not a JSON object"),
        (4, "column 'text' holds int, not text"),
        (5, "half a surrogate pair, which is no valid Unicode"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"", "no rows"),
        ("a.doc", b"x", "is no table by its ending; give one that is .csv"),
        ("a.csv", b"\xff\xfet\x00", "UTF-16"),
        ("a.csv.gz", b"text,label\n", "cannot be read to its end"),
        ("a.parquet", b"text,label\n", "not a parquet file"),
        ("a.jsonl", b"\n", "no JSON objects"),
        ("a.csv", b"text,label\n", "no rows to use: there is nothing below its header; give one example a line"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    assert reason in refused(write(tmp_path, name, content), label="label" if content.startswith(b"text") else None)
    assert "no file" in refused(tmp_path / "nothing.csv")


def test_reading_streams(tmp_path: Path) -> None:
    long = "word " * 40
    path = write(tmp_path, "a.csv", "text,label\n" + f"{long},a\n{long},b\n" * 5_000 + ",a\n")
    source = iter(TextSource(path))
    assert next(source) == TextExample(long, None, "a", 2)  # the bad last row has not been met yet
    assert sum(1 for _ in TextSource(path, TextOptions(skip_bad=True))) == 10_000


def test_a_bad_line_before_the_header_is_named_and_the_header_is_no_row(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '"a"b,c\ntext,label\nGood film.,yes\nBad film.,no\n')
    assert "line 1: a quote stands inside" in refused(path)
    assert [example.label for example in examples(path, skip_bad=True)] == ["yes", "no"]


def test_not_a_number_is_a_gap_and_no_class(tmp_path: Path) -> None:
    path, films = tmp_path / "a.parquet", ["Good film.", "Bad film.", "A film."]
    pyarrow.parquet.write_table(pyarrow.table({"text": films, "label": [1.0, 0.0, float("nan")]}), path)
    assert "line 3: the label is empty" in refused(path)
    assert [example.label for example in examples(path, labelled=False)] == ["1", "0", None]
    lines = [json.dumps({"text": f"Film {n}.", "label": n / 3 if n != 2 else float("nan")}) for n in range(30)]
    path = write(tmp_path, "a.jsonl", "\n".join(lines))
    assert TextSource(path).problem == "regression"


@pytest.mark.parametrize("options", [{"problem": "multilabel"}, {"quotes": "wrapped"}])
def test_options_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(BertkitError, match=rf"{next(iter(options))} is '.*'; choose one of"):
        TextOptions(**options)


def test_a_look_that_ends_inside_a_cell_sees_no_more_columns(tmp_path: Path) -> None:
    cell = '"' + "\n".join(f"line {number}, with, commas" for number in range(200)) + '"'
    path = write(tmp_path, "a.csv", "".join(f"{cell},{'no' if number % 2 else 'yes'}\n" for number in range(400)))
    assert path.stat().st_size > SAMPLE_CHARACTERS
    source = TextSource(path)
    assert source.table.columns == ("1", "2")
    assert source.columns.label == "2"
