"""Paired images: each sentence gets the one image that its corpus has for it."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..shares import warn_of
from .finder import Conclusion, Finder, Flags, Found
from .image_ids import NO_IMAGE


class PairedFinder(Finder):
    """The row of each line's image key, score 1; none for an empty or unknown key.

    Args:
        store: the images.
        strict: an unknown key, or an image of which the store has nothing, is an error.
    """

    method = "paired"
    reads = "image_keys"
    excludes = False
    shard_size = None
    counts = ("unknown",)
    images_per_sentence = 1
    collection: FeatureStore

    def __init__(self, store: FeatureStore, strict: bool = False) -> None:
        self.collection = store
        self.strict = strict
        self.plan = {}
        self.signed = {}
        self._such_as = ""  # an unknown key, for the warning

    @classmethod
    def add_arguments(cls, parser: Flags) -> None:
        """Flags of paired images."""
        parser.add_argument("--image-features", type=Path, required=True, metavar="DIR", help="feature store")
        parser.add_argument(
            "--strict", action="store_true", help="keys that the store lacks, or has nothing of, are an error"
        )

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Open the store.

        Raises:
            InputError: it isn't there, or isn't whole.
        """
        return cls(FeatureStore(args.image_features), args.strict)

    def check_table(self, lines: list[str]) -> None:
        """Refuse keys of another collection, or spelled in another way.

        Raises:
            InputError: the store has none of the keys.
        """
        rows = self.collection.rows_of(key for key in lines if key)
        unknown = next(((number, key) for number, key in enumerate(lines, 1) if key and key not in rows), None)
        if unknown is None:
            return
        own = next(iter(self.collection.keys()), "")
        self._such_as = f", such as {unknown[1]!r} in line {unknown[0]}; the store's are like {own!r}"
        if not rows:
            raise InputError(
                f"the keys should be of images in feature store {self.collection.folder}, but it has none of "
                f"them{self._such_as}.",
                "keys",
            )

    def check_lines(self, lines: list[str]) -> None:
        """Refuse unknown keys, and images of which the store has nothing, where finding is strict.

        Raises:
            InputError: there are some.
        """
        if not self.strict:
            return
        rows = self.collection.rows_of(key for key in lines if key)
        unknown = [(line, key) for line, key in enumerate(lines, 1) if key and key not in rows]
        if unknown:
            line, key = unknown[0]
            raise InputError(
                f"every key should be in feature store {self.collection.folder}, but {len(unknown)} of {len(lines)} "
                f"aren't, the first {key!r} in line {line}. When finding isn't strict, these sentences get no image.",
                "strict",
            )
        absent = self.collection.absent(np.array([rows[key] for key in lines if key], dtype=np.int64))
        if absent.any():
            first = [key for key in lines if key][int(absent.argmax())]
            raise InputError(
                f"every image should be in feature store {self.collection.folder}, but of those of {int(absent.sum())} "
                f"of {len(lines)} lines it has nothing, the first {first!r}: it couldn't be read, or nothing was found "
                "in it. When finding isn't strict, they count as none.",
                "strict",
            )

    def are_empty(self, lines: list[str]) -> np.ndarray:
        """Lines without a key; one of blanks is a key like any.

        Shapes:
            returns: (L,) bool
        """
        return np.array([not line for line in lines], dtype=bool)

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """Look the keys up.

        Shapes:
            empty: (L,) bool;  excluded: None
        """
        rows = self.collection.rows_of(key for key in lines if key)
        ids = np.array([rows.get(key, NO_IMAGE) for key in lines], dtype=np.int32).reshape(-1, 1)  # (L, 1)
        there = ids != NO_IMAGE  # (L, 1)
        return Found(ids, there.astype(np.float32), {"unknown": int((~there[~empty]).sum())})

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Count images of which the store has nothing, where there are any.

        Shapes:
            ids: (L, 1);  excluded: None
        """
        absent = int(self.collection.absent(np.asarray(ids)[np.asarray(ids) != NO_IMAGE]).sum())
        return Conclusion({**counts, **({"absent": absent} if absent else {})}, {})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """Sentences without an image, or with one that says nothing, and why."""
        without = counts["empty"] + counts["unknown"]
        said = f"have no image; {counts['unknown']} of them have a key that the store doesn't have{self._such_as}."
        yield from warn_of(without, lines, said)
        said = f"have an image of which {self.collection.folder} has nothing: it counts as none."
        yield from warn_of(counts.get("absent", 0), lines, said)
