"""Keyword retrieval: images whose captions share most topic words with the sentence.

Zhang et al. (2020), *Neural Machine Translation with Universal Visual Representation*, §3; also a baseline in GS §4.
What a topic word is, and the lookup table: `topic_table.py`.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import check_at_least_one
from ..features.store import FeatureStore
from ..shares import warn_of
from ..storage.lines import sha256_of_lines
from ..text.captions import digest_of_captions
from ..text.stop_words import ENGLISH, stop_words_named
from .finder import IMAGES_PER_SENTENCE, Conclusion, Flags, Found, add_images_per_sentence
from .image_ids import NO_IMAGE
from .looking_up import LookingUp
from .topic_table import TOPIC_WORDS, TopicTable, content_words, topic_words


class KeywordFinder(LookingUp[TopicTable]):
    """The N images whose captions share most topic words with the sentence; scores say how many.

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
        super().__init__()
        check_at_least_one(images_per_sentence=images_per_sentence)
        captions_sha256 = digest_of_captions(captions)
        self.captions = Path(captions)
        self.collection = store
        self.images_per_sentence = images_per_sentence
        self.stop_words = stop_words
        self.plan = {
            "captions_sha256": captions_sha256,
            "stop_words_sha256": sha256_of_lines(sorted(stop_words)),
            "topic_words": TOPIC_WORDS,
            "n": images_per_sentence,
            **({"features_made_from": store.digest} if store.has_absent else {}),  # says which are found
        }
        self.signed = {"captions": captions_sha256[:8], "topic_words": TOPIC_WORDS, "stop_words": len(stop_words)}

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

    def build(self, folder: Path) -> TopicTable:
        """The lookup table, with its files in a folder.

        Raises:
            InputError: as `TopicTable`.
        """
        return TopicTable(self.captions, self.collection, self.stop_words, folder)

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
        table = self.table
        captions = {"captions": table.captions, "unknown_captions": table.unknown}
        if table.absent:
            captions["absent_captions"] = table.absent
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
        said = "are of images without features; they aren't used."
        yield from warn_of(counts.get("absent_captions", 0), counts["captions"], said, "captions")
