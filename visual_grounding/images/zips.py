"""Images in a zip, read from its middle. Nothing is unpacked: a member's name is a key, and never becomes a path."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .decoding import UnreadableImage
from .keys import MAX_BYTES, digest_of, is_image_name

_ENCRYPTED = 0x1 | 0x40  # plain and strong
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
        try:
            self._zip = zipfile.ZipFile(path)  # lives as long as the source; its reads from several threads are safe
            members = [
                member for member in self._zip.infolist() if not member.is_dir() and is_image_name(member.filename)
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
        """The bytes of one member, its checksum verified."""
        member = self._members[row]
        if member.file_size > MAX_BYTES:
            raise UnreadableImage(f"{member.file_size} bytes, more than {MAX_BYTES}")
        try:
            return self._zip.read(member)
        except Exception as error:  # a broken member: BadZipFile, zlib.error, LZMAError, EOFError, OSError, …
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UnreadableImage(f"broken or truncated: {reason}") from error
