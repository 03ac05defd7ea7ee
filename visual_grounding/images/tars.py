"""Images in uncompressed tars, read by their offset: one tar, or those of a webdataset.

Only the headers are read to make the index, once and in a stream. Nothing is unpacked.
"""

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..storage.outside import open_file
from .decoding import UnreadableImage
from .keys import MAX_BYTES, digest_of, is_image_name

_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"(\xb5/\xfd")  # gzip, bzip2, xz, zstandard


class Member(NamedTuple):
    """Where the bytes of one image lie."""

    name: str
    tar: int
    offset: int
    size: int


class TarredImages:
    """Images that are members of tars; see `ImageSource`. The order is that of the tars, then of the names."""

    def __init__(self, paths: Sequence[Path], members: Sequence[Member]) -> None:
        self._paths = paths
        self._places = [(member.tar, member.offset, member.size) for member in members]
        self.keys: Sequence[str] = [member.name for member in members]
        self.digest = digest_of((member.name, member.size) for member in members)

    def read(self, row: int) -> bytes:
        """The bytes of one member. A thread opens the tar for itself: a webdataset has more of them than may be open.

        Raises:
            UnreadableImage: it is too large.
            InputError: the tar is gone; that isn't one unreadable image but all of them.
        """
        tar, offset, size = self._places[row]
        if size > MAX_BYTES:
            raise UnreadableImage(f"{size} bytes, more than {MAX_BYTES}")
        try:
            with open(self._paths[tar], "rb", buffering=0) as file:
                return os.pread(file.fileno(), size, offset)
        except FileNotFoundError as error:
            raise InputError(
                f"{self._paths[tar]} was there, but is gone. Bring it back; what is done stays."
            ) from error


def images_of_tar(path: Path) -> TarredImages:
    """Every image of one tar; key = its name there.

    Raises:
        InputError: it is no tar, or compressed, cut off or broken.
    """
    return TarredImages([path], sorted(_image_members(path, 0)))


def images_of_webdataset(paths: Sequence[Path]) -> TarredImages:
    """The images of a webdataset, one a sample: files with the same path up to the first dot of their basename.

    The first image of a sample counts, so `7.jpg` and not `7.mask.png` behind it. Key = its name.

    Raises:
        InputError: as for one tar; or two images have the same name.
    """
    members: list[Member] = []
    origin: dict[str, int] = {}
    for number, path in enumerate(paths):
        samples: dict[str, Member] = {}
        for member in _image_members(path, number):
            first = samples.setdefault(_sample_of(member.name), member)
            twice = first is not member and first.name == member.name
            if twice or member.name in origin:
                other = path if twice else paths[origin[member.name]]
                raise InputError(
                    f"Image names should be unique in all {len(paths)} tars, but {member.name!r} is in {other} "
                    f"and {'again there' if twice else f'in {path}'}."
                )
        origin.update((member.name, number) for member in samples.values())
        members += sorted(samples.values())
    return TarredImages(paths, members)


def _sample_of(name: str) -> str:
    """The path up to the first dot of the basename.

    >>> _sample_of("a.b/7.mask.png")
    'a.b/7'
    """
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _image_members(path: Path, number: int) -> Iterator[Member]:
    """Images of a tar in its own order.

    Raises:
        InputError: it is no tar, or compressed, cut off or broken.
    """
    try:
        with open_file(path) as file:
            if file.read(6).startswith(_COMPRESSED):
                raise InputError(
                    f"{path} should be an uncompressed tar, since images are read from its middle, but is compressed. "
                    f"Uncompress it once, e.g.: gunzip -c {path} > {path.name.split('.')[0]}.tar"
                )
        if path.suffix.lower() != ".tar" and not tarfile.is_tarfile(path):
            raise InputError(
                f"{path} should be a tar, a zip, a parquet file or a .txt list of images, or a folder, but is none."
            )
        position = -1
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                if member.offset <= position or member.size < 0:  # it could lead back, round and round
                    raise tarfile.ReadError(f"the header at byte {member.offset} is broken")
                position = member.offset
                if member.isfile() and not member.issparse() and is_image_name(member.name):
                    yield Member(member.name, number, member.offset_data, member.size)
                tar.members = []  # type: ignore[attr-defined]  # else tarfile keeps an object for every member, seen or not
            end = tar.offset  # type: ignore[attr-defined]
        with open_file(path) as file:  # tarfile takes a broken header for the end
            file.seek(end)
            if any(file.read(tarfile.BLOCKSIZE)):
                raise tarfile.ReadError(f"the header at byte {end} is broken")
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    except Exception as error:  # TarError, EOFError, ValueError, RecursionError, … by the damage
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InputError(f"{path} should be a whole tar, but isn't: {reason}. Copy it again.") from error
