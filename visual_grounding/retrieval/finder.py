"""The seam between text and images: a finder finds images for lines of text.

`visual-grounding retrieve` writes what it finds as a table of image ids, by one loop for every method;
`fairseq-interactive` asks it line by line; a data loader's worker asks it with text as it was masked. A new way of
finding is a class derived from `Finder`, in one file: one of `METHODS`, or anywhere, named as `package.module:Name` or
by an entry point of the group `visual_grounding.finders`.
"""

import argparse
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from ..errors import InputError, first_line
from ..extensions import class_named
from ..features.store import FeatureStore
from ..flags import FlagParser
from ..shares import warn_of
from ..storage.artefact import open_array
from ..storage.lines import sha256_of_lines
from ..storage.ranks import this_rank
from ..storage.shards import ShardedArtefact
from ..storage.signature import signature
from ..text.resemblance import places, sketch
from .exclusion import Collection, rows_to_exclude
from .image_ids import IMAGE_IDS, NO_IMAGE, ImageIds

if TYPE_CHECKING:
    from .masked_queries import MaskedQueries

METHODS = {  # imported when they are asked for
    "dense": "visual_grounding.retrieval.dense:DenseFinder",
    "keyword": "visual_grounding.retrieval.keyword:KeywordFinder",
    "object": "visual_grounding.retrieval.object:ObjectFinder",
    "paired": "visual_grounding.retrieval.paired:PairedFinder",
    "scene": "visual_grounding.retrieval.scene:SceneFinder",
}
IMAGES_PER_SENTENCE = 8  # VA §4.1
SENTENCES_PER_SHARD = 8192
_MOST_OF_FEW = 1024  # images per sentence where the collection has fewer: rows are filled up with −1

Flags = argparse.ArgumentParser | argparse._ArgumentGroup  # what flags are added to


class Found(NamedTuple):
    """Images of some lines.

    Shapes:
        ids: (L, N) int32, rows of the collection, best first, −1 = none
        scores: (L, N) float32, what the method ranks by, 0 where there is no image
        counts: what there is to say about these lines, e.g. how many were empty
    """

    ids: np.ndarray
    scores: np.ndarray
    counts: dict[str, int]


class Conclusion(NamedTuple):
    """What a method says about a whole table.

    Attributes:
        counts: the sums of `Found.counts`, and whatever else there is to count.
        measured: fractions, such as the recall of an approximate search; they stand in the table's signature, too.
    """

    counts: dict[str, int]
    measured: dict[str, float]


