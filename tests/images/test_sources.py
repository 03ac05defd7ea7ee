"""Pictures by key: folders, tars, lists; and every kind of broken file gives a reason instead of a crash."""

import gzip
import io
import os
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.images.containers import encoded, picture, write_tar
from visual_grounding.errors import InputError
from visual_grounding.images.sources import MAX_PIXELS, UnreadableImage, decode, open_images, read_image


def test_folder_gives_sorted_relative_paths_with_suffix(tmp_path: Path) -> None:
    for name in ("b.jpg", "a/c.JPEG", "a/b.png", "notes.txt", ".hidden.jpg", ".cache/x.jpg", "a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    images = open_images(tmp_path)
    assert list(images.keys) == ["a.jpg", "a/b.png", "a/c.JPEG", "b.jpg"]
    assert [images.read(row) for row in range(4)] == [b"a.jpg", b"a/b.png", b"a/c.JPEG", b"b.jpg"]


def test_tar_gives_sorted_member_names_and_reads_them_in_any_order(tmp_path: Path) -> None:
    long = "x" * 150 + "/é.jpg"  # longer than a plain tar header holds
    path = write_tar(tmp_path / "i.tar", {"./b.jpg": b"bb" * 600, long: b"long", "a/1.png": b"", "README": b"no image"})
    with tarfile.open(path, "a") as tar:
        folder = tarfile.TarInfo("folder.jpg")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    images = open_images(path)
    assert list(images.keys) == ["./b.jpg", "a/1.png", long]
    assert [images.read(row) for row in (2, 0, 1)] == [b"long", b"bb" * 600, b""]


def test_tar_is_recognised_by_its_content(tmp_path: Path) -> None:
    assert list(open_images(write_tar(tmp_path / "images", {"a.jpg": b"x"})).keys) == ["a.jpg"]


def test_list_keeps_its_order_and_lines(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    (tmp_path / "i/a.jpg").write_bytes(b"A")
    (tmp_path / "b.img").write_bytes(b"B")
    elsewhere = tmp_path / "elsewhere.jpg"
    elsewhere.write_bytes(b"C")
    (tmp_path / "list.txt").write_text(f"i/a.jpg\nmissing.jpg\n{elsewhere}\nb.img\n")
    images = open_images(tmp_path / "list.txt")
    assert list(images.keys) == ["i/a.jpg", "missing.jpg", str(elsewhere), "b.img"]
    assert [images.read(row) for row in (0, 2, 3)] == [b"A", b"C", b"B"]
    with pytest.raises(UnreadableImage, match=r"^missing$"):
        read_image(images, 1)


def test_digest_changes_with_keys_and_sizes_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1234")
    before = open_images(tmp_path).digest
    os.utime(tmp_path / "a.jpg", (0, 0))
    assert open_images(tmp_path).digest == before
    assert open_images(write_tar(tmp_path.with_suffix(".tar"), {"a.jpg": b"1234"})).digest == before
    (tmp_path / "a.jpg").write_bytes(b"12345")
    longer = open_images(tmp_path).digest
    (tmp_path / "a.jpg").rename(tmp_path / "b.jpg")
    assert len({before, longer, open_images(tmp_path).digest}) == 3


def test_sources_are_refused_with_the_reason(tmp_path: Path) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            open_images(tmp_path / name)

    refused(
        "nothing",
        r"nothing should be a folder, a tar, a zip, a parquet file, a \.txt list, or a pattern .*, but doesn't exist",
    )
    (tmp_path / "empty").mkdir()
    refused("empty", r"empty should hold images \(files ending in .*\.jpg.*\), but there are none")
    (tmp_path / "empty.txt").touch()
    refused("empty.txt", r"empty\.txt should hold images \(one path a line\), but there are none")
    (tmp_path / "twice.txt").write_text("a.jpg\nb.jpg\na.jpg\n")
    refused("twice.txt", r"keys should be unique, but 'a\.jpg' is number 1 and again number 3")
    (tmp_path / "gap.txt").write_text("a.jpg\n\n")
    refused("gap.txt", r"gap\.txt should have the path of an image in every line, but line 2 is blank\.")
    (tmp_path / "one.jpg").write_bytes(encoded(picture()))
    refused(
        "one.jpg",
        r"one\.jpg should be a tar, a zip, a parquet file or a \.txt list of images, or a folder, but is none",
    )
    tar = write_tar(tmp_path / "i.tar", {"a.jpg": b"a" * 2000, "b.jpg": b"b" * 2000})
    (tmp_path / "i.tar.gz").write_bytes(gzip.compress(tar.read_bytes()))
    refused("i.tar.gz", r"should be an uncompressed tar.* gunzip -c .*i\.tar\.gz > i\.tar")
    (tmp_path / "cut.tar").write_bytes(tar.read_bytes()[:3200])
    refused("cut.tar", r"cut\.tar should be a whole tar, but isn't: unexpected end of data")
    (tmp_path / "text.tar").write_text("not a tar " * 100)
    refused("text.tar", r"text\.tar should be a whole tar")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/a\nb.jpg").touch()
    refused("odd", r"without tab or line break, but is 'a\\nb\.jpg'\. Rename it")
    (tmp_path / "end").mkdir()
    (tmp_path / "end/a.jpg\n").touch()
    refused("end", r"without tab or line break, but is 'a\.jpg\\n'\. Rename it")
    with tarfile.open(tmp_path / "again.tar", "w") as twice:
        for _ in range(2):
            twice.addfile(tarfile.TarInfo("a.jpg"))
    refused("again.tar", r"'a\.jpg' is number 1 and again number 2")


def test_key_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.jpg", "wb"):
        pass
    with pytest.raises(InputError, match=r"key number 1 should be UTF-8.*but is '\\udcff\.jpg'"):
        open_images(tmp_path)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_decode_returns_the_pixels_of_lossless_formats(kind: str) -> None:
    image = picture()
    decoded = decode(encoded(image, kind))
    assert decoded.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(decoded), np.asarray(image))


def test_decode_spreads_16_bit_grey_over_8_bits() -> None:
    grey = np.array([[0, 255, 256], [32768, 65279, 65535]], dtype=np.uint16)
    decoded = np.asarray(decode(encoded(Image.fromarray(grey))))
    np.testing.assert_array_equal(decoded, np.repeat([[[0], [0], [1]], [[128], [254], [255]]], 3, axis=2))


def test_decode_converts_palette_grey_cmyk_and_alpha() -> None:
    red = Image.new("RGB", (4, 4), (255, 0, 0))
    palette = red.convert("P")
    transparent = red.convert("RGBA")
    transparent.putalpha(7)
    palette_with_transparency = encoded(palette, transparency=bytes([0] * 256))
    for content in (
        encoded(palette), encoded(transparent), encoded(palette, "GIF"), encoded(red.convert("CMYK"), "TIFF"),
        palette_with_transparency,
    ):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(decode(content)), np.asarray(red))
    grey = decode(encoded(Image.new("L", (4, 4), 9)))
    assert grey.mode == "RGB" and grey.getpixel((0, 0)) == (9, 9, 9)
    blue = decode(encoded(Image.new("RGB", (16, 16), (0, 0, 255)).convert("CMYK"), "JPEG")).getpixel((8, 8))
    assert blue[2] > 240 and max(blue[:2]) < 15


