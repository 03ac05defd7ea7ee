"""Files: a store, ids, a text, a retriever, an index, pictures; each by itself, and whether they belong together."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..images.sources import ImageSource, UnreadableImage, read_image
from ..storage.artefact import META, PARTIAL
from ..storage.lines import read_lines, sha256_of_lines
from ..storage.unfinished import Unfinished
from .columns import check_columns
from .findings import Finding, note, ok, wrong

if TYPE_CHECKING:
    from ..retrieval.image_ids import ImageIds
    from ..retrieval.index import Index
    from ..retrieval.retriever import Retriever

SCANNED_BYTES = 512 << 20  # of features: about a second; of a larger store, this much is spread over all of it
_BLOCK_BYTES = 8 << 20
_SAMPLED_IMAGES = 32
_NORM_TOLERANCE = (
    1e-3  # a float32 unit vector is one to 1e-6; what is off by more was changed, or made by something else
)
_NAMED = 3  # how many culprits are named
_BITS: dict[int, tuple[Any, int, int]] = {  # bytes of a number -> as bits, the exponent's, all but the sign
    2: (np.uint16, 0x7C00, 0x7FFF),
    4: (np.uint32, 0x7F800000, 0x7FFFFFFF),
}


@dataclass
class Parts:
    """What could be opened so far; None where it wasn't asked for, or is broken."""

    store: FeatureStore | None = None
    text: list[str] | None = None
    retriever: "Retriever | None" = None
    index: "Index | None" = None
    images: ImageSource | None = None


class Scan(NamedTuple):
    """Rows looked at, and what is odd about them; `bad` are the first rows that hold NaN or infinity."""

    rows: int
    bad: list[int]
    bad_count: int
    absent: int