class Finder(ABC):
    """A way of finding images for lines; `search` is what each brings.

    It may be pickled, or copied by fork, into a data loader's worker: whatever is open is opened again there.

    Attributes:
        method: as on the command line; `package.module:Name` where a class doesn't give itself a name.
        reads: what its lines are: "text", or "image_keys".
        excludes: whether a row that must not be found can be named for each line.
        shard_size: lines between two save points of a table, unless something else is asked for; None for all at once.
        counts: names in `Found.counts`, beside `empty`.
        collection: the images; ids are its rows.
        images_per_sentence: N.
        plan: JSON-ready; whatever decides what is found, for a given text.
        signed: what of that a table's signature names.
    """

    method: ClassVar[str]
    reads: ClassVar[str] = "text"
    excludes: ClassVar[bool] = True
    shard_size: ClassVar[int | None] = SENTENCES_PER_SHARD
    counts: ClassVar[tuple[str, ...]] = ()
    collection: Collection
    images_per_sentence: int
    plan: dict[str, Any]
    signed: dict[str, object]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "method" not in cls.__dict__:
            cls.method = f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def add_arguments(cls, parser: Flags) -> None:
        """Flags of this method; none, unless it brings some."""
        return

    @classmethod
    @abstractmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Open a finder with the flags that `add_arguments` added.

        Raises:
            InputError: what they name isn't there, or doesn't belong together.
        """

    @abstractmethod
    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """Images of each line; `find` takes care of empty lines, which may get any here.

        Args:
            lines: of text.
            empty: lines that say nothing; a method may mark more of them, which it can make nothing of.
            excluded: a row that each line must not get, −1 for none.

        Shapes:
            empty: (L,) bool;  excluded: (L,)
        """

    def find(self, lines: Sequence[str], excluded: np.ndarray | None = None) -> Found:
        """Images of each line, best first; an empty line gets none.

        Args:
            lines: of text.
            excluded: a row that each line must not get, −1 for none.

        Shapes:
            excluded: (L,)

        Raises:
            InputError: as `check_lines`, or rows are excluded, but this method can't do that.
            ValueError: the method returns rows that the collection doesn't have, or not N for each line, or one that is
                excluded, or scores that a table can't hold.
        """
        self.check_excludes(excluded is not None)
        lines = list(lines)
        self.check_lines(lines)
        empty = self.are_empty(lines)
        ids, scores, counts = self.search(lines, empty, excluded)
        self._check_found(ids, scores, len(lines))
        ids, scores = ids.astype(np.int32), scores.astype(np.float32)
        ids[empty], scores[empty] = NO_IMAGE, 0
        if not (np.abs(scores) <= np.finfo(np.float16).max).all():  # NaN isn't, either
            raise ValueError(f"{self.method} should give scores within float16, but gave {np.abs(scores).max()}")
        if excluded is not None and (ids == np.where(excluded < 0, NO_IMAGE - 1, excluded)[:, None]).any():
            raise ValueError(f"{self.method} should leave out the row that is excluded for a line, but found it")
        return Found(ids, scores, {"empty": int(empty.sum()), **counts})

    def _check_found(self, ids: np.ndarray, scores: np.ndarray, lines: int) -> None:
        """Refuse what a method of somebody else's mustn't return; a table of it would be refused only in training."""
        expected = (lines, self.images_per_sentence)
        if ids.shape != expected or scores.shape != expected:
            raise ValueError(
                f"{self.method} should find ids and scores {expected}, but found {ids.shape}, {scores.shape}"
            )
        if ids.size and not (ids.min() >= NO_IMAGE and ids.max() < len(self.collection)):
            worst = int(ids.max()) if ids.max() >= len(self.collection) else int(ids.min())
            raise ValueError(f"{self.method} should find rows −1..{len(self.collection) - 1}, but found {worst}")
        if not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(f"{self.method} should find rows as whole numbers, but found {ids.dtype}")

    def check_lines(self, lines: list[str]) -> None:  # noqa: B027 - a method may take any
        """Refuse lines, if there is something to refuse, before anything is written.

        Raises:
            InputError: there is.
        """

    def check_table(self, lines: list[str]) -> None:  # noqa: B027 - a method may take any
        """Refuse all lines of a table together, before anything is written; `find` may get any part of them.

        Raises:
            InputError: there is something to refuse.
        """

    def are_empty(self, lines: list[str]) -> np.ndarray:
        """Which lines say nothing.

        Shapes:
            returns: (L,) bool
        """
        return np.array([not line.strip() for line in lines], dtype=bool)

    def make_shared(self) -> None:  # noqa: B027 - a method may have nothing to prepare
        """Make now what copies in other processes should share, instead of when it is needed.

        Raises:
            InputError: it can't be made.
        """

    def working_in(self, folder: Path) -> AbstractContextManager[None]:
        """While many lines are searched: a place for files, which the method makes and removes if it needs it."""
        return nullcontext()

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Look at a whole table before it is published.

        Shapes:
            ids: (S, N);  excluded: (S,)
        """
        return Conclusion(counts, {})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """What a person should know about the counts of so many lines."""
        yield from warn_of(counts["empty"], lines, "are empty; they have no image.")

    @property
    def signature(self) -> str:
        """How it finds, in one line; that of a table also has what was measured, excluded or masked there."""
        signed = getattr(self, "signed", {})  # a method of somebody else's may have none, until it writes a table
        keys = self.collection.keys_sha256[:8]
        return signature("find", method=self.method, n=self.images_per_sentence, **signed, keys=keys)

    @property
    def device(self) -> str:
        """Where it computes: `cpu`, or `cuda` and so on, where a forked process can't."""
        return "cpu"

    def check_count(self) -> None:
        """Refuse more images per sentence than there could be, before memory is asked for.

        Raises:
            InputError: they are more than the collection has, and than a few.
        """
        most = max(len(self.collection), _MOST_OF_FEW)
        if self.images_per_sentence > most:
            raise InputError(
                f"the images per sentence should be at most {most}, but are {self.images_per_sentence}: the collection "
                f"has {len(self.collection)}.",
                "images_per_sentence",
            )

    def check_excludes(self, asked: bool) -> None:
        """Refuse rows to exclude where that means nothing.

        Raises:
            InputError: it does.
        """
        if asked and not self.excludes:
            raise InputError(f"method {self.method} can't exclude images, so none should be named.", "exclude_paired")

    def check_store(self, store: FeatureStore) -> None:
        """Refuse features of other images than those that are found.

        Raises:
            InputError: their keys differ.
        """
        if self.collection.keys_sha256 != store.keys_sha256:
            raise InputError(
                f"images are found in {self.collection.folder}, but feature store {store.folder} was made from "
                f"a different collection: keys sha256 {self.collection.keys_sha256[:8]}… ≠ {store.keys_sha256[:8]}…. "
                "Give the features of the images that are found, or find images among those of this store."
            )


