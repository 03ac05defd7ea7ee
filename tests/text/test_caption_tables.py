"""Captions of parquet and Arrow: the same as of text, through `prepare captions`; what is no such table is refused."""

import json
import os
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.text.caption_tables import iterate_caption_tables
from visual_grounding.text.captions import read_captions

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
        ({"f": ["a"]}, ["--key-column", "f", "--caption-column", "c"], r"captions, one of f, but there are no 'c'"),
        ({"f": ["a", None], "c": ["x", "y"]}, None, r"row 2 should have a key in 'f', but has None"),
        ({"f": ["a", "b\tc"], "c": ["x", "y"]}, None, r"row 2 should have a key in 'f', but has 'b.tc'"),
        ({"f": ["a", "b\0c"], "c": ["x", "y"]}, None, r"row 2 should have a key in 'f', but has 'b.x00c'"),
        ({"f": ["a", "b"], "c": ["x", " "]}, None, r"row 2 should have a caption in 'c', but has ' '"),
        (
            {"f": ["a", "b", "c"], "c": [["x"], ["y"], ["z", None]]},
            None,
            r"row 3 should have a caption in 'c', but has \['z'",
        ),
        ({"f": ["a"], "c": ["x"]}, ["--key-column", "f", "--caption-column", "f"], r"two columns, but both are 'f'"),
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
    pq.write_table(pa.table({"filename": ["a"], "captions": ["x"]}), tmp_path / "table.tsv")
    with pytest.raises(
        InputError, match=r"should be lines of `key<TAB>caption`, but is parquet\. Make lines of its tables: visu"
    ):
        read_captions(tmp_path / "table.tsv")
    with pa.OSFile(str(tmp_path / "a"), "wb") as file, pa.ipc.new_stream(file, pa.schema([("a", pa.string())])):
        pass
    with pytest.raises(
        InputError, match=r"but is Arrow\. Make lines of its tables: .* captions --train .*a --key-column"
    ):
        read_captions(tmp_path / "a")
    (tmp_path / "b").write_text("ARROW1.jpg\ta man with an arrow\n")
    assert read_captions(tmp_path / "b") == [("ARROW1.jpg", "a man with an arrow")]
    with pytest.raises(InputError, match=r"but is a folder\. Make lines of its tables"):
        read_captions(tmp_path)
    flags = ["--train", tmp_path / "table.tsv", "--out", tmp_path / "out"]  # a collection alone, as is said
    assert prepare(capsys, *flags, *COLUMNS)[0] == 0 and sorted(os.listdir(tmp_path / "out")) == [
        "dict.txt",
        "train.tsv",
    ]
    assert read_captions(tmp_path / "out/train.tsv") == [("a", "x")]


def test_whole_numbers_are_keys(tmp_path, capsys, valid):
    pq.write_table(pa.table({"filename": [7], "captions": ["x"]}), tmp_path / "t.parquet")
    assert prepare(capsys, "--train", tmp_path / "t.parquet", *valid, "--out", tmp_path / "o", *COLUMNS) == (0, "")
    assert (tmp_path / "o/train.tsv").read_text() == "7\tx\n"