@pytest.mark.parametrize("orientation", range(1, 9))
def test_decode_turns_the_picture_upright(orientation: int) -> None:
    # Where row 0 and column 0 of the stored pixels belong in what is seen, by the EXIF standard.
    to_upright = {
        1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1), 6: lambda a: np.rot90(a, -1), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        8: lambda a: np.rot90(a, 1),
    }  # fmt: skip
    image = picture(3, 5)
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = np.asarray(decode(encoded(image, exif=exif)))
    np.testing.assert_array_equal(decoded, to_upright[orientation](np.asarray(image)))


def test_decode_ignores_broken_exif() -> None:
    content = encoded(picture(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert decode(content).size == (8, 6)


def test_decode_turns_the_picture_upright_where_another_tag_is_odd() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x011A] = 6, 72.0  # orientation; x resolution, a fraction …
    content = encoded(picture(), "JPEG", exif=exif)
    entry = content.index(struct.pack(">HHI", 0x011A, 5, 1))
    odd = content[:entry] + struct.pack(">HHI", 0x011A, 2, 8) + content[entry + 8 :]  # … that says it is text
    with Image.open(io.BytesIO(odd)) as image, pytest.raises(TypeError):
        ImageOps.exif_transpose(image)
    assert decode(odd).size == (6, 8) and decode(content).size == (6, 8)


def bomb() -> bytes:
    """A PNG of a few bytes that says it has 100,000 x 100,000 pixels."""
    content = bytearray(encoded(picture()))
    content[16:24] = struct.pack(">II", 100_000, 100_000)
    import zlib

    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"^empty file$"),
        (b"<html>404 not found</html>", r"^not an image$"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", r"^not an image$"),
        (encoded(picture(200, 200), "JPEG")[:900], r"^broken or truncated: .*truncated"),
        (encoded(picture(200, 200), "PNG")[:900], r"^broken or truncated: "),
        (encoded(picture(), "JPEG")[:20], r"^(not an image|broken or truncated: .*)$"),
        (encoded(Image.new("F", (3, 3)), "TIFF"), r"^pixels are floating-point numbers"),
        (bomb(), rf"more than {MAX_PIXELS}"),
    ],
)
def test_decode_gives_the_reason_when_a_file_is_no_picture(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableImage, match=reason):
        decode(content)


