"""Dense retrieval: the images nearest to each sentence in a retriever's space (VA §2.2; the paper takes 8)."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import InputError, check_at_least_one
from ..shares import MANY_UNKNOWN, warn_of
from .finder import IMAGES_PER_SENTENCE, Conclusion, Finder, Flags, Found, add_images_per_sentence
from .image_ids import NO_IMAGE

if TYPE_CHECKING:  # they import torch, which the help of a command line does without
    from torch import Tensor

    from .index import Index
    from .retriever import Retriever

_OF_WORDS = ("no_known_word", "unknown_words", "words")  # counts that a table has where words are unknown


class DenseFinder(Finder):
    """The N images whose embeddings have the highest cosines with that of a sentence.

    A sentence none of whose words the retriever knows gets images, too, but they say nothing about it: it is counted,
    and warned of.

    Args:
        retriever: the one that made the index.
        index: the images.
        images_per_sentence: N; a row is filled up with −1 where the collection has fewer images.
        batch_size: sentences encoded at a time.
        nprobe: lists of an approximate index that are searched for each sentence (default: `FaissSettings.nprobe`).

    Raises:
        InputError: retriever and index don't belong together, or a number is out of its range.
    """

    method = "dense"
    counts = ("truncated", "short", *_OF_WORDS)
    collection: "Index"

    def __init__(
        self,
        retriever: "Retriever",
        index: "Index",
        images_per_sentence: int = IMAGES_PER_SENTENCE,
        batch_size: int = 256,
        nprobe: int | None = None,
    ) -> None:
        index.check_retriever(retriever)
        check_at_least_one(images_per_sentence=images_per_sentence, batch_size=batch_size)
        self.retriever = retriever
        self.collection = index
        self.images_per_sentence = images_per_sentence
        self.batch_size = batch_size
        self.nprobe = index.nprobe(nprobe) or None
        lists = {} if self.nprobe is None else {"probes": self.nprobe}
        self.plan = {
            "retriever_sha256": retriever.sha256,
            "index": index.signature,
            "batch_size": batch_size,
            "device": str(retriever.device).partition(":")[0],
            "n": images_per_sentence,
            **lists,
        }
        self.signed = {"retriever": retriever.sha256[:8], **({"kind": index.kind, **lists} if lists else {})}

    @classmethod
    def add_arguments(cls, parser: Flags) -> None:
        """Flags of dense retrieval."""
        parser.add_argument("--retriever", type=Path, required=True, metavar="DIR", help="made by `export`")
        parser.add_argument(
            "--index", type=Path, required=True, metavar="DIR", help="made by `index` with the same retriever"
        )
        add_images_per_sentence(parser)
        parser.add_argument(
            "--nprobe",
            "--probes",
            type=int,
            metavar="N",
            help="of an ivf or pq index: lists to search (default: a 32nd, at least 8)",
        )
        parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
        parser.add_argument("--batch-size", type=int, default=256, help="sentences at a time (default: %(default)s)")

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Load the retriever, and open its index.

        Raises:
            InputError: one of them isn't there or isn't whole, or they don't belong together.
        """
        from ..devices import choose_device
        from .index import Index
        from .retriever import Retriever

        retriever = Retriever.load(args.retriever, str(choose_device(args.device)))
        return cls(retriever, Index(args.index), args.images_per_sentence, args.batch_size, args.nprobe)

    @property
    def device(self) -> str:
        """The retriever's."""
        return str(self.retriever.device)

    def __getstate__(self) -> dict[str, Any]:
        retriever = {"folder": self.retriever.folder, "device": self.retriever.device}
        return {**self.__dict__, "retriever": retriever}  # its files are read again: nothing is shared

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .retriever import Retriever

        self.__dict__ = {**state, "retriever": Retriever.load(**state["retriever"])}
        self.collection.check_retriever(self.retriever)  # its folder may hold another one by now

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """The nearest images. Sentences of which the retriever reads nothing, such as unprintable characters, get none.

        Shapes:
            empty: (L,) bool, changed in place;  excluded: (L,)

        Raises:
            InputError: the retriever makes NaN of a sentence, or as `Index.search`.
        """
        import torch

        tokens, truncated = self.retriever.tokenize(lines)
        queries = self.retriever.encode_tokens(tokens, self.batch_size)  # (L, D)
        self._check_finite(queries, lines)
        exclude = None if excluded is None else torch.from_numpy(excluded)
        scores, ids = (
            found.numpy()
            for found in self.collection.search(
                queries, self.images_per_sentence, self.retriever.device, exclude, self.nprobe
            )
        )  # (L, N) each
        empty |= ~queries.any(dim=1).numpy()
        words, known = self.retriever.tokenizer.count_known(tokens)
        counts = {
            "truncated": truncated,
            "short": int((ids[~empty] == NO_IMAGE).any(axis=1).sum()),
            "no_known_word": int(((words > 0) & (known == 0) & ~empty).sum()),
            "unknown_words": int((words - known).sum()),
            "words": int(words.sum()),
        }
        return Found(ids, scores, counts)

    def _check_finite(self, queries: "Tensor", lines: list[str]) -> None:
        """Shapes: queries: (L, D)."""
        broken = (~queries.isfinite().all(dim=1)).nonzero().squeeze(1).tolist()
        if broken:
            raise InputError(
                f"retriever {self.retriever.folder} should turn every sentence into numbers, but makes NaN or infinity "
                f"of {lines[broken[0]]!r:.80} and {len(broken) - 1} more of {len(lines)}. Its weights are too large or "
                "broken: train and export it again."
            )

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Say nothing of unknown words where there are none; measure how much an approximate search missed.

        Shapes:
            ids: (S, N);  excluded: (S,)

        Raises:
            InputError: as `Index.search`.
        """
        if not counts["unknown_words"]:
            counts = {name: n for name, n in counts.items() if name not in _OF_WORDS}
        if not self.collection.approximate:
            return Conclusion(counts, {})
        import torch

        from .approximation import SAMPLED, recall_of_ids, sample_of

        chosen = sample_of(len(lines))
        sampled = [lines[number] for number in chosen]
        tokens, _ = self.retriever.tokenize(sampled)
        nothing = self.are_empty(sampled)
        queries = self.retriever.encode_tokens(tokens, SAMPLED)  # (Q, D)
        queries = queries.masked_fill(torch.from_numpy(nothing).unsqueeze(1), 0.0)
        apart = None if excluded is None else excluded[chosen]
        recall = recall_of_ids(self.collection, queries, ids[chosen], apart, self.retriever.device)
        return Conclusion(counts, {"recall": recall})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """Sentences that are empty, unknown, cut, or find fewer than N; and how much of the text is unknown."""
        said = "are empty, or hold nothing that the retriever reads; they have no image."
        yield from warn_of(counts["empty"], lines, said)
        unknown, words = counts.get("unknown_words", 0), counts.get("words", 0)
        if unknown >= MANY_UNKNOWN * words:
            said = "aren't known to the retriever. Was it trained on captions of another language, or other topics?"
            yield from warn_of(unknown, words, said, "words")
        said = "have no word that the retriever knows; their images say nothing about them."
        yield from warn_of(counts.get("no_known_word", 0), lines, said)
        said = f"were cut at {self.retriever.max_tokens} tokens to find their images."
        yield from warn_of(counts["truncated"], lines, said)
        more = "the collection has no more."
        if self.collection.searches_some(self.nprobe):
            more = "a higher nprobe would find more."
        yield from warn_of(counts["short"], lines, f"have fewer than {self.images_per_sentence} images: {more}")
