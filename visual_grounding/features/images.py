"""Pictures by key: where they lie (a folder, a tar, a list of paths) and how their bytes become RGB pixels.

A source only knows keys and bytes; nothing is unpacked to disk. Whatever is wrong with a single file is a reason, not a
crash: web collections always hold some files that are missing, empty, cut off, or no picture at all.
"""

import hashlib
import io
import os
import stat
import tarfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from ..errors import InputError
from ..text.lines import read_lines

SUFFIXES = frozenset([".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"])
# Only these: for others Pillow would start programs (EPS runs Ghostscript).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
_UPRIGHT = {  # EXIF orientation -> what makes the picture stand upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"(\xb5/\xfd")  # gzip, bzip2, xz, zstandard
_EXIF_ORIENTATION = 0x0112
# Pillow warns from here on and refuses at twice this size; here both are unreadable, so its warning says nothing new.
MAX_PIXELS = 89_478_485
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class UnreadableImage(Exception):
    """One file that can't be turned into pixels; the message is the reason, short enough for a table."""


class ImageSource(Protocol):
    """Images in a fixed order.

    Attributes:
        keys: one name per image, unique.
        fingerprint: digest of keys and file sizes: enough to notice another collection without reading it.
    """

    keys: Sequence[str]
    fingerprint: str

    def read(self, row: int) -> bytes:
        """The bytes of one image file; any thread may call it.

        Raises:
            OSError: the file is missing or can't be read.
        """
        ...


class ImageFiles:
    """Images that are files of their own."""

    def __init__(self, keys: list[str], paths: list[Path]) -> None:
        self.keys: Sequence[str] = keys
        self._paths = paths
        self.fingerprint = _fingerprint(zip(keys, map(_size_of, paths), strict=True))

    def read(self, row: int) -> bytes:
        """The bytes of one image file."""
        return self._paths[row].read_bytes()


class TarredImages:
    """Images that are members of an uncompressed tar, read by their offset in it.

    Raises:
        InputError: it is no tar, or compressed, cut off or broken.
    """

    def __init__(self, path: Path) -> None:
        members = []
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - lives as long as the source
            start = os.pread(self._file.fileno(), 6, 0)
            if start.startswith(_COMPRESSED):
                raise InputError(
                    f"{path} should be an uncompressed tar, since images are read from its middle, but is compressed. "
                    f"Uncompress it once, e.g.: gunzip -c {path} > {path.name.split('.')[0]}.tar"
                )
            if path.suffix.lower() != ".tar" and not tarfile.is_tarfile(path):
                raise InputError(f"{path} should be a folder, a tar or a .txt list of images, but is none of them.")
            with tarfile.open(path, "r:") as tar:
                for member in tar:
                    if member.isfile() and not member.issparse() and _is_image_name(member.name):
                        members.append((member.name, member.offset_data, member.size))
                    tar.members = []  # type: ignore[attr-defined]  # else tarfile keeps an object for every member, seen or not
        except (tarfile.TarError, EOFError) as error:
            raise InputError(f"{path} should be a whole tar, but isn't: {error}. Copy it again.") from error
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
        members.sort()
        self.keys: Sequence[str] = [name for name, _, _ in members]
        self._places = [(offset, size) for _, offset, size in members]
        self.fingerprint = _fingerprint((name, size) for name, _, size in members)

    def read(self, row: int) -> bytes:
        """The bytes of one member; `pread` keeps no position, so threads don't disturb one another."""
        offset, size = self._places[row]
        return os.pread(self._file.fileno(), size, offset)


def open_images(source: str | Path) -> ImageSource:
    """Find the images of a folder, a tar, or a list.

    A folder is searched with its sub-folders; key = path relative to it. A tar's keys are its member names. Both are
    sorted by key, and only names with an image suffix that aren't hidden count. A list (.txt) has one path a line,
    absolute or relative to the list's own folder; key = the line, in the list's order, whether the file exists or not.

    Raises:
        InputError: there is no such source, it holds no image, two images share a key, or a key doesn't fit on a line.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(f"{path} should be a folder, tar or .txt list of images, but doesn't exist.")
    images: ImageSource
    if path.is_dir():
        keys = sorted(_names_below(path))
        images = ImageFiles(keys, [path / key for key in keys])
    elif path.suffix.lower() == ".txt":
        keys = read_lines(path)
        images = ImageFiles(keys, [path.parent / key for key in keys])
    else:
        images = TarredImages(path)
    if not images.keys:
        wanted = "one path a line" if path.suffix.lower() == ".txt" else "files ending in " + " ".join(sorted(SUFFIXES))
        raise InputError(f"{path} should hold images ({wanted}), but there are none.")
    check_keys(images.keys, path)
    return images


def check_keys(keys: Sequence[str], origin: str | Path) -> None:
    """Refuse keys that a key list can't hold.

    Raises:
        InputError: a key is empty, appears twice, or has a tab, a line break or bytes that aren't UTF-8.
    """
    seen: dict[str, int] = {}
    for number, key in enumerate(keys, 1):
        first = seen.setdefault(key, number)
        if first != number:
            raise InputError(
                f"{origin}: image keys should be unique, but {key!r} is number {first} and again number {number}."
            )
        if not key or not set("\t\n\r").isdisjoint(key) or any("\ud800" <= letter <= "\udfff" for letter in key):
            raise InputError(
                f"{origin}: image key number {number} should be UTF-8, not empty, and without tab or line break, "
                f"but is {key!r}. Rename it."
            )


def decode(content: bytes) -> Image.Image:
    """Turn a file's bytes into upright RGB.

    Palettes, grey, CMYK and 16-bit grey are converted; transparency is dropped; of an animation the first frame counts.

    Raises:
        UnreadableImage: with the reason.
    """
    if not content:
        raise UnreadableImage("empty file")
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UnreadableImage(f"{image.width}x{image.height} pixels, more than {MAX_PIXELS} in all")
            image.load()
            return _upright(_to_rgb(image), _orientation(image))
    except UnreadableImage:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImage("not an image") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImage(f"more than {MAX_PIXELS} pixels") from error
    except (
        Exception
    ) as error:  # Pillow's decoders fail in many ways on broken files: OSError, SyntaxError, struct.error, …
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableImage(f"broken or truncated: {reason}") from error


def read_image(images: ImageSource, row: int) -> Image.Image:
    """Read and decode one image.

    Raises:
        UnreadableImage: it is missing, or as `decode`.
    """
    try:
        content = images.read(row)
    except FileNotFoundError as error:
        raise UnreadableImage("missing") from error
    except OSError as error:
        raise UnreadableImage(f"can't be read: {error.strerror or error}") from error
    return decode(content)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # Pillow would clip 16 bits at 255: nearly everything white
        return Image.fromarray((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UnreadableImage("pixels are floating-point numbers of unknown range")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # broken EXIF in a sound picture: it is shown as it lies
        return 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    return image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image


def _names_below(folder: Path) -> Iterable[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if _is_image_name(name):
                yield os.path.relpath(os.path.join(parent, name), folder)


def _is_image_name(name: str) -> bool:
    base = os.path.basename(name)
    return not base.startswith(".") and os.path.splitext(base)[1].lower() in SUFFIXES


def _size_of(path: Path) -> int:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _fingerprint(sizes: Iterable[tuple[str, int]]) -> str:
    digest = hashlib.sha256()
    for key, size in sizes:
        digest.update(f"{key}\t{size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
