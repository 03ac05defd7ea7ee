"""The index: every image of a feature store in a retriever's space, and the one way to search it.

Its kind says what searches it: `exact` is torch, on the CPU or a GPU; `flat` is faiss, exact too; `ivf` and `pq` are
faiss's approximate ones, for collections that are too large to compare with every image. All return true inner
products.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, check_at_least_one
from ..features.pixels import PixelSource, is_of_pixels
from ..features.store import FeatureStore
from ..features.store_writer import UNREADABLE, noted_unreadable
from ..storage.artefact import META, Keys, check_array_whole, open_array, read_meta
from ..storage.ranks import this_rank
from ..storage.shards import Shard, ShardedArtefact
from ..storage.signature import signature
from .faiss_index import (
    APPROXIMATE,
    KINDS,
    SETTINGS,
    FaissSearcher,
    FaissSettings,
    build_faiss,
    choose_settings,
    import_faiss,
)
from .half_precision import Precisions
from .nearest import NearestImage
from .retriever import Retriever
from .search import MARGIN, NonFiniteRow, exact_search, rerank, rerank_exactly, scan_precisions

INDEX = "index"
KEYS = "keys.txt"

_LONGEST = 1.01  # a unit vector, rounded


class Index:
    """Embeddings of a collection.

    Attributes:
        embeddings: (I, D) float32 unit rows, memory-mapped; a zero row is an absent image.
        keys_sha256: the collection that the rows belong to.
        retriever_sha256: the retriever that made it.
        absent: how many images have no features.
        made_from: `digest` of the feature store; None where it was made from pixels, or before that was written down.
        kind: exact, flat, ivf or pq.
        faiss: how faiss's files were built; None for an exact index.
        signature: how it was made.

    Raises:
        InputError: the folder isn't a whole index.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        counts = {"images": int, "size": int, "absent": int}
        meta = read_meta(self.folder, INDEX, **counts, signature=str, keys_sha256=str, retriever_sha256=str)
        self.signature: str = meta["signature"]
        self.keys_sha256: str = meta["keys_sha256"]
        self.retriever_sha256: str = meta["retriever_sha256"]
        self.absent: int = meta["absent"]
        self._keys = Keys(self.folder / KEYS, meta["images"], self.keys_sha256)
        self.embeddings = open_array(self.folder / "embeddings.npy", (meta["images"], meta["size"]), "float32")
        self.made_from = _made_from(meta.get("plan"))
        self.kind: str = meta.get("kind", "exact")
        self.faiss = None if self.kind == "exact" else _read_settings(self.folder, meta)
        norm = meta.get("largest_norm")
        self._largest_norm = float(norm) if isinstance(norm, int | float) else None
        if self._largest_norm is not None and not 0 <= self._largest_norm <= _LONGEST:
            raise InputError(
                f"{self.folder / META} should have the length of a unit vector, or 0, as largest_norm, but has "
                f"{norm!r}. Build the index again."
            )
        self._searcher: FaissSearcher | None = None
        self._nearest: NearestImage | None = None
        self._scans: dict[str, Precisions] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder}  # memory maps and faiss's files are opened again, in another process say

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    @property
    def approximate(self) -> bool:
        """Whether a search may miss an image."""
        return self.kind in APPROXIMATE

    def searches_some(self, nprobe: int | None) -> bool:
        """Whether a search with so many lists leaves others out."""
        return self.faiss is not None and self.approximate and self.faiss.nprobe(nprobe) < self.faiss.lists

    def nprobe(self, asked: int | None) -> int:
        """Lists that are searched for each sentence; 0 where there are none.

        Raises:
            InputError: there aren't so many.
        """
        if self.faiss is not None:
            return self.faiss.nprobe(asked)
        if asked is not None:
            raise InputError(f"nprobe is for an index of kind ivf or pq, but {self.folder} is exact.", "nprobe")
        return 0

    def search(
        self,
        queries: Tensor | np.ndarray,
        k: int,
        device: str | torch.device = "cpu",
        exclude: Tensor | np.ndarray | None = None,
        nprobe: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The k images nearest to each query, best first, ties by row; absent ones are never among them.

        Args:
            queries: unit vectors.
            k: results per query; where fewer are found, the id is −1 and the score 0.
            device: where to compute.
            exclude: a row that must not be returned, −1 for none.
            nprobe: lists to search, for an approximate index (default: `FaissSettings.nprobe`).

        Shapes:
            queries: (Q, D);  exclude: (Q,)
            returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU

        Raises:
            InputError: faiss is needed and isn't there, one of its files is broken, the embeddings were cut short or
                hold NaN or infinity, k is below 1, or queries or `exclude` are of another shape, or queries no numbers.
        """
        check_at_least_one(k=k)
        queries = torch.as_tensor(queries)
        if queries.dim() != 2 or queries.shape[1] != self.embeddings.shape[1]:
            raise InputError(
                f"queries should be a row of {self.embeddings.shape[1]} numbers each, as the images of {self.folder} "
                f"have, but are of shape {tuple(queries.shape)}."
            )
        broken = (~queries.isfinite().all(dim=1)).nonzero().flatten()
        if len(broken):
            raise InputError(
                f"queries should be numbers, but {len(broken)} of {len(queries)} hold NaN or infinity, the first "
                f"number {int(broken[0])}."
            )
        exclude = None if exclude is None else torch.as_tensor(exclude).long()
        if exclude is not None and exclude.shape != queries.shape[:1]:
            raise InputError(
                f"exclude should have a row for each of {len(queries)} queries, −1 for none, but is of shape "
                f"{tuple(exclude.shape)}."
            )
        if exclude is not None and len(exclude) and not -1 <= int(exclude.min()) <= int(exclude.max()) < len(self):
            raise InputError(
                f"exclude should have rows 0..{len(self) - 1}, or −1 for none, but has {int(exclude.min())} to "
                f"{int(exclude.max())}."
            )
        if self.faiss is None:
            if k == 1 and exclude is None and self._nearest_image(device).keeps:
                scores, ids = self.nearest(queries, device)
                return scores.unsqueeze(1), ids.unsqueeze(1)
            return self.search_exactly(queries, k, device, exclude)
        if self._searcher is not None and self._searcher.process != os.getpid():
            self._searcher.leave_to_parent()
            self._searcher = None
        if self._searcher is None:
            self._searcher = FaissSearcher(self.folder, self.faiss, len(self), self.embeddings.shape[1])
        with self._sound():
            scores, candidates = self._searcher.candidates(queries, k + MARGIN + (exclude is not None), device, nprobe)
            queries = queries.to(device, torch.float32)
            if self.approximate:
                return rerank(queries, self.embeddings, candidates, k, exclude)
            return rerank_exactly(queries, self.embeddings, scores, candidates, k, exclude, self._largest_norm)

    def search_exactly(
        self, queries: Tensor, k: int, device: str | torch.device = "cpu", exclude: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`search`, but every image is compared, whatever the kind.

        Shapes:
            queries: (Q, D);  exclude: (Q,)
            returns: scores (Q, k) float32, ids (Q, k) int64, on the CPU

        Raises:
            InputError: the embeddings were cut short, or hold NaN or infinity.
        """
        with self._sound():
            norm, precisions = self._largest_norm, self._precisions(device)
            return exact_search(
                queries, self.embeddings, k, device, exclude=exclude, largest_norm=norm, precisions=precisions
            )

    def nearest(self, queries: Tensor, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
        """`search_exactly` for k = 1, whatever the kind, several times as fast for many queries.

        Shapes:
            queries: (Q, D)
            returns: scores (Q,) float32, ids (Q,) int64, on the CPU

        Raises:
            InputError: the embeddings were cut short, or hold NaN or infinity.
        """
        with self._sound():
            return self._nearest_image(device).of(queries)

    def _nearest_image(self, device: str | torch.device) -> NearestImage:
        """What is kept for the device that was asked for last."""
        if self._nearest is None or self._nearest.device != torch.device(device):
            self._nearest = NearestImage(self.embeddings, device)
        return self._nearest

    def _precisions(self, device: str | torch.device) -> Precisions:
        """What was seen to be worth it on a kind of device."""
        return self._scans.setdefault(torch.device(device).type, scan_precisions(device))

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """While embeddings are read."""
        check_array_whole(self.embeddings)
        try:
            yield
        except NonFiniteRow as error:
            key = next((key for row, key in enumerate(self.keys()) if row == error.row), "without a key")
            raise InputError(
                f"{self.folder / 'embeddings.npy'} should hold unit vectors, but row {error.row} ({key}) holds NaN or "
                "infinity. Delete the index, and make it again with: visual-grounding index"
            ) from error

    def __len__(self) -> int:
        return self.embeddings.shape[0]

    def __repr__(self) -> str:
        return f"<index of {len(self)} images in {self.embeddings.shape[1]} numbers each, {self.kind}: {self.folder}>"

    def keys(self) -> Keys:
        """Image keys in row order: read from disk one by one, or by row, `keys()[3]`.

        Raises:
            InputError: as `read_keys`.
        """
        return self._keys

    def check_retriever(self, retriever: Retriever) -> None:
        """Refuse a retriever that didn't make this index.

        Raises:
            InputError: it is another one, or the index has vectors of another size.
        """
        if retriever.sha256 != self.retriever_sha256:
            raise InputError(
                f"index {self.folder} was made by another retriever than {retriever.folder}: sha256 "
                f"{self.retriever_sha256[:8]}… ≠ {retriever.sha256[:8]}…. Rebuild it with: visual-grounding index "
                f"--retriever {retriever.folder} --image-features … --out DIR"
            )
        if retriever.joint_size != self.embeddings.shape[1]:
            raise InputError(
                f"index {self.folder} has vectors of {self.embeddings.shape[1]} numbers, where {retriever.folder}, "
                f"which made it, gives {retriever.joint_size}: it was changed. Delete it, and make it again with: "
                "visual-grounding index"
            )


def _unreadable(store: FeatureStore | PixelSource, shard: Shard) -> list[list[str]]:
    """Keys and reasons; a feature store has its own list."""
    if isinstance(store, FeatureStore):
        return []
    rows = [row for row in range(shard.start, shard.stop) if row in store.unreadable]
    return [[store.images.keys[row], store.unreadable[row]] for row in rows]


def _made_from(plan: Any) -> str | None:
    if not isinstance(plan, dict) or is_of_pixels(str(plan.get("features"))):
        return None
    return plan.get("features_made_from")


def _read_settings(folder: Path, meta: dict[str, Any]) -> FaissSettings:
    try:
        settings = FaissSettings.from_json(meta["faiss"])
        if settings.kind not in KINDS or settings.lists > meta["images"] or settings.code_bytes > meta["size"]:
            raise ValueError(f"{settings} doesn't fit {meta['images']} images of {meta['size']} numbers")
        if settings.kind != meta["kind"]:
            raise ValueError(f"{settings} doesn't fit kind {meta['kind']!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder} should say in its meta.json how faiss's files were built, but that can't be used: "
            f"{error!r:.200}. Delete it, and make it again with: visual-grounding index"
        ) from error
    return settings


def build_index(
    retriever: Retriever,
    store: FeatureStore | PixelSource,
    out: Path,
    batch_size: int = 256,
    shard_size: int = 8192,
    kind: str = "exact",
    lists: int | None = None,
    code_bytes: int | None = None,
    images_per_file: int | None = None,
    features_unchecked: bool = False,
) -> None:
    """Embed every image of a store, or from its pixels, and build faiss's files; continues where it was interrupted.

    Args:
        retriever: what embeds.
        store: the images.
        out: the index to make.
        batch_size: images embedded at a time.
        shard_size: images between two save points.
        kind: exact, flat, ivf or pq.
        lists: inverted lists of ivf and pq (default: `choose_settings`).
        code_bytes: bytes of an image's code in pq (likewise).
        images_per_file: images in one of faiss's files (likewise).
        features_unchecked: take features that were made otherwise than those that the retriever was trained on.

    Raises:
        InputError: store and retriever don't fit, a choice doesn't fit the kind, faiss is needed and isn't there, or
            `out` holds something else, or an image's embedding isn't finite.
    """
    check_at_least_one(batch_size=batch_size, shard_size=shard_size)
    retriever.check_store(store, features_unchecked)
    settings = _choose_search(kind, len(store), retriever.joint_size, lists, code_bytes, images_per_file)
    choices: dict[str, Any] = {
        "retriever_sha256": retriever.sha256,
        "keys_sha256": store.keys_sha256,
        "features": store.signature,
        "features_made_from": store.digest,
        "batch_size": batch_size,
        "device": torch.device(retriever.device).type,
        **({} if settings is None else {"faiss": settings.to_json()}),
    }
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"embeddings": ((retriever.joint_size,), "float32")}
    artefact = ShardedArtefact(out, INDEX, choices, len(store), shard_size, arrays)
    if artefact.finished:
        return
    for shard in artefact.missing():
        vectors = _embedded(retriever, store, shard, batch_size)
        _check_finite(vectors, shard, retriever, store)
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        noted = {"absent": int((norms == 0).sum()), "largest_norm": float(norms.max())}
        artefact.write(shard, {"embeddings": vectors}, {**noted, "unreadable": _unreadable(store, shard)})
    notes = artefact.notes(absent=int, largest_norm=float, unreadable=list)  # waits for other ranks
    keys = set() if isinstance(store, FeatureStore) else set(store.images.keys)
    _list_unreadable(artefact, noted_unreadable(artefact, notes, keys), len(store))
    if settings is not None and this_rank().leads:
        embeddings = open_array(artefact.files / "embeddings.npy", (len(store), retriever.joint_size), "float32")
        build_faiss(settings, embeddings, artefact.files, artefact.progress)
    artefact.add_lines(KEYS, store.keys())
    artefact.publish(
        {
            "images": len(store),
            "size": retriever.joint_size,
            "absent": sum(note["absent"] for note in notes),
            "largest_norm": max([0.0, *(note["largest_norm"] for note in notes)]),
            "kind": kind,
            **({} if settings is None else {"faiss": settings.to_json()}),
            "keys_sha256": store.keys_sha256,
            "retriever_sha256": retriever.sha256,
            "signature": signature(
                "index",
                retriever=retriever.sha256[:8],
                keys=store.keys_sha256[:8],
                features=store.digest[:8],
                **_describe(settings),
            ),
        }
    )


def _embedded(retriever: Retriever, store: FeatureStore | PixelSource, shard: Shard, batch_size: int) -> np.ndarray:
    """The images of a shard in the retriever's space.

    Shapes:
        returns: (rows of the shard, D)
    """
    vectors = np.zeros((shard.stop - shard.start, retriever.joint_size), dtype=np.float32)
    for start in range(shard.start, shard.stop, batch_size):
        stop = min(start + batch_size, shard.stop)
        features, padding_mask = store.gather(np.arange(start, stop))
        encoded = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(padding_mask))
        vectors[start - shard.start : stop - shard.start] = encoded.numpy()
    return vectors


