"""Finish a feature store: key list, list of what was unreadable, description. Extraction and import both end here."""

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, check_at_least_one
from ..shares import share
from ..storage.artefact import read_meta
from ..storage.lines import read_lines, sha256_of_lines
from ..storage.shards import Shard, ShardedArtefact
from .columns import NO_COLUMNS, Columns, check_values, clear_absent
from .store import FEATURE_STORE

UNREADABLE = "unreadable.tsv"
_LEFT_OUT = ("dropped", "weak", "surplus")
_COUNTS = ("zero", "cleared", *_LEFT_OUT)  # of each shard, and of the store
FLOAT16_MAX = float(np.finfo(np.float16).max)


class StoreSummary(NamedTuple):
    """What was made.

    Attributes:
        unreadable: images that have a zero row and count as absent.
        zero: images that hold only zeros anyway.
        columns: what the store says of regions beside their features.
        cleared: regions with only zeros as features of which columns said something; that was left out.
        dropped: boxes that a detector found and that had no area; they were left out.
        weak: regions that were left out since their score was too low.
        surplus: regions that were left out since their image had better ones.
    """

    images: int
    regions: int
    size: int
    unreadable: int
    zero: int
    columns: tuple[str, ...] = ()
    cleared: int = 0
    dropped: int = 0
    weak: int = 0
    surplus: int = 0

    def describe(self, out: str | Path) -> str:
        """One or two sentences for whoever ran the command."""
        regions = f"{self.regions} region{'s' if self.regions != 1 else ''} of {self.size} numbers each"
        text = f"{out}: {self.images} images, {regions}{', with ' if self.columns else ''}{', '.join(self.columns)}."
        for count, what in (
            (self.unreadable, f"are unreadable and count as absent; {Path(out) / UNREADABLE} lists them"),
            (self.zero, "have only zeros as features and count as absent"),
        ):
            if count:
                text += f"\n{share(count, self.images, 'images')} {what}."
        if self.cleared:
            cleared = share(self.cleared, self.images * self.regions, "regions")
            said = f"what {', '.join(self.columns)} say of them was left out"
            text += f"\n{cleared} have only zeros as features, so they are absent; {said}."
        for count, what in (
            (self.dropped, "had no area inside of their picture, and were left out"),
            (self.weak, "scored below the lowest score that was asked for, and were left out"),
            (self.surplus, f"had {self.regions} better ones in their image, and were left out"),
        ):
            if count:
                text += f"\n{count} region{'s' if count != 1 else ''} {what}."
        return text