def add_images_per_sentence(parser: Flags) -> None:
    """The flag of N, for methods that leave it open."""
    parser.add_argument(
        "-n",
        "--images-per-sentence",
        type=int,
        default=IMAGES_PER_SENTENCE,
        metavar="N",
        help="(default: %(default)s)",
    )


def find_class(method: str) -> type[Finder]:
    """The class behind a method's name, or behind `package.module:Name`, or an entry point.

    Raises:
        InputError: there is none.
    """
    return class_named(method, METHODS, "finders", Finder, "the method", "method")  # type: ignore[type-abstract]


class _Words(FlagParser):
    """A parser whose mistakes are `InputError`s."""

    def error(self, message: str) -> NoReturn:
        """argparse calls it; the command line would print and exit."""
        raise InputError(f"{self.prog}: {message}.")


def words_of(finder: str) -> list[str]:
    """The method and its flags, as a shell takes them apart.

    Raises:
        InputError: a quotation mark isn't closed, or nothing follows the last backslash.
    """
    try:
        return shlex.split(finder)
    except ValueError as error:
        raise InputError(
            f"a finder should be a method and its flags, as a shell takes them apart, but {finder!r} has "
            f"{first_line(error).rstrip('.').lower()}.",
            "image_finder",
        ) from error


def open_finder(words: str | Sequence[str], device: str | None = None) -> Finder:
    """A finder by the flags that `visual-grounding retrieve --method` takes, ready for copies in other processes.

        open_finder("dense --retriever retriever --index index -n 8")
        open_finder("keyword --captions captions.tsv --image-features features/f30k")

    Args:
        words: the method and its flags.
        device: where to compute, unless the flags say it.

    Raises:
        InputError: there is no such method, flags are missing or unknown, or what they name isn't sound.
    """
    words = words_of(words) if isinstance(words, str) else list(words)
    if not words:
        raise InputError(f"a finder should be a method ({', '.join(METHODS)}) and its flags, but is empty.")
    chosen = find_class(words[0])
    parser = _Words(prog=f"finder {words[0]!r}", add_help=False)
    chosen.add_arguments(parser)
    args = parser.parse_args(words[1:])
    if device is not None and getattr(args, "device", device) is None:
        args.device = device
    finder = chosen.from_arguments(args)
    finder.check_count()
    finder.make_shared()
    return finder


