"""Dense retrieval: the images nearest to each sentence in a retriever's space (VA §2.2; the paper takes 8)."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import check_at_least_one
from .finder import IMAGES_PER_SENTENCE, Conclusion, Finder, Flags, Found, add_images_per_sentence, share
from .image_ids import NO_IMAGE

if TYPE_CHECKING:  # they import torch, which the help of a command line does without
    from .index import Index
    from .retriever import Retriever


class DenseFinder(Finder):
    """The N images whose embeddings have the highest cosines with that of a sentence.

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
    counts = ("truncated", "short")
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
        probes = {} if self.nprobe is None else {"probes": self.nprobe}
        self.plan = {
            "retriever_sha256": retriever.sha256,
            "index": index.signature,
            "batch_size": batch_size,
            "device": str(retriever.device).partition(":")[0],
            "n": images_per_sentence,
            **probes,
        }
        self.seen = {"retriever": retriever.sha256[:8], **({"kind": index.kind, **probes} if probes else {})}

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

    def __getstate__(self) -> dict[str, Any]:
        retriever = {"folder": self.retriever.folder, "device": self.retriever.device}
        return {**self.__dict__, "retriever": retriever}  # its files are read again: nothing is shared

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .retriever import Retriever

        self.__dict__ = {**state, "retriever": Retriever.load(**state["retriever"])}

    def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
        """The nearest images; sentences that are nothing but unprintable characters count as empty.

        Shapes:
            empty: (L,) bool, changed in place;  excluded: (L,)
        """
        import torch

        tokens, truncated = self.retriever.tokenize(lines)
        queries = self.retriever.encode_tokens(tokens, self.batch_size)  # (L, D)
        exclude = None if excluded is None else torch.from_numpy(excluded)
        scores, ids = self.collection.search(
            queries, self.images_per_sentence, self.retriever.device, exclude, self.nprobe
        )  # (L, N) each
        empty |= ~queries.any(dim=1).numpy()
        short = int((ids.numpy()[~empty] == NO_IMAGE).any(axis=1).sum())
        return Found(ids.numpy(), scores.numpy(), {"truncated": truncated, "short": short})

    def conclude(
        self, counts: dict[str, int], lines: list[str], ids: np.ndarray, excluded: np.ndarray | None
    ) -> Conclusion:
        """Measure how much an approximate search missed.

        Shapes:
            ids: (S, N);  excluded: (S,)
        """
        if not self.collection.approximate:
            return Conclusion(counts, {})
        from .approximation import recall_of_table

        return Conclusion(counts, {"recall": recall_of_table(self.retriever, self.collection, lines, ids, excluded)})

    def warnings(self, counts: Mapping[str, int], lines: int) -> Iterator[str]:
        """Empty, cut, and short ones."""
        yield from super().warnings(counts, lines)
        yield from share(
            counts["truncated"], lines, f"were cut at {self.retriever.max_tokens} tokens to find their images."
        )
        more = (
            "a higher nprobe would find more."
            if self.collection.searches_some(self.nprobe)
            else "the collection has no more."
        )
        yield from share(counts["short"], lines, f"have fewer than {self.images_per_sentence} images: {more}")
