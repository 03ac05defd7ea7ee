"""Images in zips, webdatasets and parquet: keys, order, bytes from many threads, and every kind of damage."""

import gzip
import re
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.images.containers import encoded, picture, write_parquet, write_tar, write_zip
from visual_grounding.errors import InputError
from visual_grounding.images import parquet_rows, zips
from visual_grounding.images.patterns import expand_braces
from visual_grounding.images.sources import UnreadableImage, open_images, read_image

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def contents(count: int, seed: int = 0) -> list[bytes]:
    """Bytes of different lengths that tell one from another."""
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(rng.integers(1, 400))) for _ in range(count)]


def read_in_threads(source: str | Path, rows: np.ndarray) -> list[bytes]:
    images = open_images(source)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(images.read, rows.tolist()))


def refused(source: str | Path, message: str, **columns: str) -> None:
    with pytest.raises(InputError, match=message):
        open_images(source, **columns)


# zip


@pytest.mark.parametrize("method", METHODS)
def test_zip_gives_sorted_member_names_and_its_bytes_from_many_threads(tmp_path: Path, method: int) -> None:
    images = dict(zip([f"{number % 7}/{number}.jpg" for number in range(40)], contents(40)))
    path = write_zip(
        tmp_path / "i.zip", {**images, "notes.txt": b"x", "a/.hidden.jpg": b"", "__MACOSX/a/._1.jpg": b""}, method
    )
    assert list(open_images(path).keys) == sorted(images)
    rows = np.random.default_rng(0).integers(0, 40, 400)
    assert read_in_threads(path, rows) == [images[sorted(images)[row]] for row in rows]
    path.rename(tmp_path / "photos")  # recognised by its content
    assert list(open_images(tmp_path / "photos").keys) == sorted(images)


def test_zip_has_the_digest_of_a_folder_and_tar_with_the_same_images(tmp_path: Path) -> None:
    images = {"a.jpg": b"1234", "b/c.png": b"12"}
    for name, content in images.items():
        (tmp_path / "i" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "i" / name).write_bytes(content)
    sources = [write_zip(tmp_path / "i.zip", images), write_tar(tmp_path / "i.tar", images), tmp_path / "i"]
    assert len({open_images(source).digest for source in sources}) == 1
    longer = write_zip(tmp_path / "longer.zip", {**images, "a.jpg": b"12345"})
    assert open_images(longer).digest != open_images(sources[0]).digest


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_member_that_tries_to_leave_its_folder_is_a_key_and_nothing_else(tmp_path: Path, write) -> None:
    (tmp_path / "inside").mkdir()
    names = ["../../up.jpg", "../x.jpg", "/tmp/absolute.jpg"]
    path = write(tmp_path / "inside/i", dict(zip(names, [b"1", b"2", b"3"])))
    images = open_images(path)
    assert list(images.keys) == names and [images.read(row) for row in range(3)] == [b"1", b"2", b"3"]
    assert [found.name for found in tmp_path.rglob("*")] == ["inside", "i"]