def test_decode_survives_random_damage() -> None:
    rng = np.random.default_rng(0)
    originals = [encoded(picture(40, 40), kind) for kind in ("JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP")]
    outcomes = set()
    for trial in range(300):
        content = bytearray(originals[trial % len(originals)])
        for place in rng.integers(0, len(content), 8):
            content[place] = rng.integers(256)
        try:
            outcomes.add(decode(bytes(content)).mode)
        except UnreadableImage as reason:
            assert "\n" not in str(reason) and "\t" not in str(reason)
            outcomes.add("unreadable")
    assert outcomes == {"RGB", "unreadable"}


def test_read_image_gives_the_reason_when_the_path_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(".\n")
    with pytest.raises(UnreadableImage, match=r"can't be read: Is a directory"):
        read_image(open_images(tmp_path / "list.txt"), 0)


def test_several_sources_add_up(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.jpg").write_bytes(b"one")
    (tmp_path / "a/2.jpg").write_bytes(b"two")
    tar = write_tar(tmp_path / "b.tar", {"3.jpg": b"three"})
    images = open_images([tmp_path / "a", tar])
    assert list(images.keys) == ["1.jpg", "2.jpg", "3.jpg"]
    assert [images.read(row) for row in (2, 0, 1)] == [b"three", b"one", b"two"]
    other = open_images([tar, tmp_path / "a"])
    assert list(other.keys) == ["3.jpg", "1.jpg", "2.jpg"] and other.digest != images.digest
    alone = open_images(tmp_path / "a")
    for sources in ([tmp_path / "a"], [tmp_path / "a", str(tmp_path / "a")]):  # one source, named once or twice
        assert (list(open_images(sources).keys), open_images(sources).digest) == (list(alone.keys), alone.digest)
    write_tar(tmp_path / "b.tar", {"2.jpg": b"another"})
    message = r"unique in all 2 sources, but '2\.jpg' is in .*/a and in .*b\.tar\. Give a folder that holds both"
    with pytest.raises(InputError, match=message):
        open_images([tmp_path / "a", tar])
    with pytest.raises(ValueError, match="at least"):
        open_images([])


def test_pipes_devices_and_names_that_are_none_are_unreadable_images(tmp_path):
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "gone.png").symlink_to("nowhere.png")
    (tmp_path / "list.txt").write_bytes(b"fifo.png\nzero.png\ngone.png\na\0b.png\n" + b"a" * 5000 + b".png\n")
    (tmp_path / "large.png").write_bytes(b"")
    os.truncate(tmp_path / "large.png", (1 << 30) + 1)  # takes no place on the disk
    reasons = []
    for images in (open_images(tmp_path / "list.txt"), open_images(tmp_path)):
        for row in range(len(images.keys)):
            with pytest.raises(UnreadableImage) as refused:
                read_image(images, row)
            reasons.append(str(refused.value))
    device, missing = "a pipe or a device, not a file", "missing"
    assert reasons[:3] == [device, device, missing] and reasons[3].startswith("no name of a file: embedded null")
    assert reasons[4] == "can't be read: File name too long"
    assert reasons[5:] == [device, missing, "1073741825 bytes, more than 1073741824", device]


def test_a_pipe_or_a_device_in_the_place_of_a_source_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(InputError, match=f"{path} should be a folder, a tar, .* is a pipe or a device, not a file"):
            open_images(path)
