"""A table of image ids under construction: what every way of searching for a text's images does alike."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..features.store import FeatureStore
from ..storage.shards import Shard, ShardedArtefact
from ..storage.signature import signature
from ..text.lines import sha256_of_lines
from .exclusion import rows_to_exclude
from .image_ids import IMAGE_IDS, NO_IMAGE, ImageIds
from .index import Index


class ImageIdsWriter:
    """Shards of sentences with the row that each must not get, and the finished table; it continues where it stopped.

    Args:
        out: the table to make.
        method: by which images are found.
        plan: what else decides the result.
        collection: the images, whose keys the rows refer to.
        sentences: one row each.
        images_per_sentence: N.
        exclude_keys: for each sentence the image that must not be found, empty for none; None for no such list.
        shard_size: sentences between two save points.

    Raises:
        InputError: sentences and keys don't belong together, or `out` holds something else.
    """

    def __init__(
        self,
        out: Path,
        method: str,
        plan: dict[str, Any],
        collection: FeatureStore | Index,
        sentences: list[str],
        images_per_sentence: int,
        exclude_keys: list[str] | None,
        shard_size: int,
    ) -> None:
        self.method = method
        self.collection = collection
        self.sentences = sentences
        self.images_per_sentence = images_per_sentence
        self.exclude_keys = exclude_keys
        self.excluded = None if exclude_keys is None else rows_to_exclude(collection, exclude_keys, len(sentences))
        self.text_sha256 = sha256_of_lines(sentences)
        whole = {
            **plan,
            "method": method,
            "keys_sha256": collection.keys_sha256,
            "text_sha256": self.text_sha256,
            "exclude_sha256": None if exclude_keys is None else sha256_of_lines(exclude_keys),
            "n": images_per_sentence,
        }
        row = (images_per_sentence,)
        arrays: dict[str, tuple[tuple[int, ...], str]] = {"ids": (row, "int32"), "scores": (row, "float16")}
        self.artefact = ShardedArtefact(out, IMAGE_IDS, whole, len(sentences), shard_size, arrays)

    def finished_counts(self) -> dict[str, int] | None:
        """What the table says of its sentences, where it was there already."""
        return ImageIds(self.artefact.out).counts if self.artefact.finished else None

    def missing(self) -> Iterator[tuple[Shard, list[str], np.ndarray | None]]:
        """Shards to be written: their sentences, and the rows (S,) that these must not get."""
        for shard in self.artefact.missing():
            rows = None if self.excluded is None else self.excluded[shard.start : shard.stop]
            yield shard, self.sentences[shard.start : shard.stop], rows

    def counts(self, names: Sequence[str]) -> dict[str, int]:
        """Sums of what was noted with the shards, and keys to exclude that the collection doesn't have."""
        notes = self.artefact.notes(**dict.fromkeys(names, int))
        counts = {name: sum(note[name] for note in notes) for name in names}
        if self.excluded is not None and self.exclude_keys is not None:
            pairs = zip(self.exclude_keys, self.excluded)
            counts["unknown_excluded"] = sum(bool(key) and int(row) == NO_IMAGE for key, row in pairs)
        return counts

    def publish(self, counts: dict[str, int], meta: dict[str, Any], **seen: object) -> None:
        """Give the table its name; `seen` goes into its signature."""
        self.artefact.publish(
            {
                "sentences": len(self.sentences),
                "images_per_sentence": self.images_per_sentence,
                "keys_sha256": self.collection.keys_sha256,
                "text_sha256": self.text_sha256,
                "counts": counts,
                **meta,
                "signature": signature(
                    "retrieve",
                    method=self.method,
                    n=self.images_per_sentence,
                    **seen,
                    keys=self.collection.keys_sha256[:8],
                    exclude="no" if self.exclude_keys is None else "paired",
                ),
            }
        )