class StoreWriter:
    """A feature store under construction.

        writer = StoreWriter(out, keys, regions, size, plan, shard_size, columns=Columns(("boxes",)))
        for shard in writer.missing():
            writer.write(shard, features, unreadable, {"boxes": boxes})
        writer.publish(signature)

    Args:
        keys: one per image; I of them.
        plan: what decides the bytes, beside keys, shape and columns.
        strict: the first unreadable image is an error, and so is an absent region of which a column says something.
        columns: which there will be beside the features.

    Raises:
        InputError: as `ShardedArtefact` and `Columns.check`; or, strictly, an earlier run found what isn't allowed.
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
        columns: Columns = NO_COLUMNS,
    ) -> None:
        check_at_least_one(shard_size=shard_size)
        columns.check()
        self.keys = keys
        self.shape = (regions, size)
        self.strict = strict
        self.columns = columns
        self._keys_sha256 = sha256_of_lines(list(keys))
        self._artefact = ShardedArtefact(
            out,
            FEATURE_STORE,
            store_plan(plan, self._keys_sha256, regions, size, columns),
            rows=len(keys),
            shard_size=shard_size,
            arrays={"features": ((regions, size), "float16"), **columns.arrays(regions)},
        )
        if self.finished and strict:
            self._refuse_unreadable(self._listed())
            self._refuse_cleared(self._summary().cleared)

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

    def write(
        self,
        shard: Shard,
        features: np.ndarray,
        unreadable: dict[int, str],
        columns: Mapping[str, np.ndarray] | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        """Check and write one shard.

        Args:
            features: (rows of the shard, R, F), any float type.
            unreadable: row in the store -> reason; their features become zero.
            columns: name -> (rows of the shard, R, ...), for each column that there is.
            left_out: regions that aren't among these any more: "dropped", "weak" or "surplus", as in `StoreSummary`.

        Raises:
            InputError: a feature is NaN, infinite or too large for float16; other columns than promised; as
                `check_values`; or, strictly, an image is unreadable, or a column says something of an absent region.
        """
        self._refuse_unreadable([(self.keys[row], reason) for row, reason in sorted(unreadable.items())])
        features[[row - shard.start for row in unreadable]] = 0
        keys = self.keys[shard.start : shard.stop]
        narrow = to_float16(features, keys, shard.start)
        present = narrow.any(axis=2)  # (rows, R)
        zero = int((~present.any(axis=1)).sum()) - len(unreadable)
        listed = [[row, reason] for row, reason in sorted(unreadable.items())]
        notes: dict[str, Any] = {"unreadable": listed, "zero": zero, **(left_out or {})}
        columns = columns or {}
        if set(columns) != set(self.columns.present):
            promised, given = (", ".join(names) or "none" for names in (self.columns.present, columns))
            raise InputError(f"columns should be {promised}, but are {given}.")
        check_values(columns, self.columns, present, keys, shard.start)
        cleared, said = clear_absent(columns, present)
        if self.columns.present:
            said[[row - shard.start for row in unreadable]] = False  # nothing of theirs was read
            self._refuse_cleared(int(said.sum()), said, shard)
            notes["cleared"] = int(said.sum())
        self._artefact.write(shard, {"features": narrow, **cleared}, notes)

    def publish(self, signature: str) -> StoreSummary:
        """Give the store its name.

        Raises:
            InputError: every image is unreadable; or, strictly, one is, or a column said something of an absent region.
        """
        images = len(self.keys)
        if self.finished:
            return self._summary()
        fields: dict[str, type] = {"cleared": int} if self.columns.present else {}
        notes = self._artefact.notes(zero=int, unreadable=list, **fields)
        unreadable = [
            (self.keys[row], reason) for row, reason in noted_unreadable(self._artefact, notes, range(images))
        ]
        self._refuse_unreadable(unreadable, f" If it was mended since, delete {self._artefact.partial}.")
        if len(unreadable) == images:
            key, reason = unreadable[0]
            raise InputError(
                f"All {images} images are unreadable; the first is {key} ({reason}). Is this the right place? When "
                f"that is mended, delete {self._artefact.partial}, which remembers them, and run this again."
            )
        zero, cleared, *left_out = (sum(note.get(name, 0) for note in notes) for name in _COUNTS)
        self._refuse_cleared(cleared)
        self._artefact.add_lines("keys.txt", self.keys)
        if unreadable:
            self._artefact.add_lines(UNREADABLE, (f"{key}\t{reason}" for key, reason in unreadable))
        for name, lines in self.columns.files().items():
            self._artefact.add_lines(name, lines)
        summary = StoreSummary(images, *self.shape, len(unreadable), zero, self.columns.present, cleared, *left_out)
        self._artefact.publish(store_meta(summary, self._keys_sha256, signature, self.columns))
        return summary

    def _summary(self) -> StoreSummary:
        """Of a store that is there already."""
        fields: dict[str, type] = {"cleared": int} if self.columns.present else {}
        meta = read_meta(self._artefact.out, FEATURE_STORE, unreadable=int, zero=int, **fields)
        zero, *others = (meta.get(name, 0) for name in _COUNTS)
        return StoreSummary(len(self.keys), *self.shape, meta["unreadable"], zero, self.columns.present, *others)

    def _listed(self) -> list[tuple[str, str]]:
        return read_unreadable(self._artefact.out)

    def _refuse_unreadable(self, unreadable: Sequence[tuple[str, str]], remedy: str = "") -> None:
        if self.strict and unreadable:
            key, reason = unreadable[0]
            raise InputError(f"{key} is unreadable ({reason}); strictly, no such image is allowed.{remedy}", "strict")

    def _refuse_cleared(self, count: int, said: np.ndarray | None = None, shard: Shard | None = None) -> None:
        if self.strict and count:
            first = ""
            if said is not None and shard is not None:
                row, region = (int(place) for place in np.argwhere(said)[0])
                first = f" The first is region {region} of row {shard.start + row} ({self.keys[shard.start + row]})."
            names = ", ".join(self.columns.present)
            raise InputError(
                f"{count} regions have only zeros as features, so they are absent, but {names} say something of them; "
                f"strictly, no such region is allowed.{first}",
                "strict",
            )


def read_unreadable(folder: Path) -> list[tuple[str, str]]:
    """Keys and reasons of a store's images that couldn't be read.

    Raises:
        InputError: as `read_lines`.
    """
    path = folder / UNREADABLE
    if not path.exists():
        return []
    return [(key, reason) for key, _, reason in (line.partition("\t") for line in read_lines(path, pipes=False))]


def noted_unreadable(
    artefact: ShardedArtefact, notes: Sequence[Mapping[str, Any]], images: Container[Any]
) -> list[tuple[Any, str]]:
    """What the shards of an unfinished output noted as unreadable: images, as they are called there, and reasons.

    Args:
        images: names of all.

    Raises:
        InputError: something else stands there.
    """
    noted = [entry for note in notes for entry in note["unreadable"]]
    for entry in noted:
        pair = entry if isinstance(entry, list) and len(entry) == 2 else [None, None]
        if not isinstance(pair[0], int | str) or pair[0] not in images or not isinstance(pair[1], str):
            raise InputError(
                f"{artefact.partial} should name the images that couldn't be read, each with a reason, but has "
                f"{str(entry)[:80]}. Delete {artefact.partial}.",
                "out",
            )
    return [(image, reason) for image, reason in noted]


def store_plan(
    plan: dict[str, Any], keys_sha256: str, regions: int, size: int, columns: Columns = NO_COLUMNS
) -> dict[str, Any]:
    """What decides a store's bytes, from what decides its features."""
    return {**plan, "keys_sha256": keys_sha256, "regions": regions, "size": size, **columns.described()}


def store_meta(
    summary: StoreSummary, keys_sha256: str, signature: str, columns: Columns = NO_COLUMNS
) -> dict[str, Any]:
    """What `meta.json` says about a store, beside its plan."""
    counts = summary._asdict()
    if not columns.present:  # stores without columns have the bytes that they had before there were any
        del counts["columns"], counts["cleared"]
    for name in _LEFT_OUT:
        if not counts[name]:
            del counts[name]
    return {**counts, **columns.described(), "keys_sha256": keys_sha256, "signature": signature}


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
