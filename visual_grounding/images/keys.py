"""What every source of images agrees on: which names are images, which keys are sound, when a collection is another."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import InputError

SUFFIXES = frozenset([".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"])
# The largest picture that is decoded, as plain 32-bit TIFF, is smaller. A container may say that a member has any size.
MAX_BYTES = 1 << 30
_UNFIT = re.compile("[\t\n\r\ud800-\udfff]")


def is_image_name(name: str) -> bool:
    """Whether a file or member counts as an image: it has such a suffix and isn't hidden.

    >>> [is_image_name(name) for name in ("a/b.JPG", "a/.b.jpg", "a/b.txt")]
    [True, False, False]
    """
    base = os.path.basename(name)
    # What `check_keys` refuses is an image nevertheless: left out, it would be missed in silence.
    return not base.startswith(".") and os.path.splitext(base)[1].rstrip("\t\n\r").lower() in SUFFIXES


def is_sound_key(key: str) -> bool:
    """Whether a key fits on a line of a UTF-8 list of `key<TAB>…`: not empty, no tab, line break or lone surrogate."""
    return bool(key) and not _UNFIT.search(key)


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
        if not is_sound_key(key):
            raise InputError(
                f"{origin}: image key number {number} should be UTF-8, not empty, and without tab or line break, "
                f"but is {key!r}. Rename it, or take it out."
            )


def digest_of(sizes: Iterable[tuple[str, int]]) -> str:
    """Digest of keys and file sizes: the same images in a folder, a tar or a zip have the same."""
    digest = hashlib.sha256()
    for key, size in sizes:
        digest.update(f"{key}\t{size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
