"""Object-based association (GS §2.4.2): images of the things that a text is about."""

import argparse
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import InputError, check_at_least_one
from ..features.store import FeatureStore
from ..shares import warn_of
from ..storage.artefact import sha256_of_file
from ..storage.lines import check_read_again, sha256_of_lines
from ..text.nouns import NO_TAGGER, KnownNouns, Nouns, TaggedNouns, installed_tagger, singulars
from ..text.stop_words import ENGLISH, stop_words_named
from ..text.word_vectors import WordVectors, unit
from .finder import IMAGES_PER_SENTENCE, Conclusion, Finder, Flags, Found
from .image_ids import NO_IMAGE
from .noun_collection import NounCollection
from .scene import add_words_and_images

CLUSTERS = 8  # κ of the paper, GS §3.3
IMAGES_PER_NOUN = 10  # GS §3.2


class ObjectFinder(Finder):
    """N / κ images of each of the κ nouns that stand for what a text is about.

    The text's common nouns are clustered by a mixture of κ Gaussians over their vectors; the noun nearest to each
    centroid stands for its cluster. Each of these takes the images of the noun of the collection whose key has the
    highest cosine with it; scores are these cosines. The best nouns come first, and each gives one image in turn.

    # Assumption: where a text has at most κ nouns, each is a cluster; N is shared among what there is, and what doesn't
    # divide goes to the first. A noun that is nearest to two centroids counts once.
    # Assumption: the Gaussians are spherical, as there are few nouns and many dimensions.
    # Assumption: a noun's images are taken in an order that is drawn once, so that a text's images depend on it alone.

    Args:
        collection: the nouns.
        store: the images.
        vectors: of words.
        nouns: what finds the nouns of a text.
        images_per_sentence: N.
        clusters: κ.
        seed: of the mixture.
        plan: JSON-ready; what the nouns were made of.

    Raises:
        InputError: N is less than 1, or κ isn't from 1 to N.
    """

    method = "object"
    counts = ("no_noun", "short")
    collection: FeatureStore

    def __init__(
        self,
        collection: NounCollection,
        store: FeatureStore,
        vectors: WordVectors,
        nouns: Nouns,
        images_per_sentence: int = IMAGES_PER_SENTENCE,
        clusters: int = CLUSTERS,
        seed: int = 1,
        plan: Mapping[str, object] | None = None,
    ) -> None:
        check_at_least_one(images_per_sentence=images_per_sentence, clusters=clusters)
        if clusters > images_per_sentence:
            raise InputError(
                f"there should be at most as many clusters as images ({images_per_sentence}), but there are "
                f"{clusters}.",
                "clusters",
            )
        self.objects = collection
        self.collection = store
        self.vectors = vectors
        self.nouns = nouns
        self.images_per_sentence = images_per_sentence
        self.clusters = clusters
        self.seed = seed
        given = {"vectors_sha256": vectors.sha256, "nouns": nouns.name, "clusters": clusters, "seed": seed}
        self.plan = {**given, **(plan or {}), "n": images_per_sentence}
        self.signed = {"nouns": nouns.name, "vectors": vectors.sha256[:8], "clusters": clusters}
        self.signed |= {name: str(value)[:8] for name, value in (plan or {}).items()} | {"seed": seed}
        self._nearest: dict[str, tuple[int, float] | None] = {}

    @classmethod
    def add_arguments(cls, parser: Flags) -> None:
        """Flags of objects."""
        parser.add_argument(
            "--nouns",
            type=Path,
            required=True,
            metavar="TSV",
            help="noun collection: noun<TAB>definition or empty<TAB>key, one line an image",
        )
        add_words_and_images(parser)
        parser.add_argument(
            "--clusters", type=int, metavar="K", help=f"nouns of a text (default: {CLUSTERS}, or N where that is fewer)"
        )
        parser.add_argument(
            "--images-per-noun",
            type=int,
            default=IMAGES_PER_NOUN,
            metavar="N",
            help="leave out nouns with fewer images (default: %(default)s)",
        )
        parser.add_argument(
            "--tagger",
            metavar="PIPELINE",
            help="what finds nouns: a pipeline of spaCy, or none: words that are nouns of the collection (default: one "
            "that is installed, else none)",
        )
        parser.add_argument(
            "--seed", type=int, default=1, help="of the clusters, and of each noun's images (default: 1)"
        )

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Open the store, read nouns, vectors and stop words.

        Raises:
            InputError: a file isn't there or isn't sound.
        """
        check_at_least_one(images_per_noun=args.images_per_noun)
        if not 0 <= args.seed < 2**32:  # as scikit-learn takes them
            raise InputError(f"a seed should be in 0..{2**32 - 1}, but is {args.seed}.", "seed")
        check_read_again(args.nouns)
        stop_words = ENGLISH if args.stop_words is None else stop_words_named(args.stop_words)
        store, vectors = FeatureStore(args.image_features), WordVectors(args.word_vectors)
        found = NounCollection(args.nouns, store, vectors, stop_words, args.images_per_noun, args.seed)
        tagger = installed_tagger() if args.tagger is None else args.tagger
        nouns: Nouns
        if tagger in (None, NO_TAGGER):
            nouns = KnownNouns((lemma for lemmas in found.lemmas for lemma in lemmas), stop_words)
        else:
            nouns = TaggedNouns(str(tagger), stop_words)
        plan = {
            "nouns_sha256": sha256_of_file(args.nouns),
            "stop_words_sha256": sha256_of_lines(sorted(stop_words)),
            "images_per_noun": args.images_per_noun,
        }
        if store.has_absent:  # says which are found
            plan["features_sha256"] = store.digest
        clusters = min(CLUSTERS, args.images_per_sentence) if args.clusters is None else args.clusters
        return cls(found, store, vectors, nouns, args.images_per_sentence, clusters, args.seed, plan)

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """Images of each text's nouns; a text without a noun that has a vector gets none.

        Shapes:
            empty: (L,) bool;  excluded: (L,)
        """
        ids = np.full((len(lines), self.images_per_sentence), NO_IMAGE, dtype=np.int32)
        scores = np.zeros(ids.shape, dtype=np.float32)
        counts = {"no_noun": 0, "short": 0}
        asked = np.flatnonzero(~empty)
        for number, nouns in zip(asked, self.nouns.of([lines[number] for number in asked])):
            apart = NO_IMAGE if excluded is None else int(excluded[number])
            chosen = list(islice(self._images(self.key_nouns(nouns), apart), self.images_per_sentence))
            if not chosen:
                counts["no_noun"] += 1
                continue
            ids[number, : len(chosen)], scores[number, : len(chosen)] = zip(*chosen)
            counts["short"] += len(chosen) < self.images_per_sentence
        return Found(ids, scores, counts)

    def key_nouns(self, nouns: list[str]) -> list[str]:
        """Those that stand for what a text is about, at most κ, in the order of the text."""
        vectors = {noun: vector for noun in nouns if (vector := self._vector_of(noun)) is not None}
        if len(vectors) <= self.clusters:
            return list(vectors)
        matrix = np.stack(list(vectors.values())).astype(np.float64)
        nearest = np.linalg.norm(matrix[None] - centroids(matrix, self.clusters, self.seed)[:, None], axis=2).argmin(
            axis=1
        )
        names = list(vectors)
        return [names[number] for number in sorted(set(nearest.tolist()))]

    def _images(self, nouns: list[str], excluded: int) -> Iterator[tuple[int, float]]:
        """Images and scores: one of each noun in turn, the best noun first, none twice, up to N / κ of a noun."""
        found = [place for noun in nouns if (place := self._noun_of(noun)) is not None]
        found.sort(key=lambda place: -place[1])  # stable: equal ones as in the text
        share, rest = divmod(self.images_per_sentence, len(found)) if found else (0, 0)
        seen = {excluded}
        taken: dict[int, Iterator[np.int32]] = {}
        for turn in range(share + bool(rest)):
            for number, (noun, score) in enumerate(found):
                if turn == share and number >= rest:
                    break
                rows = taken.setdefault(noun, iter(self.objects.rows[noun]))
                row = next((int(row) for row in rows if int(row) not in seen), None)
                if row is not None:
                    seen.add(row)
                    yield row, score

    def _vector_of(self, noun: str) -> np.ndarray | None:
        """A noun's vector, or where it has none that of what it is the plural of.

        Shapes:
            returns: (D,)
        """
        vectors = (self.vectors.of(form) for form in singulars(noun))
        return next((vector for vector in vectors if vector is not None), None)

    def _noun_of(self, word: str) -> tuple[int, float] | None:
        """The collection's noun whose key is nearest to a word, and their cosine."""
        if word not in self._nearest:
            import torch

            from .search import exact_search

            vector = self._vector_of(word)
            found = None
            if vector is not None:
                query = torch.from_numpy(unit(vector)).unsqueeze(0)
                score, noun = exact_search(query, self.objects.keys, 1)
                found = int(noun), float(score)
            self._nearest[word] = found
        return self._nearest[word]

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Add what the collection has, and what of it isn't used.

        Shapes:
            ids: (S, N);  excluded: (S,)
        """
        objects = self.objects
        nouns = {
            "nouns": len(objects.lemmas),
            "nouns_with_few_images": objects.few,
            "nouns_without_vector": objects.wordless,
            "noun_lines": objects.lines,
            "unknown_noun_lines": objects.unknown,
            **({"absent_noun_lines": objects.absent} if objects.absent else {}),
        }
        return Conclusion({**counts, **nouns}, {})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """What nouns are, sentences with no image or fewer than N, and what isn't used of the collection."""
        if isinstance(self.nouns, KnownNouns):
            yield (
                "no part-of-speech tagger is used: nouns are the words that are nouns of the collection, and their "
                "plurals in -s."
            )
        yield from super().warnings(counts, lines)
        yield from warn_of(counts["no_noun"], lines, "have no noun with a vector and images; they have no image.")
        said = (
            f"have fewer than {self.images_per_sentence} images: a noun that stands for them has too few for its share."
        )
        yield from warn_of(counts["short"], lines, said)
        nouns = counts["nouns"] + counts["nouns_with_few_images"] + counts["nouns_without_vector"]
        yield from warn_of(counts["nouns_with_few_images"], nouns, "have too few images; they aren't used.", "nouns")
        said = f"have no vector in {self.vectors.path}; they aren't used."
        yield from warn_of(counts["nouns_without_vector"], nouns, said, "nouns")
        said = f"name images that {self.collection.folder} doesn't have; they aren't used."
        yield from warn_of(counts["unknown_noun_lines"], counts["noun_lines"], said, "lines of the noun collection")
        said = "name images without features; they aren't used."
        yield from warn_of(counts.get("absent_noun_lines", 0), counts["noun_lines"], said, "lines of the collection")


def centroids(vectors: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The means of a mixture of spherical Gaussians.

    Shapes:
        vectors: (W, D), more than κ
        returns: (κ, D)
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(clusters, covariance_type="spherical", init_params="k-means++", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the clusters of a few words may be singular
        return np.asarray(mixture.fit(vectors).means_)