def write_image_ids(
    finder: Finder,
    lines: list[str],
    out: Path,
    exclude_keys: list[str] | None = None,
    shard_size: int | None = None,
    text: list[str] | None = None,
    masked: "MaskedQueries | None" = None,
) -> dict[str, int]:
    """Write what a finder finds for each line as a table; continues where it was interrupted.

    Args:
        finder: finds the images.
        lines: one row each.
        out: the table to make.
        exclude_keys: for each line the image that must not be found, e.g. its own; empty for none.
        shard_size: lines between two save points (default: the finder's).
        text: the sentences, where the lines are something else.
        masked: the mask that took words out of the sentences and left the lines; the table keeps it.

    Returns:
        counts: the finder's, and with `exclude_keys` the `unknown_excluded` ones that the collection doesn't have.

    Raises:
        InputError: lines, text, keys and collection don't belong together, or `out` holds something else.
    """
    shard_size = finder.shard_size if shard_size is None else shard_size
    if shard_size is not None and shard_size < 1:
        raise InputError(f"a shard should have at least 1 sentence, but has {shard_size}.", "shard_size")
    finder.check_excludes(exclude_keys is not None)
    if text is not None and len(text) != len(lines):
        empty = [number for number, line in enumerate(lines, 1) if not line]
        hint = f" Line {empty[-1]} of the keys is empty." if len(lines) > len(text) and empty else ""
        raise InputError(
            f"there should be one image key for each of the {len(text)} sentences of the text, but there are "
            f"{len(lines)}.{hint}",
            "keys",
            "text",
        )
    finder.check_table(lines)
    finder.check_lines(lines)
    finder.check_count()
    collection, count = finder.collection, finder.images_per_sentence
    excluded = None if exclude_keys is None else rows_to_exclude(collection, exclude_keys, len(lines))
    plan = _plan(finder, lines, exclude_keys, text) | ({} if masked is None else masked.made_by)
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"ids": ((count,), "int32"), "scores": ((count,), "float16")}
    if masked is not None:
        arrays |= {"pieces": ((), "int32"), "mask": ((masked.mask.shape[1],), "uint8")}
    artefact = ShardedArtefact(out, IMAGE_IDS, plan, len(lines), shard_size or max(1, len(lines)), arrays)
    if artefact.finished:
        return ImageIds(out).counts
    with finder.working_in(artefact.partial / f"scratch-{this_rank().number}"):
        for shard in artefact.missing():
            rows = None if excluded is None else excluded[shard.start : shard.stop]
            found = finder.find(lines[shard.start : shard.stop], rows)
            blocks = {"ids": found.ids, "scores": found.scores}
            if masked is not None:
                rows_of = slice(shard.start, shard.stop)
                blocks |= {"pieces": masked.pieces[rows_of], "mask": masked.mask[rows_of]}
            artefact.write(shard, blocks, found.counts)
        counts = _sum_of_counts(finder, artefact)  # waits for other ranks
        conclusion = Conclusion(counts, {})
        if this_rank().leads:
            ids = open_array(artefact.files / "ids.npy", (len(lines), count), "int32")
            conclusion = finder.conclude(counts, lines, ids, excluded)
    counts = dict(conclusion.counts)
    signed = {**finder.signed, **{name: f"{value:.4f}" for name, value in conclusion.measured.items()}}
    how: dict[str, object] = {}
    if excluded is not None and exclude_keys is not None:
        pairs = zip(exclude_keys, excluded)
        counts["unknown_excluded"] = sum(bool(key) and int(row) == NO_IMAGE for key, row in pairs)
    if finder.excludes:
        how["exclude"] = "no" if exclude_keys is None else "paired"
    if masked is not None:
        how["mask"] = masked.made_by["mask_prob"]
        how["mask_seed"] = masked.made_by["mask_seed"]
    artefact.publish(
        {
            "sentences": len(lines),
            "images_per_sentence": count,
            "keys_sha256": collection.keys_sha256,
            "text_sha256": plan["text_sha256"],
            "text_sketches": _sketches(text or (lines if finder.reads == "text" else [])),
            "counts": counts,
            **({} if masked is None else {**masked.made_by, "mask_bytes": masked.mask.shape[1]}),
            **conclusion.measured,
            "signature": signature(
                "retrieve", method=finder.method, n=count, **signed, keys=collection.keys_sha256[:8], **how
            ),
        }
    )
    return ImageIds(out).counts


def _plan(finder: Finder, lines: list[str], exclude_keys: list[str] | None, text: list[str] | None) -> dict[str, Any]:
    """Whatever decides the bytes of a table."""
    digests = {"text_sha256": None if text is None else sha256_of_lines(text)}
    reads = "queries" if finder.reads == "text" and text is not None else finder.reads  # of masked text
    digests[f"{reads}_sha256"] = sha256_of_lines(lines)
    plan = {**finder.plan, "method": finder.method, "keys_sha256": finder.collection.keys_sha256, **digests}
    if finder.excludes:
        plan["exclude_sha256"] = None if exclude_keys is None else sha256_of_lines(exclude_keys)
    return plan


def _sketches(lines: list[str]) -> list[str]:
    """What tells later whether another text is the one that images were found for."""
    return [sketch(lines[place]) for place in places(len(lines))]


def _sum_of_counts(finder: Finder, artefact: ShardedArtefact) -> dict[str, int]:
    """Of all shards; where a shard was written before a count was thought of, it counts 0."""
    notes = artefact.notes(empty=int, **dict.fromkeys(finder.counts, int | None))
    return {name: sum(note.get(name) or 0 for note in notes) for name in ("empty", *finder.counts)}
