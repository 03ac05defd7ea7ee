"""The index: every image of a feature store in a retriever's space."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ..errors import InputError
from ..features.pixels import PixelSource
from ..features.store import FeatureStore
from ..storage.artefact import open_array, read_meta
from ..storage.shards import ShardedArtefact
from ..storage.signature import signature
from .retriever import Retriever

INDEX = "index"
KEYS = "keys.txt"


class Index:
    """Embeddings of a collection.

    Attributes:
        embeddings: (I, D) float32 unit rows, memory-mapped; a zero row is an absent image.
        keys_sha256: the collection that the rows belong to.
        retriever_sha256: the retriever that made it.
        absent: how many images have no features.
        signature: how it was made.

    Raises:
        InputError: the folder isn't a whole index.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        meta = read_meta(self.folder, INDEX)
        self.signature: str = meta["signature"]
        self.keys_sha256: str = meta["keys_sha256"]
        self.retriever_sha256: str = meta["retriever_sha256"]
        self.absent: int = meta["absent"]
        self.embeddings = open_array(self.folder / "embeddings.npy", (meta["images"], meta["size"]), "float32")

    def __len__(self) -> int:
        return self.embeddings.shape[0]

    def keys(self) -> Iterator[str]:
        """Image keys in row order, read from disk one by one."""
        with open(self.folder / KEYS, encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")

    def check_retriever(self, retriever: Retriever) -> None:
        """Refuse a retriever that didn't make this index.

        Raises:
            InputError: it is another one.
        """
        if retriever.sha256 != self.retriever_sha256:
            raise InputError(
                f"index {self.folder} was made by another retriever than {retriever.folder}: sha256 "
                f"{self.retriever_sha256[:8]}… ≠ {retriever.sha256[:8]}…. Rebuild it with: visual-grounding index "
                f"--retriever {retriever.folder} --image-features … --out DIR"
            )


def check_at_least_one(**flags: int) -> None:
    """Refuse a count below 1.

    Raises:
        InputError: the first such flag.
    """
    for name, value in flags.items():
        if value < 1:
            raise InputError(f"--{name.replace('_', '-')} should be at least 1, but is {value}.")


def build_index(
    retriever: Retriever, store: FeatureStore | PixelSource, out: Path, batch_size: int = 256, shard_size: int = 8192
) -> None:
    """Embed every image of a store, or from its pixels, shard by shard; continues where it was interrupted.

    Raises:
        InputError: store and retriever don't fit, or `out` holds something else.
    """
    check_at_least_one(batch_size=batch_size, shard_size=shard_size)
    choices = {
        "retriever_sha256": retriever.sha256,
        "keys_sha256": store.keys_sha256,
        "features": store.signature,
        "features_made_from": store.made_from,
        "batch_size": batch_size,
        "device": torch.device(retriever.device).type,
    }
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"embeddings": ((retriever.joint_size,), "float32")}
    artefact = ShardedArtefact(out, INDEX, choices, len(store), shard_size, arrays)
    if artefact.finished:
        return
    for shard in artefact.missing():
        vectors = np.zeros((shard.stop - shard.start, retriever.joint_size), dtype=np.float32)
        for start in range(shard.start, shard.stop, batch_size):
            stop = min(start + batch_size, shard.stop)
            features, padding_mask = store.gather(np.arange(start, stop))
            encoded = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(padding_mask))
            vectors[start - shard.start : stop - shard.start] = encoded.numpy()
        artefact.write(shard, {"embeddings": vectors}, {"absent": int((~vectors.any(axis=1)).sum())})
    with open(artefact.files / KEYS, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{key}\n" for key in store.keys())  # noqa: SIM118
    artefact.publish(
        {
            "images": len(store),
            "size": retriever.joint_size,
            "absent": sum(note["absent"] for note in artefact.notes()),
            "keys_sha256": store.keys_sha256,
            "retriever_sha256": retriever.sha256,
            "signature": signature(
                "index", retriever=retriever.sha256[:8], keys=store.keys_sha256[:8], features=store.made_from[:8]
            ),
        }
    )
