"""Scene-based association (GS §2.4.1): the images whose captions say most nearly what the text says."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import check_at_least_one
from ..features.store import FeatureStore
from ..shares import warn_of
from ..storage.lines import check_read_again, sha256_of_lines
from ..text.captions import digest_of_captions
from ..text.stop_words import ENGLISH, stop_words_named
from ..text.word_vectors import WordVectors, unit
from .caption_vectors import CaptionVectors
from .finder import IMAGES_PER_SENTENCE, Conclusion, Flags, Found, add_images_per_sentence
from .image_ids import NO_IMAGE
from .looking_up import LookingUp


class SceneFinder(LookingUp[CaptionVectors]):
    """The N images whose captions have the highest cosine with the text, both as bags of word vectors.

        R(t, i) = max over the captions c of i of cos(b(t), b(c))

    b -> `WordVectors.of_text`. An image counts once, by its best caption; equal ones come in the order of captions.

    Args:
        captions: file of `key<TAB>caption` lines.
        store: the images.
        vectors: of words.
        images_per_sentence: N.
        stop_words: words that say nothing. Deviation: the paper takes NLTK's, which has to be downloaded.

    Raises:
        InputError: N is less than 1, or the captions can't be read.
    """

    method = "scene"
    counts = ("no_vector", "short")
    collection: FeatureStore

    def __init__(
        self,
        captions: Path,
        store: FeatureStore,
        vectors: WordVectors,
        images_per_sentence: int = IMAGES_PER_SENTENCE,
        stop_words: frozenset[str] = ENGLISH,
    ) -> None:
        super().__init__()
        check_at_least_one(images_per_sentence=images_per_sentence)
        captions_sha256 = digest_of_captions(captions)
        self.captions = Path(captions)
        self.collection = store
        self.vectors = vectors
        self.images_per_sentence = images_per_sentence
        self.stop_words = stop_words
        self.plan = {
            "captions_sha256": captions_sha256,
            "vectors_sha256": vectors.sha256,
            "stop_words_sha256": sha256_of_lines(sorted(stop_words)),
            "n": images_per_sentence,
            **({"features_made_from": store.digest} if store.has_absent else {}),  # says which are found
        }
        self.signed = {
            "captions": captions_sha256[:8],
            "vectors": vectors.sha256[:8],
            "stop_words": len(stop_words),
        }

    @classmethod
    def add_arguments(cls, parser: Flags) -> None:
        """Flags of scenes."""
        parser.add_argument(
            "--captions", type=Path, required=True, metavar="TSV", help="key<TAB>caption lines of the collection"
        )
        add_words_and_images(parser)

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Open the store, read vectors and stop words.

        Raises:
            InputError: a file isn't there or isn't sound.
        """
        check_read_again(args.captions)
        stop_words = ENGLISH if args.stop_words is None else stop_words_named(args.stop_words)
        store = FeatureStore(args.image_features)
        return cls(args.captions, store, WordVectors(args.word_vectors), args.images_per_sentence, stop_words)

    def build(self, folder: Path) -> CaptionVectors:
        """The captions' vectors, in a folder.

        Raises:
            InputError: as `CaptionVectors`.
        """
        return CaptionVectors(self.captions, self.collection, self.vectors, self.stop_words, folder)

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """The images with the nearest captions; a line without a word that has a vector gets none.

        Shapes:
            empty: (L,) bool;  excluded: (L,)
        """
        ids = np.full((len(lines), self.images_per_sentence), NO_IMAGE, dtype=np.int32)
        scores = np.zeros(ids.shape, dtype=np.float32)
        bags = {number: self.vectors.of_text(lines[number], self.stop_words) for number in np.flatnonzero(~empty)}
        known = [number for number, bag in bags.items() if bag is not None]
        counts = {"no_vector": len(bags) - len(known), "short": 0}
        if known:
            queries = np.stack([unit(bag) for bag in bags.values() if bag is not None])
            apart = None if excluded is None else excluded[known]
            ids[known], scores[known] = self.table.search(queries, self.images_per_sentence, apart)
            counts["short"] = int((ids[known] == NO_IMAGE).any(axis=1).sum())
        return Found(ids, scores, counts)

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Add how many captions there are, and how many aren't used.

        Shapes:
            ids: (S, N);  excluded: (S,)
        """
        table = self.table
        captions = {
            "captions": table.captions,
            "unknown_captions": table.unknown,
            **({"absent_captions": table.absent} if table.absent else {}),
            "captions_without_vector": table.wordless,
        }
        return Conclusion({**counts, **captions}, {})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """Sentences with no image or fewer than N, and captions that are of no use."""
        yield from super().warnings(counts, lines)
        said = f"have no word that {self.vectors.path} has a vector of; they have no image."
        yield from warn_of(counts["no_vector"], lines, said)
        yield from warn_of(
            counts["short"], lines, f"have fewer than {self.images_per_sentence} images: no more are described."
        )
        said = f"are of images that {self.collection.folder} doesn't have; they aren't used."
        yield from warn_of(counts["unknown_captions"], counts["captions"], said, "captions")
        said = "are of images without features; they aren't used."
        yield from warn_of(counts.get("absent_captions", 0), counts["captions"], said, "captions")
        said = f"have no word that {self.vectors.path} has a vector of; they aren't used."
        yield from warn_of(counts["captions_without_vector"], counts["captions"], said, "captions")


def add_words_and_images(parser: Flags) -> None:
    """Flags that association by word vectors needs, whatever images are known by."""
    parser.add_argument("--image-features", type=Path, required=True, metavar="DIR", help="feature store")
    parser.add_argument(
        "--word-vectors",
        type=Path,
        required=True,
        metavar="FILE",
        help="word vectors of fastText (.bin, .vec) or in word2vec's format",
    )
    add_images_per_sentence(parser)
    parser.add_argument(
        "--stop-words",
        metavar="LANG|FILE",
        help="words that say nothing, in texts, captions and definitions: those of a language in stopwords-iso, such "
        "as de, or a file, one a line (default: a shorter English list)",
    )