def _list_unreadable(artefact: ShardedArtefact, unreadable: list[tuple[str, str]], images: int) -> None:
    """Write which images couldn't be read, and why, if there are any.

    Raises:
        InputError: none could.
    """
    if not unreadable:
        return
    if len(unreadable) == images:
        key, reason = unreadable[0]
        raise InputError(
            f"All {images} images are unreadable; the first is {key} ({reason}). Is this the right place? When that is "
            f"mended, delete {artefact.partial}, which remembers them, and run this again."
        )
    artefact.add_lines(UNREADABLE, (f"{key}\t{reason}" for key, reason in unreadable))


def _check_finite(vectors: np.ndarray, shard: Shard, retriever: Retriever, store: FeatureStore | PixelSource) -> None:
    """Refuse what a retriever with broken weights makes of images: such a row would be found for every sentence.

    Shapes:
        vectors: (rows of the shard, D)

    Raises:
        InputError: a row holds NaN or infinity.
    """
    broken = shard.start + np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        key = next((key for row, key in enumerate(store.keys()) if row == broken[0]), "without a key")
        raise InputError(
            f"retriever {retriever.folder} should turn every image of {store.folder} into numbers, but makes NaN or "
            f"infinity of row {broken[0]} ({key}) and {len(broken) - 1} more of rows {shard.start}..{shard.stop - 1}. "
            "Its weights are too large or broken: train and export it again."
        )


def _choose_search(
    kind: str, images: int, size: int, lists: int | None, code_bytes: int | None, images_per_file: int | None
) -> FaissSettings | None:
    """None for an exact index.

    Raises:
        InputError: a choice doesn't fit the kind, or faiss isn't there.
    """
    if kind != "exact":
        import_faiss(f"an index of kind {kind}")
        return choose_settings(kind, images, size, lists, code_bytes, images_per_file)
    asked = {"lists": lists, "code_bytes": code_bytes, "faiss_file_size": images_per_file}
    for name, value in asked.items():
        if value is not None:
            raise InputError(
                f"a number of {SETTINGS[name]} is for an index that faiss makes, but the kind is exact.", name, "kind"
            )
    return None


def _describe(settings: FaissSettings | None) -> dict[str, object]:
    """What the signature says of an index by faiss."""
    if settings is None:
        return {}
    sizes = {"lists": settings.lists, "code_bytes": settings.code_bytes}
    return {"kind": settings.kind, **{name: value for name, value in sizes.items() if value}}
