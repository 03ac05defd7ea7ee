"""Keyword retrieval: images whose captions share most topic words with the sentence.

Zhang et al. (2020), *Neural Machine Translation with Universal Visual Representation*, §3; also a baseline in GS §4.
What a topic word is, and the lookup table: `topic_table.py`.
"""

import argparse
import multiprocessing
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import InputError, check_at_least_one
from ..features.store import FeatureStore
from ..shares import warn_of
from ..storage.artefact import sha256_of_file
from ..storage.lines import sha256_of_lines
from ..text.stop_words import ENGLISH, stop_words_named
from .finder import IMAGES_PER_SENTENCE, Conclusion, Finder, Flags, Found, add_images_per_sentence
from .image_ids import NO_IMAGE
from .topic_table import TOPIC_WORDS, TopicTable, content_words, topic_words


class KeywordFinder(Finder):
    """The N images whose captions share most topic words with the sentence; scores say how many.

    Its lookup table lies on disk: where a table of image ids is written, in a folder beside it, else in a temporary one
    that goes away with the finder. Copies in other processes read the same files.

    Args:
        captions: file of `key<TAB>caption` lines.
        store: the images.
        images_per_sentence: N; a row is filled up with −1 where fewer images share a topic word.
        stop_words: words that are no topic.

    Raises:
        InputError: N is less than 1, or the captions can't be read.
    """

    method = "keyword"
    counts = ("no_topic", "short")
    collection: FeatureStore

    def __init__(
        self,
        captions: Path,
        store: FeatureStore,
        images_per_sentence: int = IMAGES_PER_SENTENCE,
        stop_words: frozenset[str] = ENGLISH,
    ) -> None:
        check_at_least_one(images_per_sentence=images_per_sentence)
        try:
            captions_sha256 = sha256_of_file(captions)
        except OSError as error:
            raise InputError(f"{captions} can't be read: {error.strerror or error}.") from error
        self.captions = Path(captions)
        self.collection = store
        self.images_per_sentence = images_per_sentence
        self.stop_words = stop_words
        self.plan = {
            "captions_sha256": captions_sha256,
            "stop_words_sha256": sha256_of_lines(sorted(stop_words)),
            "topic_words": TOPIC_WORDS,
            "n": images_per_sentence,
        }
        self.signed = {"captions": captions_sha256[:8], "topic_words": TOPIC_WORDS, "stop_words": len(stop_words)}
        self._table: TopicTable | None = None

    @classmethod
    def add_arguments(cls, parser: Flags) -> None:
        """Flags of keyword retrieval."""
        parser.add_argument(
            "--captions", type=Path, required=True, metavar="TSV", help="key<TAB>caption lines of the collection"
        )
        parser.add_argument("--image-features", type=Path, required=True, metavar="DIR", help="feature store")
        add_images_per_sentence(parser)
        parser.add_argument(
            "--stop-words",
            metavar="LANG|FILE",
            help="words that are no topic: those of a language in stopwords-iso, such as de (en: the paper's list), or "
            "a file, one a line (default: a shorter English list)",
        )

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Open the store, and read the stop words.

        Raises:
            InputError: a file isn't there or isn't sound.
        """
        stop_words = ENGLISH if args.stop_words is None else stop_words_named(args.stop_words)
        return cls(args.captions, FeatureStore(args.image_features), args.images_per_sentence, stop_words)

    @property
    def table(self) -> TopicTable:
        """The lookup table; made in a temporary folder where it isn't there yet.

        Raises:
            InputError: as `TopicTable`, or the folder can't be written.
        """
        if self._table is None:
            try:
                folder = Path(tempfile.mkdtemp(prefix="visual-grounding-topics-"))
                weakref.finalize(self, _remove, folder, os.getpid())
                self._table = self._build(folder)
                if multiprocessing.parent_process() is not None:  # such a process ends without cleaning up
                    _remove(folder, os.getpid())  # what is open stays readable
            except OSError as error:
                raise InputError(
                    f"{tempfile.gettempdir()} can't be written: {error.strerror or error}. TMPDIR may name another "
                    "folder for the lookup table of keywords."
                ) from error
        return self._table

    def make_shared(self) -> None:
        """Make the lookup table.

        Raises:
            InputError: as `table`.
        """
        _ = self.table

    def _build(self, folder: Path) -> TopicTable:
        return TopicTable(self.captions, self.collection, self.stop_words, folder)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": self.table}  # made once, for all processes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        if not state["_table"].is_there:
            self._table = None

    @contextmanager
    def working_in(self, folder: Path) -> Iterator[None]:
        """Keep the lookup table in a folder, and remove it in the end.

        Raises:
            InputError: as `TopicTable`, or something can't be written.
        """
        try:
            shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
            folder.mkdir()
            self._table = self._build(folder)
            yield
        except OSError as error:
            raise InputError(
                f"{folder.parent} can't be written: {error.strerror or error}. What is done stays; rerun."
            ) from error
        finally:
            self._table = None
            shutil.rmtree(folder, ignore_errors=True)

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """The images that most of each sentence's topic words point to.

        Shapes:
            empty: (L,) bool;  excluded: (L,)
        """
        ids = np.full((len(lines), self.images_per_sentence), NO_IMAGE, dtype=np.int32)
        scores = np.zeros(ids.shape, dtype=np.float32)
        counts = {"no_topic": 0, "short": 0}
        for number in np.flatnonzero(~empty):
            topics = topic_words(content_words(lines[number], self.stop_words), self.table.rarity)
            if not topics:
                counts["no_topic"] += 1
                continue
            rows, shared = self.table.search(
                topics, self.images_per_sentence, NO_IMAGE if excluded is None else int(excluded[number])
            )
            ids[number, : len(rows)], scores[number, : len(rows)] = rows, shared
            counts["short"] += len(rows) < self.images_per_sentence
        return Found(ids, scores, counts)

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Add how many captions there are, and how many of images that the store doesn't have.

        Shapes:
            ids: (S, N);  excluded: (S,)
        """
        captions = {"captions": self.table.captions, "unknown_captions": self.table.unknown}
        return Conclusion({**counts, **captions}, {})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """Sentences with no image or fewer than N, and captions that are of no use."""
        yield from super().warnings(counts, lines)
        said = "have no word that a caption has as its topic; they have no image."
        yield from warn_of(counts["no_topic"], lines, said)
        said = f"have fewer than {self.images_per_sentence} images: no more captions share a topic word."
        yield from warn_of(counts["short"], lines, said)
        said = f"are of images that {self.collection.folder} doesn't have; they aren't used."
        yield from warn_of(counts["unknown_captions"], counts["captions"], said, "captions")


def _remove(folder: Path, process: int) -> None:
    """Unless this is a copy by fork: the folder belongs to the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
