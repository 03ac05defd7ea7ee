"""Finish a feature store: key list, list of what was unreadable, description. Extraction and import both end here."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..storage.artefact import read_meta
from ..storage.shards import Shard, ShardedArtefact
from ..text.lines import read_lines, sha256_of_lines
from .store import FEATURE_STORE

UNREADABLE = "unreadable.tsv"
FLOAT16_MAX = float(np.finfo(np.float16).max)


class StoreSummary(NamedTuple):
    """What was made. `unreadable` images have a zero row and count as absent; `zero` ones hold only zeros anyway."""

    images: int
    regions: int
    size: int
    unreadable: int
    zero: int

    def describe(self, out: str | Path) -> str:
        """One or two sentences for whoever ran the command."""
        regions = f"{self.regions} region{'s' if self.regions != 1 else ''} of {self.size} numbers each"
        text = f"{out}: {self.images} images, {regions}."
        for count, what in (
            (self.unreadable, f"are unreadable and count as absent; {Path(out) / UNREADABLE} lists them"),
            (self.zero, "have only zeros as features and count as absent"),
        ):
            if count:
                text += f"\n{count} of {self.images} images ({100 * count / self.images:.1f} %) {what}."
        return text


class StoreWriter:
    """A feature store under construction.

        writer = StoreWriter(out, keys, regions, size, plan, shard_size, strict)
        for shard in writer.missing():
            writer.write(shard, features, unreadable)
        writer.publish(signature)

    Args:
        keys: one per image; I of them.
        plan: what decides the bytes, beside keys and shape.
        strict: the first unreadable image is an error.

    Raises:
        InputError: as `ShardedArtefact`; or, strictly, an earlier run found unreadable images.
    """

    def __init__(
        self,
        out: str | Path,
        keys: Sequence[str],
        regions: int,
        size: int,
        plan: dict[str, Any],
        shard_size: int,
        strict: bool = False,
    ) -> None:
        check_shard_size(shard_size)
        self.keys = keys
        self.shape = (regions, size)
        self.strict = strict
        self._keys_sha256 = sha256_of_lines(list(keys))
        self._artefact = ShardedArtefact(
            out,
            FEATURE_STORE,
            store_plan(plan, self._keys_sha256, regions, size),
            rows=len(keys),
            shard_size=shard_size,
            arrays={"features": ((regions, size), "float16")},
        )
        if self.finished and strict:
            self._refuse_unreadable(self._listed())

    @property
    def finished(self) -> bool:
        """Whether the store was there already, made by the same plan."""
        return self._artefact.finished

    @property
    def share(self) -> int:
        """Images that this process extracts or imports: all of them, or a rank's part."""
        return sum(shard.stop - shard.start for shard in self._artefact.own())

    def missing(self) -> Iterator[Shard]:
        """Shards that this process still has to write; none where the store is finished."""
        return iter(()) if self.finished else self._artefact.missing()

    def write(self, shard: Shard, features: np.ndarray, unreadable: dict[int, str]) -> None:
        """Check and write one shard.

        Args:
            features: (rows of the shard, R, F), any float type.
            unreadable: row in the store -> reason; their features become zero.

        Raises:
            InputError: a feature is NaN, infinite or too large for float16; or, strictly, an image is unreadable.
        """
        self._refuse_unreadable([(self.keys[row], reason) for row, reason in sorted(unreadable.items())])
        features[[row - shard.start for row in unreadable]] = 0
        narrow = to_float16(features, self.keys[shard.start : shard.stop], shard.start)
        zero = int((~narrow.any(axis=(1, 2))).sum()) - len(unreadable)
        listed = [[row, reason] for row, reason in sorted(unreadable.items())]
        self._artefact.write(shard, {"features": narrow}, {"unreadable": listed, "zero": zero})

    def publish(self, signature: str) -> StoreSummary:
        """Give the store its name.

        Raises:
            InputError: every image is unreadable; or, strictly, one is.
        """
        images = len(self.keys)
        if self.finished:
            meta = read_meta(self._artefact.out, FEATURE_STORE, unreadable=int, zero=int)
            return StoreSummary(images, *self.shape, meta["unreadable"], meta["zero"])
        notes = self._artefact.notes(zero=int, unreadable=list)
        zero = sum(note["zero"] for note in notes)
        try:
            unreadable = [(self.keys[row], str(reason)) for note in notes for row, reason in note["unreadable"]]
        except (TypeError, ValueError, IndexError) as error:
            partial = self._artefact.partial
            raise InputError(f"{partial} has a broken list of unreadable images: {error}. Delete {partial}.") from error
        self._refuse_unreadable(unreadable)
        if len(unreadable) == images:
            key, reason = unreadable[0]
            raise InputError(
                f"All {images} images are unreadable; the first is {key} ({reason}). Is this the right place?"
            )
        self._artefact.add_lines("keys.txt", self.keys)
        if unreadable:
            self._artefact.add_lines(UNREADABLE, (f"{key}\t{reason}" for key, reason in unreadable))
        summary = StoreSummary(images, *self.shape, len(unreadable), zero)
        self._artefact.publish(store_meta(summary, self._keys_sha256, signature))
        return summary

    def _listed(self) -> list[tuple[str, str]]:
        path = self._artefact.out / UNREADABLE
        if not path.exists():
            return []
        return [(key, reason) for key, _, reason in (line.partition("\t") for line in read_lines(path))]

    def _refuse_unreadable(self, unreadable: Sequence[tuple[str, str]]) -> None:
        if self.strict and unreadable:
            key, reason = unreadable[0]
            raise InputError(f"{key} is unreadable ({reason}), and --strict allows no such image.")


def check_shard_size(shard_size: int) -> None:
    """Refuse an absurd size.

    Raises:
        InputError: it is less than one image.
    """
    if shard_size < 1:
        raise InputError(f"--shard-size should be 1 image or more, but is {shard_size}.")


def store_plan(plan: dict[str, Any], keys_sha256: str, regions: int, size: int) -> dict[str, Any]:
    """What decides a store's bytes, from what decides its features."""
    return {**plan, "keys_sha256": keys_sha256, "regions": regions, "size": size}


def store_meta(summary: StoreSummary, keys_sha256: str, signature: str) -> dict[str, Any]:
    """What `meta.json` says about a store, beside its plan."""
    return {**summary._asdict(), "keys_sha256": keys_sha256, "signature": signature}


def to_float16(features: np.ndarray, keys: Sequence[str], first_row: int) -> np.ndarray:
    """Halve the numbers' width, and refuse what float16 can't hold.

    Args:
        features: (images, R, F), any float type.
        keys: of these images.
        first_row: of these images in the store, for the message.

    Raises:
        InputError: NaN, infinity, or a number beyond ±65504, with its row and key.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = features.astype(np.float16)
    finite = np.isfinite(narrow).all(axis=(1, 2))
    if not finite.all():
        place = int(np.argmin(finite))
        values = features[place].astype(np.float64)
        worst = values[~np.isfinite(narrow[place])].flat[0]
        what = f"{worst:g}, too large for float16 (±{FLOAT16_MAX:g}); scale them" if np.isfinite(worst) else f"{worst}"
        raise InputError(
            f"features should be finite numbers, but row {first_row + place} ({keys[place]}) holds {what}. "
            f"{int((~finite).sum())} such images among these {len(finite)}."
        )
    return narrow
