"""Text files: a byte order mark, and the place of a byte that isn't UTF-8."""

import gzip
import hashlib
import io
import sys
import zipfile

import pyarrow
import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage import lines
from visual_grounding.storage.lines import iterate_lines, read_lines, sha256_of_lines


def test_read_lines_leaves_a_byte_order_mark_out(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_lines(path) == ["one", "two"]


def test_read_lines_counts_lines_and_columns_from_1(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"one\nB\xe4r\n")
    with pytest.raises(InputError, match="line 2 has byte 0xe4 at column 2"):
        read_lines(path)


LINES = ["one", "", "Bär"]
BYTES = "one\r\n\nBär".encode()


def zstd(content):
    return pyarrow.compress(content, codec="zstd", asbytes=True)


@pytest.mark.parametrize(("ending", "packed"), [(".gz", gzip.compress), (".zst", zstd)])
def test_read_lines_unpacks_what_is_compressed(tmp_path, ending, packed):
    path = tmp_path / f"text{ending}"
    path.write_bytes(packed(BYTES))
    assert read_lines(path) == LINES
    path.write_bytes(packed(BYTES[:7]) + packed(BYTES[7:]))  # two files in one, as `cat` makes them
    assert read_lines(path) == LINES
    path.write_bytes(packed(BYTES * 1000)[:-9])
    with pytest.raises(InputError, match=rf"text{ending} can't be read: \w+"):
        read_lines(path)
    path.write_bytes(BYTES)
    with pytest.raises(InputError, match=rf"text{ending} can't be read: (Not a gzipped file|ZSTD decompress failed)"):
        read_lines(path)


@pytest.mark.parametrize(("ending", "packed"), [("", bytes), (".gz", gzip.compress), (".zst", zstd)])
def test_a_line_without_end_is_refused_before_the_memory_is_full(tmp_path, monkeypatch, ending, packed):
    monkeypatch.setattr(lines, "LONGEST_LINE", 8)
    path = tmp_path / f"text{ending}"
    path.write_bytes(packed(b"1234567\n12345678"))
    assert read_lines(path) == ["1234567", "12345678"]
    path.write_bytes(packed(b"1234567\n" + b"x" * 10_000))
    with pytest.raises(InputError, match="should be text in lines, but line 2 is longer than 8 bytes"):
        read_lines(path)


def test_iterate_lines_reads_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BYTES)))
    assert list(iterate_lines("-")) == LINES


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text", content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (zipped, "should be text, but is a zip archive: unpack it"),
        (gzip.compress, "should be text, but is compressed by gzip: name it .gz"),
        (zstd, "should be text, but is compressed by zstd: name it .zst"),
        (lambda content: b"PAR1" + b"\xff" + content, "should be text, but is a parquet file: write its columns"),
        (lambda content: b"ARROW1\0\0" + b"\xff" + content, "should be text, but is an Arrow file: write its columns"),
        (lambda content: b"\xff\xff\xff\xff" + content, "should be text, but is an Arrow stream, as datasets saves it"),
        (lambda content: content.decode().encode("utf-16"), "but is UTF-16, as Excel .* iconv -f UTF-16 -t UTF-8"),
        (lambda content: content.decode().encode("utf-16-be"), "should be text, but is UTF-16"),
        (lambda content: b"a dog\n".decode().encode("utf-16-le"), "should be text, but is UTF-16"),
    ],
)
def test_what_is_no_text_is_told_by_its_first_bytes(tmp_path, pack, said):
    (tmp_path / "text").write_bytes(pack("Bär\n".encode() * 99))
    with pytest.raises(InputError, match=said):
        read_lines(tmp_path / "text")


def test_the_digest_of_a_text_is_that_of_its_file(tmp_path):
    (tmp_path / "text").write_bytes("ein Bär\nzwei\n\n".encode())
    assert sha256_of_lines(read_lines(tmp_path / "text")) == hashlib.sha256("ein Bär\nzwei\n\n".encode()).hexdigest()
    assert sha256_of_lines([]) == hashlib.sha256(b"").hexdigest()