def changed(path: Path, place: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[place : place + len(content)] = content
    path.write_bytes(data)


def test_broken_member_of_a_zip_is_unreadable_and_the_others_are_read(tmp_path: Path) -> None:
    sound = encoded(picture())
    path = write_zip(tmp_path / "i.zip", {"a.png": sound, "b.png": sound, "c.png": sound}, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as file:
        offset = file.getinfo("b.png").header_offset
    changed(path, offset + 60, b"\xff" * 20)
    images = open_images(path)
    with pytest.raises(UnreadableImage, match=r"^broken or truncated: (Bad CRC|Error -3)"):
        read_image(images, 1)
    assert read_image(images, 0).size == read_image(images, 2).size == (8, 6)


def test_zip_that_says_a_member_is_enormous_costs_no_memory(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "i.zip", {"a.png": b"x" * 50})
    place = path.read_bytes().index(b"PK\x01\x02")
    changed(path, place + 24, struct.pack("<I", 0xFFFFFFF0))
    with pytest.raises(UnreadableImage, match=r"^4294967280 bytes, more than 1073741824"):
        read_image(open_images(path), 0)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_unpacks_to_no_more_than_it_says(tmp_path: Path, method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred bytes of bzip2 are 400 MB of zeros."""
    path = write_zip(tmp_path / "i.zip", {"a.png": bytes(2**24), "b.png": b"sound"}, method)
    place = path.read_bytes().index(b"PK\x01\x02")
    unpacked = []
    crc32 = zlib.crc32
    monkeypatch.setattr(zips.zlib, "crc32", lambda content: unpacked.append(len(content)) or crc32(content))
    assert len(open_images(path).read(0)) == 2**24
    changed(path, place + 24, struct.pack("<I", 100))
    images = open_images(path)
    tracemalloc.start()
    with pytest.raises(UnreadableImage, match=r"broken or truncated: it has more than the 100 bytes that it says"):
        images.read(0)
    assert tracemalloc.get_traced_memory()[1] < 2**24 and unpacked == [2**24]
    tracemalloc.stop()
    changed(path, place + 24, struct.pack("<I", 2**24 + 1))
    with pytest.raises(UnreadableImage, match=r"it has less than the 16777217 bytes that it says"):
        open_images(path).read(0)
    changed(path, place + 24, struct.pack("<I", 2**24))
    changed(path, place + 16, b"\0\0\0\0")
    with pytest.raises(UnreadableImage, match=r"Bad CRC-32 for file 'a\.png'"):
        open_images(path).read(0)
    assert open_images(path).read(1) == b"sound"


def test_zips_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "i.zip", {"a.png": b"x" * 50, "b.png": b"y"})
    whole = path.read_bytes()
    place = whole.index(b"PK\x01\x02")
    changed(path, place + 8, b"\x01\x00")
    refused(path, r"i\.zip should be a zip without password, but 'a\.png' in it is encrypted\. Unpack it")
    path.write_bytes(whole)
    changed(path, place + 10, b"\x09\x00")
    refused(path, r"'a\.png' in it is compressed by method 9 \(deflate64\)\. Unpack it")
    path.write_bytes(whole[:-30])
    refused(path, r"i\.zip should be a whole zip, but isn't: File is not a zip file\. Copy it again")
    path.write_bytes(b"")
    refused(path, r"i\.zip should be a whole zip, but isn't: File is not a zip file")
    refused(write_zip(tmp_path / "none.zip", {"a.txt": b""}), r"none\.zip should hold images \(files ending in .*\.jpg")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "twice.zip", "w") as file:
        file.writestr("a.jpg", b"1")
        file.writestr("a.jpg", b"2")
    refused(tmp_path / "twice.zip", r"'a\.jpg' is number 1 and again number 2")
    refused(path.with_name("none.zip"), r"key column id is for parquet, but .*none\.zip isn't", key_column="id")


# webdatasets


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Three tars of a webdataset: 6 samples, all but one with an image; the order in a tar isn't sorted."""
    folder = tmp_path / "tars"
    folder.mkdir()
    write_tar(folder / "train-00.tar", {"02.json": b"", "02.jpg": b"two", "02.mask.png": b"mask", "01.jpg": b"one"})
    write_tar(folder / "train-01.tar", {"d.1/03.txt": b"", "d.1/03.a.PNG": b"three", "d.1/04.txt": b"no image"})
    write_tar(folder / "train-02.tar", {"05.png": b"five", "06.jpg": b"six"})
    return folder


@pytest.mark.parametrize("pattern", ["", "/train-{00..02}.tar", "/*.tar", "/train-0{0,1,2}.tar", "/train-{00..01}.tar"])
def test_webdataset_gives_one_image_a_sample(tars: Path, pattern: str) -> None:
    images = open_images(f"{tars}{pattern}")
    keys, expected = (
        ["01.jpg", "02.jpg", "d.1/03.a.PNG", "05.png", "06.jpg"],
        [b"one", b"two", b"three", b"five", b"six"],
    )
    found = 3 if pattern == "/train-{00..01}.tar" else 5
    assert list(images.keys) == keys[:found]
    assert [images.read(row) for row in range(found)] == expected[:found]


def test_webdataset_is_read_from_many_threads(tmp_path: Path) -> None:
    images = contents(60)
    for tar in range(6):
        members = {f"{row:03}.jpg": images[row] for row in range(10 * tar, 10 * tar + 10)}
        write_tar(tmp_path / f"{tar}.tar", members)
    rows = np.random.default_rng(0).integers(0, 60, 500)
    assert read_in_threads(tmp_path, rows) == [images[row] for row in rows]
    before = open_images(tmp_path).digest
    write_tar(tmp_path / "5.tar", {**members, "059.jpg": b"other" * 99})
    assert open_images(tmp_path).digest != before


def test_folder_of_tars_and_anything_else_is_a_folder_of_images(tars: Path) -> None:
    (tars / ".DS_Store").touch()
    assert len(open_images(tars).keys) == 5
    (tars / "stats.json").touch()
    refused(tars, r"tars should hold images .* For its tar files say: '.*tars/\*\*/\*\.tar'$")
    assert len(open_images(f"{tars}/**/*.tar").keys) == 5


def test_webdatasets_are_refused_with_the_reason(tars: Path) -> None:
    refused(
        f"{tars}/train-{{00..12}}.tar",
        r"12\}\.tar names 13 files, but 10 of them don't exist; the first is .*03\.tar\.",
    )
    refused(f"{tars}/valid-*.tar", r"valid-\*\.tar should fit tars or parquet files, but fits nothing")
    refused(f"{tars}/train-{{5..2}}.tar", r"should count upwards, but has \{5\.\.2\}")
    refused(f"{tars}/{{0..999}}-{{0..9999}}.tar", r"should name 1000000 files at most, but names more")
    write_tar(tars / "train-03.tar", {"z/06.jpg": b"another", "06.jpg": b"again"})
    refused(tars, r"unique in all 4 tars, but '06\.jpg' is in .*train-02\.tar and in .*train-03\.tar")
    with tarfile.open(tars / "train-03.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("7.jpg"))
        tar.addfile(tarfile.TarInfo("7.jpg"))
    refused(tars, r"'7\.jpg' is in .*train-03\.tar and again there")
    (tars / "train-03.tar").write_bytes(write_tar(tars / "a.tar", {"8.jpg": b"8" * 2000}).read_bytes()[:1200])
    refused(tars / "train-0*.tar", r"train-03\.tar should be a whole tar, but isn't: unexpected end of data")
    (tars / "train-03.tar").rename(tars / "b.jpg")
    refused(f"{tars}/*", r"should fit tars or parquet files, but fits .*b\.jpg\. Other images: give their folder")
    (tars / "b.jpg").unlink()
    write_parquet(tars / "z.parquet", [b"x"])
    refused(f"{tars}/*", r"should fit files of one kind, but fits .*a\.tar and .*z\.parquet")


def test_compressed_tars_are_refused_with_the_way_out(tars: Path) -> None:
    for path in list(tars.iterdir()):
        (tars / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    for source in (tars, f"{tars}/train-{{00..02}}.tar.gz"):
        refused(source, r"uncompressed tar.*but is compressed.* gunzip -c .*train-00\.tar\.gz > train-00\.tar")


def test_tar_that_vanishes_is_an_error_and_not_many_unreadable_images(tars: Path) -> None:
    images = open_images(tars)
    (tars / "train-01.tar").unlink()
    assert images.read(0) == b"one"
    with pytest.raises(InputError, match=r"train-01\.tar was there, but is gone\. Bring it back"):
        read_image(images, 2)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.tar", ["a.tar"]),
        ("{8..10}", ["8", "9", "10"]),
        ("{008..010}x", ["008x", "009x", "010x"]),
        ("{a,}-{0..1}", ["a-0", "a-1", "-0", "-1"]),
        ("{a}{b..c}{", ["{a}{b..c}{"]),
    ],
)
def test_braces_are_written_out(pattern: str, expected: list[str]) -> None:
    assert list(expand_braces(pattern)) == expected


# parquet


def test_parquet_of_hugging_face_gives_paths_as_keys(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", [b"A", b"B", b"C"], ["b.jpg", "a.jpg", "x/c.jpg"])
    images = open_images(path)
    assert list(images.keys) == ["b.jpg", "a.jpg", "x/c.jpg"]
    assert [images.read(row) for row in (2, 0, 1)] == [b"C", b"A", b"B"]
    assert images.note == ""


@pytest.mark.parametrize(
    ("paths", "note"),
    [
        (
            ["a.jpg", "a.jpg", "b.jpg"],
            r"^image\.path has 2 different paths that can be keys in 3 rows, so .* key column would give others\.$",
        ),
        (["a.jpg", None, "c.jpg"], r"^image\.path has 2 different"),
        (["a.jpg", "b\tb.jpg", "c.jpg"], r"^image\.path has 2 different"),
        ([None, None, None], r"^$"),
    ],
)
def test_parquet_without_usable_paths_gives_file_and_row_as_keys(tmp_path: Path, paths, note: str) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    write_parquet(tmp_path / "d/0.parquet", [b"A", b"B", b"C"], paths)
    write_parquet(tmp_path / "d/e/1.parquet", [b"D"])
    assert list(open_images(tmp_path / "d/0.parquet").keys) == [f"0.parquet:{row}" for row in range(3)]
    images = open_images(f"{tmp_path}/d/**/*.parquet")
    assert list(images.keys) == ["0.parquet:0", "0.parquet:1", "0.parquet:2", "e/1.parquet:0"]
    assert [images.read(row) for row in range(4)] == [b"A", b"B", b"C", b"D"]
    assert re.search(note, open_images(tmp_path / "d/0.parquet").note)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(4)])
def test_parquet_of_plain_bytes_with_a_column_of_keys(tmp_path: Path, kind: pa.DataType) -> None:
    columns = {"id": [5, 6, 7], "name": pa.array(["x", "y", "x"]).dictionary_encode(), "size": [1.0, 2.0, 3.0]}
    table = pa.table({**columns, "photo": pa.array([b"four", b"more", b"byte"], kind)})
    pq.write_table(table, tmp_path / "t.parquet")
    images = open_images(tmp_path / "t.parquet", key_column="id")
    assert list(images.keys) == ["5", "6", "7"] and images.read(1) == b"more"
    assert list(open_images(tmp_path / "t.parquet", "photo").keys) == [f"t.parquet:{row}" for row in range(3)]
    refused(tmp_path / "t.parquet", r"keys should be unique, but 'x' is number 1 and again number 3", key_column="name")
    refused(tmp_path / "t.parquet", r"size of .* should hold names or whole numbers, but is double", key_column="size")
    refused(tmp_path / "t.parquet", r"has no key column uid; it has id \(int64\), name", key_column="uid")
    refused(tmp_path / "t.parquet", r"has no image column image; it has id", image_column="image")
    refused(tmp_path / "t.parquet", r"Column id of .* should hold image bytes.*but is int64", image_column="id")


def test_parquet_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    two = pa.table({"a": [b"1"], "b": [b"2"], "id": pa.array([None], pa.string())})
    pq.write_table(two, tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", r"2 columns that may hold images: a, b\. Choose one\.$")
    refused(
        tmp_path, r"Column id should have a key in each row, but row 0 \(from 0\)", image_column="a", key_column="id"
    )
    pq.write_table(two.select(["id"]), tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet", r"should have a column of image bytes.*; but it has id \(string\)")
    refused(tmp_path, r"b\.parquet has no image column a; it has id", image_column="a")
    write_parquet(tmp_path / "b.parquet", [b"x"])
    pq.write_table(pa.table({"image": [b"x"]}), tmp_path / "a.parquet")
    refused(tmp_path, r"Column image of .*b\.parquet is struct<bytes.*unlike in .*a\.parquet")
    pq.write_table(two.slice(1), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", r"should hold images \(one a row\), but there are none", image_column="a")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-20])
    refused(tmp_path / "a.parquet", r"a\.parquet should be a whole parquet file, but isn't: .*Copy it again")
    (tmp_path / "a.parquet").write_bytes(b"")
    refused(tmp_path, r"a\.parquet should be a whole parquet file, but isn't: .*Copy it again")


def test_parquet_digest_notices_other_images_with_the_same_keys(tmp_path: Path) -> None:
    prints = []
    for number, images in enumerate(([b"AA", b"B"], [b"AAA", b"B"], [b"AA", b"B"])):
        (tmp_path / str(number)).mkdir()
        prints.append(open_images(write_parquet(tmp_path / f"{number}/t.parquet", images)).digest)
    assert prints[0] == prints[2] != prints[1]


def many(tmp_path: Path, seed: int = 0) -> list[bytes | None]:
    """Three files of several row groups, some rows null."""
    images: list[bytes | None] = [*contents(300, seed)]
    images[7] = images[222] = None
    for number in range(3):
        write_parquet(tmp_path / f"{number}.parquet", images[100 * number : 100 * number + 100], group=37)
    return images


@pytest.mark.parametrize("order", ["forwards", "backwards", "random"])
def test_parquet_gives_each_row_in_any_order_from_many_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    expected = many(tmp_path)
    monkeypatch.setattr(parquet_rows, "CACHE_BYTES", 4000)  # blocks are given up all the time
    rows = {
        "forwards": np.arange(300), "backwards": np.arange(300)[::-1],
        "random": np.random.default_rng(0).integers(0, 300, 400),
    }[order]  # fmt: skip
    images = open_images(tmp_path)

    def read(row: int) -> bytes | None:
        try:
            return images.read(row)
        except UnreadableImage as reason:
            assert str(reason) == "no bytes in its row"
            return None

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, rows.tolist())) == [expected[row] for row in rows]


def test_parquet_is_decoded_once_when_rows_are_asked_for_nearly_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(tmp_path)
    started = []
    start = parquet_rows.ParquetRows._start
    monkeypatch.setattr(
        parquet_rows.ParquetRows, "_start", lambda self, group: (started.append(group), start(self, group))[1]
    )
    images = open_images(tmp_path)
    rows = np.setdiff1d(np.arange(300), [7, 222])
    nearly = rows[np.argsort(rows + np.random.default_rng(0).integers(0, 12, len(rows)), kind="stable")]
    for row in nearly:
        images.read(int(row))
    assert sorted(started) == list(range(9))  # each of the row groups (37 + 37 + 26 rows, three times) once


def test_parquet_keeps_no_more_than_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "CACHE_BYTES", 200_000)
    write_parquet(tmp_path / "t.parquet", [bytes([row]) * 5000 for row in range(200)], group=200)
    images = open_images(tmp_path / "t.parquet")
    for row in range(200):
        assert images.read(row) == bytes([row]) * 5000
        assert sum(block.values.nbytes for block in images._rows._blocks) <= 200_000
    assert images._rows._bytes == sum(block.values.nbytes for block in images._rows._blocks) > 80_000


def test_parquet_does_not_read_a_row_group_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "CACHE_BYTES", 2 << 20)
    images = [row.to_bytes(2, "little") * 25_000 for row in range(600)]  # 30 MB in one row group, pages of 0.8 MB
    table = pa.table({"image": images})
    pq.write_table(table, tmp_path / "t.parquet", compression="none", use_dictionary=False, write_batch_size=16)
    del table
    before = pa.total_allocated_bytes()
    source = open_images(tmp_path / "t.parquet")
    used = []
    for row, image in enumerate(images):
        assert source.read(row) == image
        used.append(pa.total_allocated_bytes() - before)
    assert pq.read_metadata(tmp_path / "t.parquet").num_row_groups == 1
    assert 1 << 20 < max(used) < 8 << 20


def test_broken_part_of_a_parquet_file_is_unreadable_and_the_rest_is_read(tmp_path: Path) -> None:
    sound = encoded(picture(40, 40))
    path = tmp_path / "t.parquet"
    table = pa.table({"image": pa.array([sound] * 60)})
    pq.write_table(table, path, row_group_size=20, compression="gzip", use_dictionary=False, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    changed(path, column.data_page_offset + column.total_compressed_size // 2, b"\x00" * 40)
    images = open_images(path)
    for row in (0, 19, 40, 59):
        assert read_image(images, row).size == (40, 40)
    for row in (20, 39, 20):
        with pytest.raises(UnreadableImage, match=r"^broken or truncated: .*CRC"):
            read_image(images, row)


def test_parquet_that_vanishes_is_an_error_and_not_many_unreadable_images(tmp_path: Path) -> None:
    many(tmp_path)
    images = open_images(tmp_path)
    (tmp_path / "1.parquet").unlink()
    images.read(0)
    with pytest.raises(InputError, match=r"1\.parquet was there, but is gone"):
        read_image(images, 150)


# fuzz


def damage(whole: bytes) -> st.SearchStrategy[bytes]:
    """The bytes cut off somewhere, or with some of them changed, or others altogether."""
    spots = st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=6)

    def change(places: list[tuple[int, int]]) -> bytes:
        data = bytearray(whole)
        for place, value in places:
            data[place] = value
        return bytes(data)

    cut = st.integers(0, len(whole)).map(lambda end: whole[:end])
    return st.one_of(spots.map(change), cut, st.binary(max_size=1500))


def whole(kind: str, folder: Path) -> bytes:
    members = {f"{row}.png": encoded(picture(seed=row)) for row in range(3)}
    path = folder / f"whole.{kind}"
    if kind == "zip":
        return write_zip(path, members, zipfile.ZIP_DEFLATED).read_bytes()
    if kind == "tar":
        return write_tar(path, members).read_bytes()
    return write_parquet(path, list(members.values()), list(members)).read_bytes()


@pytest.mark.parametrize("kind", ["zip", "tar", "parquet"])
@pytest.mark.parametrize("pattern", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_containers_are_refused_or_have_unreadable_images(
    tmp_path: Path, kind: str, pattern: bool, data: st.DataObject
) -> None:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    if not (tmp_path / "whole").exists():
        (tmp_path / "whole").mkdir()
        (tmp_path / "whole/bytes").write_bytes(whole(kind, tmp_path / "whole"))
    content = data.draw(damage((tmp_path / "whole/bytes").read_bytes()))
    (folder / f"i.{kind}").write_bytes(content)
    try:
        images = open_images(folder / ("*" if pattern and kind != "zip" else f"i.{kind}"))
        for row in range(len(images.keys)):
            try:
                assert read_image(images, row).mode == "RGB"
            except UnreadableImage as reason:
                assert str(reason) and "\n" not in str(reason)
    except InputError as error:
        assert str(folder) in str(error) and "\n" not in str(error)
    assert [path.name for path in folder.iterdir()] == [f"i.{kind}"]


def test_tar_with_a_broken_header_in_its_middle_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "i.tar", {"a.jpg": b"a" * 600, "b.jpg": b"b"})
    header = bytearray(path.read_bytes()[1536:2048])  # of b.jpg
    header[124:136] = b"\xff" * 10 + b"\xf8\x00"  # its size, base 256: -2048, so that the next header is a.jpg's again
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\x00 " % sum(header)
    changed(path, 1536, bytes(header))
    refused(path, r"i\.tar should be a whole tar, but isn't: the header at byte (0|1536) is broken\. Copy it again")
    changed(path, 1536, b"?" * 512)
    refused(path, r"i\.tar should be a whole tar, but isn't: the header at byte 1536 is broken")


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path):
    column = pa.array([encoded(picture(), "PNG")])
    pq.write_table(pa.Table.from_arrays([column, column], names=["image", "image"]), tmp_path / "two.parquet")
    with pytest.raises(InputError, match=r"two\.parquet should have columns of different .*, but has several 'image'"):
        open_images(tmp_path / "two.parquet")
