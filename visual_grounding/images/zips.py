"""Images in a zip, read from its middle. Nothing is unpacked: a member's name is a key, and never becomes a path."""

import bz2
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..storage.outside import check_file
from .decoding import UnreadableImage
from .keys import MAX_BYTES, digest_of, is_image_name

_ENCRYPTED = 0x1 | 0x40  # plain and strong
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # before each member: magic, …, lengths of its name and of its extra field
# Before a member by LZMA: two bytes, the size of what follows, lc, lp and pb as one, the size of the dictionary.
_LZMA_HEADER = struct.Struct("<2xHBI")
_MAGIC = b"PK\x03\x04"
_METHODS = {
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
    zipfile.ZIP_BZIP2,
    zipfile.ZIP_LZMA,
    getattr(zipfile, "ZIP_ZSTANDARD", zipfile.ZIP_STORED),  # from Python 3.14 on
}


class ZippedImages:
    """Images that are members of a zip, of any compression that Python's zipfile reads.

    Raises:
        InputError: it is no zip, broken, encrypted, or compressed by a method that can't be read here.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            check_file(path)
            with zipfile.ZipFile(path) as file:
                members = [
                    member for member in file.infolist() if not member.is_dir() and is_image_name(member.filename)
                ]
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
        except Exception as error:  # BadZipFile, struct.error, UnicodeDecodeError, NotImplementedError, … by the damage
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise InputError(f"{path} should be a whole zip, but isn't: {reason}. Copy it again.") from error
        members.sort(key=lambda member: member.filename)
        for member in members:
            if member.flag_bits & _ENCRYPTED:
                raise InputError(
                    f"{path} should be a zip without password, but {member.filename!r} in it is encrypted. "
                    "Unpack it, and give the folder."
                )
            if member.compress_type not in _METHODS:
                name = zipfile.compressor_names.get(member.compress_type, "unknown")  # type: ignore[attr-defined]
                raise InputError(
                    f"{path} should be stored or compressed by deflate, bzip2 or lzma, but {member.filename!r} in it "
                    f"is compressed by method {member.compress_type} ({name}). Unpack it, and give the folder."
                )
        self._members = members
        self.keys: Sequence[str] = [member.filename for member in members]
        self.digest = digest_of((member.filename, member.file_size) for member in members)

    def read(self, row: int) -> bytes:
        """The bytes of one member, its checksum verified. No position in the file is shared: processes may read, too.

        Raises:
            UnreadableImage: it is too large, broken or cut off.
            InputError: the zip is gone; that isn't one unreadable image but all of them.
        """
        member = self._members[row]
        for size in (member.file_size, member.compress_size):
            if size > MAX_BYTES:
                raise UnreadableImage(f"{size} bytes, more than {MAX_BYTES}")
        try:
            with open(self._path, "rb", buffering=0) as file:
                packed = _packed(file.fileno(), member)
            return _unpacked(packed, member)
        except FileNotFoundError as error:
            raise InputError(f"{self._path} was there, but is gone. Bring it back; what is done stays.") from error
        except Exception as error:  # a broken member: BadZipFile, zlib.error, LZMAError, EOFError, OSError, …
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UnreadableImage(f"broken or truncated: {reason}") from error


def _packed(file: int, member: zipfile.ZipInfo) -> bytes:
    """A member's bytes as they lie in the file."""
    header = os.pread(file, _LOCAL_HEADER.size, member.header_offset)
    magic, name, extra = _LOCAL_HEADER.unpack(header)
    if magic != _MAGIC:
        raise zipfile.BadZipFile(f"no member begins at byte {member.header_offset}")
    return os.pread(file, member.compress_size, member.header_offset + _LOCAL_HEADER.size + name + extra)


def _unpacked(packed: bytes, member: zipfile.ZipInfo) -> bytes:
    """A member's content. Never more than it says: zipfile would unpack all of it first, gigabytes from a few bytes."""
    most = member.file_size + 1
    if member.compress_type == zipfile.ZIP_STORED:
        content = packed
    elif member.compress_type == zipfile.ZIP_DEFLATED:
        content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most)
    elif member.compress_type == zipfile.ZIP_BZIP2:
        content = bz2.BZ2Decompressor().decompress(packed, most)
    elif member.compress_type == zipfile.ZIP_LZMA:
        size, coded, dictionary = _LZMA_HEADER.unpack_from(packed)
        if size != _LZMA_HEADER.size - 4 or dictionary > MAX_BYTES:
            raise zipfile.BadZipFile("its LZMA header makes no sense")
        filters = {"id": lzma.FILTER_LZMA1, "dict_size": dictionary, "lc": coded % 9, "lp": coded // 9 % 5}
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{**filters, "pb": coded // 45}])
        content = unpacker.decompress(packed[_LZMA_HEADER.size :], most)
    else:
        from compression import zstd  # type: ignore[import-not-found]  # from Python 3.14 on

        content = zstd.ZstdDecompressor().decompress(packed, most)
    if len(content) != member.file_size:
        less = "less" if len(content) < member.file_size else "more"
        raise zipfile.BadZipFile(f"it has {less} than the {member.file_size} bytes that it says")
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {member.filename!r}")
    return content