def test_several_columns_of_captions_and_paths_of_images_as_datasets_has_them(tmp_path, capsys, valid):
    images = [{"bytes": b"1", "path": "a.jpg"}, {"bytes": b"2", "path": "b.jpg"}]
    table = pa.table({"image": images, "one": ["A dog.", "two cats."], "more": [["a dog runs", "dogs"], ["cats"]]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    expected = "a.jpg\tA dog.\na.jpg\ta dog runs\na.jpg\tdogs\nb.jpg\ttwo cats.\nb.jpg\tcats\n"
    both_ways = (["--caption-column", "one", "more"], ["--caption-column", "one", "--caption-column", "more"])
    for number, given in enumerate(both_ways):
        for name in ("t.parquet", "t.arrow"):
            out = tmp_path / f"{name}{number}"
            flags = ["--train", tmp_path / name, *valid, "--key-column", "image", *given]
            assert prepare(capsys, *flags, "--out", out) == (0, "")
            assert (out / "train.tsv").read_text() == expected
    flags = ["--train", tmp_path / "t.parquet", *valid, "--key-column", "image", "--out", tmp_path / "o"]
    status, said = prepare(capsys, *flags, "--caption-column", "one", "one")
    assert status == 2 and "columns of captions should be several, but are ['one', 'one']. See --caption-column" in said
    images[1]["path"] = None
    pq.write_table(pa.table({"image": images, "one": ["x", "y"]}), tmp_path / "t.parquet")
    status, said = prepare(capsys, *flags, "--caption-column", "one")
    assert status == 2 and "row 2 should have a key in 'image', but has None" in said


def test_captions_of_a_pipe_are_read_once():
    read, write = os.pipe()
    with os.fdopen(write, "w") as pipe:
        pipe.write("".join(f"{number}.jpg\ta caption\n" for number in range(1000)))
    pairs = read_captions(f"/dev/fd/{read}")
    os.close(read)
    assert len(pairs) == 1000 and pairs[0] == ("0.jpg", "a caption")


def save_stream(path, rows=100, batches=3):
    with pa.OSFile(str(path), "wb") as file:
        table = pa.record_batch({"filename": ["a"] * rows, "captions": ["x"] * rows})
        with pa.ipc.new_stream(file, table.schema) as stream:
            for _ in range(batches):
                stream.write_batch(table)


def captions_of(path):
    return len(list(iterate_caption_tables(path, "filename", ["captions"])))


def test_a_stream_that_was_cut_off_is_refused_wherever_that_was(tmp_path):
    save_stream(tmp_path / "t.arrow")
    whole = (tmp_path / "t.arrow").read_bytes()
    assert captions_of(tmp_path / "t.arrow") == 300
    for length in range(8, len(whole) - 1, 8):  # ends of batches among them
        (tmp_path / "t.arrow").write_bytes(whole[:length])
        with pytest.raises(InputError, match="should be a whole table of captions, but is"):
            captions_of(tmp_path / "t.arrow")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, pa.schema([])):
        pass
    with pytest.raises(InputError, match="should be a stream, as datasets saves it, but is an Arrow file"):
        captions_of(tmp_path / "t.arrow")


def test_of_a_saved_dataset_its_own_files_are_read(tmp_path):
    for name in ("data-00000-of-00002", "data-00001-of-00002", "cache-0a"):
        save_stream(tmp_path / f"{name}.arrow")
    with pytest.raises(InputError, match=r"tables of one split, but has cache\*\.arrow, data\*\.arrow\. Name those"):
        captions_of(tmp_path)
    files = [{"filename": f"data-0000{number}-of-00002.arrow"} for number in range(2)]
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": files}))
    assert captions_of(tmp_path) == 600
    assert captions_of(tmp_path / "data-*.arrow") == 600
    (tmp_path / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(InputError, match=r"data-00001-of-00002\.arrow should be a file, but isn't there"):
        captions_of(tmp_path)
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(InputError, match=r"state\.json should be what datasets saved, but is broken"):
        captions_of(tmp_path)


def test_folders_without_tables_and_pipes_are_refused(tmp_path):
    (tmp_path / "set/train").mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"should hold tables of captions .*, but has none\. Name one of its .*: train\."
    ):
        captions_of(tmp_path / "set")
    with pytest.raises(InputError, match="should be tables of captions, but there is none"):
        captions_of(tmp_path / "x-*.parquet")
    if sys.version_info < (3, 13):  # where it means what `*` does
        with pytest.raises(InputError, match="should be a pattern of files, but: "):
            captions_of(tmp_path / "x-**.parquet")
    os.mkfifo(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p\.parquet should be a file, but isn't there, or is none"):
        captions_of(tmp_path / "p.parquet")


def test_dictionaries_and_lists_of_one_length_are_text(tmp_path):
    words = pa.array(["x", "y"]).dictionary_encode()
    pairs = pa.array([["x", "y"], ["z", "w"]], pa.list_(pa.string(), 2))
    for column, count in ((words, 2), (pairs, 4)):
        pq.write_table(pa.table({"filename": ["a", "b"], "captions": column}), tmp_path / "t.parquet")
        assert captions_of(tmp_path / "t.parquet") == count


def test_captions_of_nothing_are_refused(tmp_path):
    (tmp_path / "c.tsv").write_text("")
    with pytest.raises(InputError, match=r"c\.tsv should hold captions, but is empty"):
        list(read_captions(tmp_path / "c.tsv"))
