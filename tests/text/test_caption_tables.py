"""Captions of parquet and Arrow: the same as of text, through `prepare captions`; what is no such table is refused."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from visual_grounding.cli.main import main

CAPTIONS = "a.jpg\tA dog.\na.jpg\ta Dog runs\nb.jpg\ttwo cats.\n"
COLUMNS = ["--key-column", "filename", "--caption-column", "captions"]


def prepare(capsys, *flags):
    status = main(["prepare", "captions", *map(str, flags)])
    return status, capsys.readouterr().err


@pytest.fixture
def valid(tmp_path):
    (tmp_path / "valid.tsv").write_text("c.jpg\tA dog .\n")
    return ["--valid", tmp_path / "valid.tsv"]


def test_captions_of_tables_are_those_of_text(tmp_path, capsys, valid):
    pairs = [("a.jpg", ["A dog.", "a  Dog\nruns"]), ("b.jpg", ["two cats."])]
    (tmp_path / "train.tsv").write_text(CAPTIONS)
    (tmp_path / "parquet").mkdir()
    for number, (name, listed) in enumerate(pairs):
        pq.write_table(pa.table({"filename": [name], "captions": [listed]}), tmp_path / f"parquet/{number}.parquet")
    table = pa.table(
        {"filename": ["a.jpg", "a.jpg", "b.jpg"], "captions": [text for _, each in pairs for text in each]}
    )
    with pa.OSFile(str(tmp_path / "one.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    made = []
    for train, more in (("train.tsv", []), ("parquet", COLUMNS), ("one.arrow", COLUMNS)):
        out = tmp_path / f"of-{train}"
        assert prepare(capsys, "--train", tmp_path / train, *valid, "--out", out, *more) == (0, "")
        made.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert made[0] == made[1] == made[2] and made[0]["train.tsv"].decode() == CAPTIONS


@pytest.mark.parametrize(
    ("rows", "flags", "message"),
    [
        ({"f": ["a"], "c": ["x"]}, [], r"keys, one of f, c, but none was named\. See --key-column\."),
        (
            {"f": ["a"], "c": ["x"]},
            ["--key-column", "f"],
            r"captions, one of f, c, but none was named\. See --caption-c",
        ),
        ({"f": ["a"], "c": [1.5]}, ["--key-column", "c"], r"keys, one of f, but 'c' is double\."),
        ({"f": ["a"]}, ["--key-column", "f", "--caption-column", "c"], r"captions, one of f, but there is no 'c'"),
        ({"f": ["a", None], "c": ["x", "y"]}, None, r"row 2 should have a key in 'f', but has None"),
        ({"f": ["a", "b\tc"], "c": ["x", "y"]}, None, r"row 2 should have a key in 'f', but has 'b.tc'"),
        ({"f": ["a", "b"], "c": ["x", " "]}, None, r"row 2 should have a caption in 'c', but has ' '"),
        ({"f": ["a", "b"], "c": [["x"], []]}, None, r"row 2 should have a caption in 'c', but has \[\]"),
        ({"f": pa.array([], pa.string()), "c": pa.array([], pa.string())}, None, "should hold captions, but is empty"),
        (b"PAR1 and no more", None, "should be a whole table of captions, but isn't"),
    ],
)
def test_tables_without_captions_are_refused(tmp_path, capsys, valid, rows, flags, message):
    train = tmp_path / "c.parquet"
    if isinstance(rows, bytes):
        train.write_bytes(rows)
    else:
        pq.write_table(pa.table(rows), train)
    flags = ["--key-column", "f", "--caption-column", "c"] if flags is None else flags
    status, said = prepare(capsys, "--train", train, *valid, "--out", tmp_path / "out", *flags)
    assert status == 2 and re.search(message, said), said
    assert not (tmp_path / "out").exists()


def test_columns_without_a_table_and_tables_called_text_are_refused(tmp_path, capsys, valid):
    flags = ["--train", tmp_path / "valid.tsv", *valid, "--out", tmp_path / "out"]
    status, said = prepare(capsys, *flags, "--key-column", "f")
    assert status == 2 and "Columns are named, but no file is a table: parquet, or Arrow. See --key-column." in said
    pq.write_table(pa.table({"f": ["a"]}), tmp_path / "valid.tsv")
    status, said = prepare(capsys, *flags)
    assert status == 2 and "should be lines of `key<TAB>caption`, but is parquet; `prepare captions` reads" in said


def test_whole_numbers_are_keys(tmp_path, capsys, valid):
    pq.write_table(pa.table({"filename": [7], "captions": ["x"]}), tmp_path / "t.parquet")
    assert prepare(capsys, "--train", tmp_path / "t.parquet", *valid, "--out", tmp_path / "o", *COLUMNS) == (0, "")
    assert (tmp_path / "o/train.tsv").read_text() == "7\tx\n"
