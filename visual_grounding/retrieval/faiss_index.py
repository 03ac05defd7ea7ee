"""faiss indexes of an embedded collection: exact (`flat`), inverted lists (`ivf`), inverted lists of codes (`pq`).

faiss proposes candidates; `search.py` scores them again from the embeddings, so scores are true inner products whatever
the kind. A collection is spread over several files where one would be too large for memory; they are built and searched
one after another. Absent images aren't in them: positions in the files count the present images only.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, first_line
from ..storage.artefact import check_whole, open_array, sha256_of_file
from ..storage.outside import open_file
from .image_ids import NO_IMAGE

KINDS = ("exact", "flat", "ivf", "pq")
APPROXIMATE = ("ivf", "pq")
SETTINGS = {"lists": "lists", "code_bytes": "code bytes", "faiss_file_size": "images in a file of faiss"}
ABSENT = "absent.npy"
_OVERFETCH = {"flat": 1, "ivf": 1, "pq": 8}  # codes are coarse: more candidates are scored again
_CODE_VALUES = 256  # 8 bits a byte of code
_PER_LIST = 256  # images that each list's centre is trained on, at most: faiss takes no more
_FEWEST_PER_LIST = 39  # and at least: faiss warns below
_TRAINING_BYTES = 2**29
_FILE_BYTES = 2**28  # a file is in memory while it is built
_CHUNK = 8192
_BEGINNING = struct.Struct("<4siq")  # kind, numbers of a vector, vectors
_COUNT = 8  # bytes of a number of faiss's files
_HEADER = _BEGINNING.size + 2 * _COUNT + 1 + 4  # two numbers unused, whether it is trained, its metric
_LETTERS = {"flat": b"IxFI", "ivf": b"IwFl", "pq": b"IwPQ"}
_IN_FILE, _ON_DISK = b"ilar", b"ilod"
_LISTS = struct.Struct("<4sqq4sq")  # where they are, how many, bytes of a vector, how their lengths are kept, how many


def installed_faiss() -> list[str]:
    """faiss packages of this environment, e.g. ["faiss-cpu 1.15.1"]."""
    found = {str(each.metadata["Name"]).lower().replace("_", "-"): each.version for each in distributions()}
    return sorted(f"{name} {version}" for name, version in found.items() if name.startswith(("faiss-cpu", "faiss-gpu")))


def import_faiss(why: str) -> Any:
    """The module `faiss`.

    Args:
        why: what needs it, for the message.

    Raises:
        InputError: it isn't installed, or twice.
    """
    packages = installed_faiss()
    if len(packages) > 1:
        names = " ".join(package.split()[0] for package in packages)
        raise InputError(
            f"one faiss package should be installed, but there are {len(packages)}: {', '.join(packages)}. They "
            f"overwrite each other's files. Mend it with: pip uninstall {names}, then pip install "
            "'visual_grounding[cpu]', or [gpu] where there is a GPU."
        )
    try:
        import faiss
    except ImportError as error:
        raise InputError(
            f"{why} needs faiss, which can't be imported ({error}). Install it with: pip install "
            "'visual_grounding[cpu]', or [gpu] where there is a GPU; or use an index of kind exact, which needs "
            "neither."
        ) from error
    return faiss


@dataclass(frozen=True)
class FaissSettings:
    """What is decided about an index before it is built.

    Attributes:
        kind: flat, ivf or pq.
        lists: inverted lists; 0 for flat.
        code_bytes: bytes of an image's code; 0 where the whole vector is stored.
        images_per_file: images in one of faiss's files.
    """

    kind: str
    lists: int
    code_bytes: int
    images_per_file: int

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            KeyError: something is missing.
            TypeError: there is something else.
            ValueError: a number can't be.
        """
        said = dict(said)
        settings = cls(images_per_file=said.pop("shard_size"), **said)  # the name that it has on disk
        if not all(type(each) is int for each in (settings.lists, settings.code_bytes, settings.images_per_file)):
            raise TypeError(f"{settings} has numbers that are none")
        if min(settings.lists, settings.code_bytes, settings.images_per_file - 1) < 0:
            raise ValueError(f"{settings} has numbers that can't be")
        return settings

    def to_json(self) -> dict[str, Any]:
        """As an index's `meta.json` has it."""
        said = asdict(self)
        said["shard_size"] = said.pop("images_per_file")
        return said

    def nprobe(self, asked: int | None) -> int:
        """Lists to search for each sentence: what was asked for, else a 32nd of them, at least 8.

        Raises:
            InputError: there aren't so many, or there are no lists.
        """
        if self.kind not in APPROXIMATE:
            if asked is not None:
                raise InputError(f"nprobe is for an index of kind ivf or pq, but this one is {self.kind}.", "nprobe")
            return 0
        if asked is not None and not 1 <= asked <= self.lists:
            raise InputError(f"nprobe should be 1 to {self.lists}, the lists of this index, but is {asked}.", "nprobe")
        return asked or min(self.lists, max(8, self.lists // 32))


def choose_settings(
    kind: str,
    images: int,
    size: int,
    lists: int | None = None,
    code_bytes: int | None = None,
    images_per_file: int | None = None,
) -> FaissSettings:
    """Fill in what wasn't asked for.

    Lists: 4·√I, as faiss's guidelines have it, unless so few images are trained on that centres would be poor. Bytes of
    a code: one for 8 numbers. Images in a file: as many as fit 256 MiB.

    Args:
        kind: flat, ivf or pq.
        images: I.
        size: D.
        lists: what is asked for, if anything.
        code_bytes: likewise.
        images_per_file: likewise.

    Raises:
        InputError: something asked for doesn't fit the kind or the collection.
    """
    if lists is not None and kind not in APPROXIMATE:
        raise InputError(f"lists are for an index of kind ivf or pq, but the kind is {kind}.", "lists", "kind")
    if code_bytes is not None and kind != "pq":
        raise InputError(f"code bytes are for an index of kind pq, but the kind is {kind}.", "code_bytes", "kind")
    asked = {"lists": lists, "code_bytes": code_bytes, "faiss_file_size": images_per_file}
    for name, value in asked.items():
        if value is not None and value < 1:
            raise InputError(f"the number of {SETTINGS[name]} should be at least 1, but is {value}.", name)
    if lists is not None and lists > images:
        raise InputError(
            f"the number of lists should be at most that of the images, {images}, but is {lists}.", "lists"
        )
    if code_bytes is not None and size % code_bytes:
        raise InputError(
            f"the code bytes should divide the size of the retriever's vectors, {size}, but are {code_bytes}.",
            "code_bytes",
        )
    if kind == "pq" and images < _CODE_VALUES:
        raise InputError(
            f"an index of kind pq learns codes from at least {_CODE_VALUES} images, but the collection has {images}. "
            "Choose the kind exact.",
            "kind",
        )
    if kind in APPROXIMATE and lists is None:
        trained_on = min(images, _TRAINING_BYTES // (4 * size))
        lists = max(1, min(round(4 * images**0.5), trained_on // _FEWEST_PER_LIST))
    if kind == "pq" and code_bytes is None:
        code_bytes = max(each for each in range(1, max(8, size // 8) + 1) if size % each == 0)
    bytes_per_image = {"flat": 4 * size, "ivf": 4 * size + 8, "pq": (code_bytes or 0) + 8}[kind]
    return FaissSettings(kind, lists or 0, code_bytes or 0, images_per_file or max(1, _FILE_BYTES // bytes_per_image))


def file_names(settings: FaissSettings, images: int) -> list[str]:
    """`index.faiss`, or `index-0.faiss`, `index-1.faiss` … where there are several."""
    count = max(1, -(-images // settings.images_per_file))
    return ["index.faiss"] if count == 1 else [f"index-{number}.faiss" for number in range(count)]


def build_faiss(settings: FaissSettings, embeddings: np.ndarray, files: Path, progress: Path) -> None:
    """Write the index's files; goes on with the file at which it was interrupted.

    Args:
        settings: what to build.
        embeddings: (I, D), memory-mapped; a zero row is absent.
        files: where they go.
        progress: where what training learned is kept until all are done.

    Raises:
        InputError: faiss isn't there, too few images are present, or a file can't be written.
    """
    faiss = import_faiss(f"an index of kind {settings.kind}")
    absent = [start + np.flatnonzero(~chunk.any(axis=1)) for start, chunk in _chunks(embeddings, 0, len(embeddings))]
    absent_rows = np.concatenate([np.zeros(0, dtype=np.int64), *absent])
    present = len(embeddings) - len(absent_rows)
    fewest = max(settings.lists, _CODE_VALUES if settings.kind == "pq" else 0)
    if present < fewest:
        raise InputError(
            f"an index of kind {settings.kind} with {settings.lists} lists needs at least {fewest} images, but only "
            f"{present} of {len(embeddings)} have features. Choose fewer lists, or the kind exact.",
            "lists",
            "kind",
        )
    trained = progress / "trained.faiss"
    try:
        np.save(files / ABSENT, absent_rows)
        if not _is_whole(trained, progress):
            _write(faiss, _train(faiss, settings, embeddings, absent_rows), trained, progress)
        for number, name in enumerate(file_names(settings, len(embeddings))):
            if _is_whole(files / name, progress):
                continue
            index = faiss.read_index(str(trained))
            start = number * settings.images_per_file
            for _, chunk in _chunks(embeddings, start, min(start + settings.images_per_file, len(embeddings))):
                index.add(np.ascontiguousarray(chunk[chunk.any(axis=1)]))
            _write(faiss, index, files / name, progress)
    except (OSError, RuntimeError) as error:  # faiss raises RuntimeError, for a full disk too
        raise InputError(
            f"{files} can't be written: {str(error).splitlines()[0]}. What is done stays; rerun."
        ) from error


def _chunks(embeddings: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
    """First row and vectors of each part."""
    for first in range(start, stop, _CHUNK):
        yield first, embeddings[first : min(first + _CHUNK, stop)]


def _train(faiss: Any, settings: FaissSettings, embeddings: np.ndarray, absent: np.ndarray) -> Any:
    """An empty index that knows its lists and codes, learned from a seeded sample of the present images."""
    size = embeddings.shape[1]
    recipe = {
        "flat": "Flat",
        "ivf": f"IVF{settings.lists},Flat",
        # np: no polysemous training, which nothing here would use
        "pq": f"IVF{settings.lists},PQ{settings.code_bytes}x8np",
    }[settings.kind]
    index = faiss.index_factory(size, recipe, faiss.METRIC_INNER_PRODUCT)
    if settings.kind in APPROXIMATE:
        lists = faiss.downcast_index(index)
        lists.cp.min_points_per_centroid = 1  # choose_settings sees to that; no warnings
        if settings.kind == "pq":
            lists.pq.cp.min_points_per_centroid = 1
        most = max(_TRAINING_BYTES // (4 * size), _FEWEST_PER_LIST * settings.lists, _CODE_VALUES)
        wanted = min(len(embeddings) - len(absent), max(_PER_LIST * settings.lists, _PER_LIST * _CODE_VALUES), most)
        chosen = np.random.default_rng(0).choice(len(embeddings) - len(absent), wanted, replace=False, shuffle=False)
        index.train(np.ascontiguousarray(embeddings[rows_of_positions(np.sort(chosen), absent)]))
    return index


def _write(faiss: Any, index: Any, path: Path, progress: Path) -> None:
    """Write beside, flush to disk, then rename; its digest is noted last."""
    temporary = path.with_name(path.name + ".tmp")
    faiss.write_index(index, str(temporary))
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    _note_of(path, progress).write_text(sha256_of_file(path), encoding="ascii")


def _is_whole(path: Path, progress: Path) -> bool:
    """Whether an earlier run wrote this file, and nobody changed it since: faiss may end the process over one."""
    note = _note_of(path, progress)
    return path.is_file() and note.is_file() and note.read_bytes() == sha256_of_file(path).encode()


def _note_of(path: Path, progress: Path) -> Path:
    return progress / f"{path.name}.sha256"


def rows_of_positions(positions: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """Rows of present images, given their places among the present images alone.

    >>> rows_of_positions(np.array([0, 1, 2, 3]), np.array([0, 2, 3])).tolist()  # rows 1, 4, 5, 6 are present
    [1, 4, 5, 6]

    Args:
        positions: any shape.
        absent: (A,) rows of the absent images, ascending.
    """
    # The a-th absent row, counted from 0, has `absent[a] − a` present ones before it.
    return positions + np.searchsorted(absent - np.arange(len(absent)), positions, side="right")


class FaissSearcher:
    """The files of a built index, searched one after another.

    Args:
        folder: of the index.
        settings: how it was built.
        images: I.
        size: D.

    Attributes:
        process: number of the process that it belongs to. A copy by fork can't be searched, nor freed: faiss would
            wait for threads that only the other process has.

    Raises:
        InputError: faiss isn't there, one of the files is missing, or the list of absent images is broken.
    """

    def __init__(self, folder: Path, settings: FaissSettings, images: int, size: int) -> None:
        self.faiss = import_faiss(f"index {folder}, of kind {settings.kind},")
        self.folder = folder
        self.settings = settings
        self.process = os.getpid()
        self.names = file_names(settings, images)
        for name in [*self.names, ABSENT]:
            if not (folder / name).is_file():
                why = "is no file" if (folder / name).exists() else "is missing"
                raise InputError(f"{folder / name} {why}. Build the index again.")
        self.size = size
        self.images = images
        self.absent = open_array(folder / ABSENT, (None,), "int64")
        if len(self.absent) and (self.absent[0] < 0 or self.absent[-1] >= images or (np.diff(self.absent) <= 0).any()):
            raise InputError(
                f"{folder / ABSENT} should have rows of the {images} images, ascending, but hasn't. Build the index "
                "again."
            )
        self._open: tuple[str, str, Any] | None = None
        self._bytes = 0  # of the file that is open
        self._resources: Any = None

    def leave_to_parent(self) -> None:
        """In a copy by fork: never free what is open, and start no threads from here on."""
        if self._open is not None:
            self._open[2].this.disown()
        self.faiss.omp_set_num_threads(1)  # those of OpenMP aren't there, either

    def candidates(
        self, queries: Tensor, count: int, device: str | torch.device = "cpu", nprobe: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Images that may be among the `count` best, by faiss's score, best first.

        Shapes:
            queries: (Q, D) float32
            returns: scores (Q, C) float32, −inf where there is none; rows (Q, C) int64, −1 where there is none; C is
                `count`, and more for codes

        Raises:
            InputError: a file is broken or was cut short, or faiss can't search it.
        """
        count *= _OVERFETCH[self.settings.kind]
        nprobe = self.settings.nprobe(nprobe)
        vectors = np.ascontiguousarray(queries.cpu().numpy(), dtype=np.float32)
        scores = np.full((len(vectors), count), -np.inf, dtype=np.float32)
        rows = np.full((len(vectors), count), NO_IMAGE, dtype=np.int64)
        for number, name in enumerate(self.names):
            try:
                index = self._file(name, torch.device(device))
                if self.settings.kind in APPROXIMATE:
                    index.nprobe = nprobe
                found_scores, positions = index.search(vectors, count)
            except (RuntimeError, MemoryError) as error:  # a broken file may claim any amount
                reason = first_line(error)
                other = "" if torch.device(device).type == "cpu" else ", or search on the CPU"
                raise InputError(
                    f"{self.folder / name} can't be searched by faiss on {device}: {reason}. Build the index "
                    f"again{other}."
                ) from error
            start = number * self.settings.images_per_file
            if positions.max(initial=-1) >= self._present(number):
                raise self._broken(name, f"it finds image {positions.max()} of {self._present(number)}")
            before = start - int(np.searchsorted(self.absent, start))  # present images of the files before
            found_rows = np.where(positions < 0, NO_IMAGE, rows_of_positions(positions + before, self.absent))
            all_scores = np.concatenate([scores, np.where(positions < 0, -np.inf, found_scores)], axis=1)
            best = np.argsort(-all_scores, axis=1, kind="stable")[:, :count]
            scores = np.take_along_axis(all_scores, best, axis=1).astype(np.float32)
            rows = np.take_along_axis(np.concatenate([rows, found_rows], axis=1), best, axis=1)
        return torch.from_numpy(scores), torch.from_numpy(rows)

    def _file(self, name: str, device: torch.device) -> Any:
        """One file's index, on a GPU where faiss can use one; only the last file that was used is kept."""
        on_gpu = device.type == "cuda" and hasattr(self.faiss, "StandardGpuResources")
        if self._open is not None and self._open[:2] == (name, str(device)):
            if not on_gpu:  # its file is mapped into memory
                check_whole(self.folder / name, self._bytes)
            return self._open[2]
        self._open = None
        flag = "IO_FLAG_MMAP" if self.settings.kind in APPROXIMATE else "IO_FLAG_MMAP_IFC"
        path = str(self.folder / name)
        self._check_beginning(name)
        self._bytes = os.path.getsize(path)
        if on_gpu or not hasattr(self.faiss, flag):
            index = self.faiss.read_index(path)
        else:
            index = self.faiss.read_index(path, getattr(self.faiss, flag))
        self._check_index(name, index)
        if on_gpu:
            self._resources = self.faiss.StandardGpuResources()
            index = self.faiss.index_cpu_to_gpu(self._resources, device.index or 0, index)
        self._open = (name, str(device), index)
        return index

    def _present(self, number: int) -> int:
        """How many images are in a file: those of its part of the collection that aren't absent."""
        start = number * self.settings.images_per_file
        stop = min(start + self.settings.images_per_file, self.images)
        return stop - start - int(np.diff(np.searchsorted(self.absent, (start, stop)))[0])

    def _check_beginning(self, name: str) -> None:
        """Refuse a file that faiss shouldn't even open: a broken one may end the process.

        Every file of faiss begins with four letters for its kind, how many numbers a vector has, and how many vectors
        there are. Lists "on disk" lie in another file, whose name is written in this one: it could be any.
        """
        try:
            with open_file(self.folder / name) as file:
                begin = file.read(_BEGINNING.size)
                kind, size, count = _BEGINNING.unpack(begin) if len(begin) == _BEGINNING.size else (b"", 0, 0)
                number = self.names.index(name)
                if kind != _LETTERS[self.settings.kind] or (size, count) != (self.size, self._present(number)):
                    raise self._broken(name, f"it begins with {kind!r}, {count} vectors of {size} numbers")
                for place, expected in _told_of_sizes(self.settings, self.size, self._present(number)):
                    file.seek(place)
                    found = file.read(len(expected))
                    if found != expected:
                        raise self._broken(
                            name, f"at byte {place} it has {found.hex() or 'nothing'}, not {expected.hex()}"
                        )
                file.seek(_place_of_lists(self.settings, self.size))
                lists = file.read(_LISTS.size + 2 * _COUNT * self.settings.lists) if self.settings.lists else b""
        except OSError as error:
            raise self._broken(name, error.strerror or str(error)) from error
        if lists:
            self._check_lists(name, lists, self._present(number))

    def _check_lists(self, name: str, begin: bytes, present: int) -> None:
        """Refuse lists that lie elsewhere, or are others; their lengths are of each, or pairs of those with images."""
        if begin.startswith(_ON_DISK):
            raise self._broken(name, "its lists are on disk, in another file")
        whole = len(begin) >= _LISTS.size
        here, lists, size, kept, lengths = _LISTS.unpack_from(begin) if whole else (b"", 0, 0, b"", 0)
        most = {b"full": self.settings.lists, b"sprs": 2 * self.settings.lists}.get(kept, -1)
        sound = 0 <= lengths <= most and (kept == b"sprs" or lengths == most)
        vector = self.settings.code_bytes or 4 * self.size
        if here != _IN_FILE or (lists, size) != (self.settings.lists, vector) or not sound:
            raise self._broken(name, f"it has {here!r}, {lists} lists of {size} bytes a vector, {kept!r}, {lengths}")
        told = begin[_LISTS.size : _LISTS.size + _COUNT * lengths]
        numbers = np.frombuffer(told[: len(told) // _COUNT * _COUNT], np.int64).reshape(-1)
        images = numbers if kept == b"full" else numbers[1::2]
        if len(numbers) != lengths or (images < 0).any() or (images > present).any() or images.sum() != present:
            raise self._broken(name, f"its lists have {images.tolist()!r:.80} images, of {present}")

    def _check_index(self, name: str, index: Any) -> None:
        """Refuse an index that isn't what its settings say: other lists or codes."""
        wanted = {"ntotal": self._present(self.names.index(name)), "d": self.size}
        if self.settings.kind in APPROXIMATE:
            wanted |= {"nlist": self.settings.lists}
            wanted["code_size"] = self.settings.code_bytes or 4 * self.size
        for field, value in wanted.items():
            if getattr(index, field, None) != value:
                raise self._broken(name, f"it has {getattr(index, field, None)} as {field}, not {value}")

    def _broken(self, name: str, why: str) -> InputError:
        return InputError(
            f"{self.folder / name} should be the file of faiss that this index was built with, but isn't: {why}. Build "
            "the index again."
        )


def _place_of_lists(settings: FaissSettings, size: int) -> int:
    """Where in a file the letters stand that say how its lists are kept: behind their centres and the codes' values."""
    return _place_of_codes(settings, size) + (
        1 + 4 * _COUNT + _COUNT + _CODE_VALUES * 4 * size if settings.kind == "pq" else 0
    )


def _place_of_codes(settings: FaissSettings, size: int) -> int:
    centres = 2 * _COUNT + _HEADER + _COUNT + settings.lists * 4 * size  # how many, of how many to search; an index
    return _HEADER + centres + 1 + _COUNT  # no map from images to lists


def _told_of_sizes(settings: FaissSettings, size: int, present: int) -> Iterator[tuple[int, bytes]]:
    """What an index of these settings has at places before the vectors in its lists: faiss claims memory by it.

        header | lists, to search | header of the centres' index, their numbers | map
        | of pq: residuals, code size, D, M, bits, values

    Not told are numbers that faiss doesn't read, and how many lists are searched by default.
    """

    def numbers(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}q", *values)

    sound = struct.pack("<Bi", 1, 0)  # trained; its metric is the inner product
    yield _HEADER - len(sound), sound
    if settings.kind not in APPROXIMATE:
        yield _HEADER, numbers(present * size)
        return
    yield _HEADER, numbers(settings.lists)
    centres = _HEADER + 2 * _COUNT
    yield centres, _BEGINNING.pack(_LETTERS["flat"], size, settings.lists)
    yield centres + _HEADER - len(sound), sound + numbers(settings.lists * size)
    codes = _place_of_codes(settings, size)
    yield codes - 1 - _COUNT, bytes(1) + numbers(0)
    if settings.kind == "pq":
        yield codes, bytes([1]) + numbers(settings.code_bytes, size, settings.code_bytes, 8, _CODE_VALUES * size)