def chosen_blocks(images: int, row_bytes: int, limit: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each block to look at: all of them, or spread evenly over a larger store."""
    block = max(1, min(_BLOCK_BYTES, limit) // row_bytes)
    blocks = -(-images // block)
    chosen = range(blocks)
    if images * row_bytes > limit:
        count = max(2, limit // (block * row_bytes))
        chosen = sorted({number * (blocks - 1) // (count - 1) for number in range(count)})  # type: ignore[assignment]
    for number in chosen:
        yield number * block, block


def scan_numbers(features: np.ndarray, limit: int = SCANNED_BYTES) -> Scan:
    """Look for numbers that are none, block by block, so that memory stays the same for any store or index.

    Up to `limit` bytes are looked at: everything, or blocks spread evenly from the first row to the last.

    Shapes:
        features: (I, R, F) float16, or embeddings (I, D) float32
    """
    bits_of, exponent, magnitude = _BITS[features.dtype.itemsize]
    row_bytes = max(1, features[:1].nbytes)
    rows = bad_count = absent = 0
    bad: list[int] = []
    for start, block in chosen_blocks(len(features), row_bytes, limit):
        rows_of_block = np.ascontiguousarray(features[start : start + block]).view(bits_of)
        bits = rows_of_block.reshape(len(rows_of_block), -1) & magnitude
        broken = np.flatnonzero(((bits & exponent) == exponent).any(axis=1))  # all exponent bits: NaN or infinity
        bad += [start + int(row) for row in broken[: _NAMED - len(bad)]]
        bad_count += len(broken)
        absent += int((~bits.any(axis=1)).sum())
        rows += len(bits)
    return Scan(rows, bad, bad_count, absent)


def scan_norms(embeddings: np.ndarray, limit: int = SCANNED_BYTES) -> dict[int, float]:
    """Rows of an index that are neither unit vectors nor zero, and their norms; not those that hold NaN or infinity.

    The same blocks are looked at as by `scan_numbers`.

    >>> scan_norms(np.array([[0.6, 0.8], [0, 0], [3, 4], [np.inf, 0]], dtype=np.float32))
    {2: 5.0}

    Shapes:
        embeddings: (I, D) float32
    """
    odd: dict[int, float] = {}
    for start, block in chosen_blocks(len(embeddings), max(1, embeddings[:1].nbytes), limit):
        norms = np.linalg.norm(embeddings[start : start + block].astype(np.float64), axis=1)  # float32 would overflow
        wrong_rows = np.isfinite(norms) & (norms != 0) & (abs(norms - 1) > _NORM_TOLERANCE)
        odd |= {start + int(row): float(norms[row]) for row in np.flatnonzero(wrong_rows)}
    return odd


def check_unfinished(folder: Path) -> Iterator[Finding]:
    """What an interrupted command left behind."""
    unfinished = Unfinished(folder)
    if not unfinished.folder.is_dir():
        return
    if folder.exists():
        yield note(
            f"{unfinished.folder} lies beside the finished {folder}. Unless a command is writing it now, delete it."
        )
        return
    done, count = len(unfinished.done()), unfinished.shard_count()
    state = f"{done} shards are done" if count is None else f"{done} of {count} shards are done"
    yield wrong(
        f"{folder} isn't finished: {state}. Run the command that makes it again; it continues where it stopped."
    )


def exists(folder: Path) -> bool:
    """Whether there is more to check than what an interrupted command left."""
    return folder.exists() or not Unfinished(folder).folder.is_dir()


def check_store(folder: Path, parts: Parts, everything: bool) -> Iterator[Finding]:
    """A feature store: whole, its keys those that it was made with, its numbers numbers."""
    store = FeatureStore(folder)
    parts.store = store
    again = "Delete it, and extract or import it again."
    yield from _check_keys(store)
    limit = store.features.nbytes if everything else SCANNED_BYTES
    scan = scan_numbers(store.features, limit)
    share = _share(scan, store)
    yield from _check_numbers(scan, store, again)
    yield from check_columns(store, chosen_blocks(len(store), max(1, store.features[:1].nbytes), limit), share)
    if scan.rows and scan.absent == scan.rows:
        yield wrong(f"{folder}: every image that was looked at is absent: all its features are zero. {again}")
    regions = f"{store.num_regions} region{'s' if store.num_regions > 1 else ''} of {store.feature_size} numbers"
    if store.columns:
        regions += f" with {', '.join(store.columns)}"
    yield ok(f"{folder}: {len(store)} images, {regions}; {share} were scanned, {scan.absent} of them absent.")


def _check_keys(collection: "FeatureStore | Index") -> Iterator[Finding]:
    try:
        for _ in collection.keys():  # noqa: SIM118 - it is no dict
            pass
    except InputError as error:
        yield wrong(str(error))


def _check_numbers(scan: Scan, collection: "FeatureStore | Index", again: str) -> Iterator[Finding]:
    if not scan.bad:
        return
    yield wrong(
        f"{collection.folder}: {scan.bad_count} images hold NaN or infinity, such as {_name(scan.bad, collection)}; "
        f"{_share(scan, collection)} were scanned. {again}"
    )


def _check_norms(odd: dict[int, float], scan: Scan, index: "Index", again: str) -> Iterator[Finding]:
    """A long row would be found for every sentence, and exact and faiss's search would differ."""
    if not odd:
        return
    norms = ", ".join(f"{norm:.4g}" for norm in list(odd.values())[:_NAMED])
    yield wrong(
        f"{index.folder}: {len(odd)} images should have unit vectors, or 0 where absent, but don't, such as "
        f"{_name(list(odd)[:_NAMED], index)}, of norm {norms}; {_share(scan, index)} were scanned. {again}"
    )


def _name(rows: list[int], collection: "FeatureStore | Index") -> str:
    names = {row: f"row {row}" for row in rows}
    with suppress(InputError):  # its keys are broken, too
        names |= {row: f"row {row} ({key})" for row, key in enumerate(collection.keys()) if row in names}
    return ", ".join(names.values())


def _share(scan: Scan, collection: "FeatureStore | Index") -> str:
    total = len(collection)
    return "all rows" if scan.rows == total else f"{scan.rows} of {total} rows, spread over all of them,"


def check_text(path: Path, parts: Parts) -> Iterator[Finding]:
    """A text: UTF-8, and not empty."""
    parts.text = read_lines(path)
    empty = sum(not line.strip() for line in parts.text)
    if len(parts.text) == empty:
        yield wrong(f"{path} should hold sentences, but has {len(parts.text)} lines, all of them empty.")
        return
    yield ok(f"{path}: {len(parts.text)} lines, {empty} of them empty.")


def check_image_ids(folder: Path, text: Path | None, parts: Parts) -> Iterator[Finding]:
    """Image ids: whole, of this store, as many as the text has lines. A folder of splits is checked split by split."""
    from ..retrieval.image_ids import ImageIds

    if not (folder / META).exists() and folder.is_dir():
        splits = sorted(path.parent for path in folder.glob(f"*/{META}"))
        unfinished = sorted(path for path in folder.glob(f"*{PARTIAL}") if path.is_dir())
        for path in unfinished:
            yield from check_unfinished(path.with_name(path.name.removesuffix(PARTIAL)))
        for split in splits:
            yield from _check_table(ImageIds(split), None, parts)
        if splits and text is not None:
            yield note(f"Which split {text} belongs to isn't known. Name its ids, such as --image-ids {splits[0]}.")
        if splits or unfinished:
            return
    yield from _check_table(ImageIds(folder), text, parts)


def _check_table(ids: "ImageIds", text: Path | None, parts: Parts) -> Iterator[Finding]:
    fits = True
    if parts.store is not None:
        try:
            ids.check_against(parts.store)
        except InputError as error:
            fits = False
            yield wrong(str(error))
    elif parts.index is not None and ids.keys_sha256 != parts.index.keys_sha256:
        fits = False
        yield wrong(f"{ids.folder} is of other images than {parts.index.folder}: their keys differ.")
    if parts.text is not None and text is not None:
        try:
            ids.check_lines(len(parts.text), str(text))
            if doubt := ids.doubt(parts.text, text):
                yield note(doubt)
        except InputError as error:
            fits = False
            yield wrong(str(error))
    if fits:
        without = int((ids.ids < 0).all(axis=1).sum())
        yield ok(f"{ids.folder}: {len(ids)} sentences, {ids.ids.shape[1]} images each, {without} without any.")


def check_retriever(folder: Path, parts: Parts, features_unchecked: bool = False) -> Iterator[Finding]:
    """A retriever: loads, encodes a sentence, and fits the store; features of another making are a fault if checked."""
    import torch

    from ..retrieval.retriever import Retriever

    retriever = Retriever.load(folder)
    parts.retriever = retriever
    lines = [line for line in parts.text or [] if line.strip()][:_SAMPLED_IMAGES] or ["a photo"]
    vectors = retriever.encode_text(lines)
    if not torch.isfinite(vectors).all():
        yield wrong(
            f"{folder} turns sentences into NaN or infinity: its weights are broken. Train and export it again."
        )
        return
    if parts.store is not None and not retriever.takes_pixels:
        retriever.check_store(parts.store, features_unchecked)
        if retriever.why_unchecked and not features_unchecked:
            yield note(retriever.why_unchecked)
        if len(parts.store):
            features, mask = parts.store.gather(np.arange(1))
            retriever.encode_images(torch.from_numpy(np.nan_to_num(features)), torch.from_numpy(mask))
    yield ok(f"{folder}: retriever, joint size {retriever.joint_size}.")


def check_index(folder: Path, parts: Parts, everything: bool) -> Iterator[Finding]:
    """An index: whole, its rows unit vectors, made by this retriever from this store."""
    from ..retrieval.index import Index

    index = Index(folder)
    yield from _check_keys(index)
    limit = index.embeddings.nbytes if everything else SCANNED_BYTES
    scan, odd = scan_numbers(index.embeddings, limit), scan_norms(index.embeddings, limit)
    again = "Delete it, and build it again."
    yield from _check_numbers(scan, index, again)
    yield from _check_norms(odd, scan, index, again)
    fits = not scan.bad and not odd
    rebuild = "visual-grounding index --retriever {} --image-features {} --out NEW".format(
        parts.retriever.folder if parts.retriever else "DIR", parts.store.folder if parts.store else "DIR"
    )
    if parts.retriever is not None:
        try:
            index.check_retriever(parts.retriever)
        except InputError as error:
            fits = False
            yield wrong(f"Stale: {error}", rebuild)
    if parts.store is not None:
        if index.keys_sha256 != parts.store.keys_sha256:
            fits = False
            yield wrong(f"{folder} is of other images than {parts.store.folder}: their keys differ.", rebuild)
        elif index.made_from not in (None, parts.store.digest):
            fits = False
            yield wrong(f"{folder} was made from other features of the same images than {parts.store.folder}.", rebuild)
    if fits:
        parts.index = index
        yield ok(f"{folder}: index of {len(index)} images, {index.absent} of them absent.")


def check_images(source: str, images: ImageSource, parts: Parts) -> Iterator[Finding]:
    """Pictures: a sample of them is decoded; and they are those of the store."""
    parts.images = images
    total = len(images.keys)
    count = min(total, _SAMPLED_IMAGES)
    sample = sorted({number * (total - 1) // max(count - 1, 1) for number in range(count)})
    unreadable = []
    for row in sample:
        try:
            read_image(images, row)
        except UnreadableImage as reason:
            unreadable.append(f"{images.keys[row]} ({reason})")
    if unreadable:
        named = ", ".join(unreadable[:_NAMED])
        yield wrong(
            f"{source}: {len(unreadable)} of {len(sample)} sampled pictures are unreadable: {named}. Copy them again; "
            "`extract` would list them, and they would count as absent."
        )
    else:
        yield ok(f"{source}: {total} pictures, {len(sample)} of them decoded.")
    if (
        parts.store is None
        and parts.index is not None
        and sha256_of_lines(list(images.keys)) != parts.index.keys_sha256
    ):
        yield wrong(f"{parts.index.folder} is of other images than {source}: their keys differ.")
    if parts.store is not None:
        here = set(images.keys)
        missing = [key for key in parts.store.keys() if key not in here]  # noqa: SIM118 - it is no dict
        if missing:
            yield wrong(
                f"{parts.store.folder} has {len(missing)} images, of {len(parts.store)}, that {source} doesn't have, "
                f"such as {missing[0]}. It was made from other pictures, or some are gone."
            )
