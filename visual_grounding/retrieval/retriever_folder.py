"""A retriever's folder, of whatever kind: its names, its description, its identity, and how it is written.

`config.json` says what kind of retriever it is, how it was trained, and how the features that it learned from were
made. A folder is written as a whole (`storage/whole_folder.py`); where an export was killed between its two renames,
reading says so, and where the older retriever is.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ..errors import InputError
from ..storage.artefact import named_kind_of, sha256_of_file, write_json
from ..storage.outside import read_json
from ..storage.whole_folder import REPLACED, beside_of, write_folder
from ..text.words import DICTIONARY

RETRIEVER = "retriever"
VERSION = 1
CONFIG, WEIGHTS, TEXT_ENCODER = "config.json", "model.safetensors", "text_encoder"
FILES = (CONFIG, WEIGHTS, DICTIONARY, TEXT_ENCODER)


@dataclass(frozen=True)
class Description:
    """What `config.json` says.

    Attributes:
        kind: a name in the registry (`retriever.py`), or `package.module:Name`.
        architecture: what the kind needs to build itself.
        signature: how it was trained.
        image_features: signature of the features that it learned from, so that no others are taken for them; None where
            it learned from pictures, or from a checkpoint that didn't say.
    """

    kind: str
    architecture: dict[str, Any]
    signature: str
    image_features: str | None = None


def read_description(folder: Path) -> Description:
    """What a folder says of itself.

    Raises:
        InputError: there is no `config.json`, or it isn't a retriever's; or a killed export moved the folder aside.
    """
    older = beside_of(folder, REPLACED)
    if older.exists() and not folder.exists():
        raise InputError(
            f"{folder} should hold a {RETRIEVER}, but an export was killed while it replaced the older one, which is "
            f"{older} now. Take that back with: mv {older} {beside_of(folder, '')} "
            f"or export again with: visual-grounding export … --out {folder}"
        )
    try:
        said = read_json(folder / CONFIG)
        if (said["format"], said["version"]) != (RETRIEVER, VERSION):
            raise ValueError(f"it says {said['format']}, version {said['version']}")
        architecture = said["architecture"]
        if not isinstance(architecture, dict):
            raise ValueError(f"architecture should be names with values, but is {architecture!r:.80}")
        kind = said["kind"] if "kind" in said else _kind_before_kinds(architecture)
        features = said.get("image_features")
        for name, value in (("kind", kind), ("signature", said["signature"]), ("image_features", features)):
            if not isinstance(value, str) and not (value is None and name == "image_features"):
                raise ValueError(f"{name} should be text, but is {value!r:.80}")
        return Description(kind, architecture, said["signature"], features)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise unusable(folder, error) from error


def unusable(folder: Path, reason: object) -> InputError:
    """What to raise where a folder's description can't be used."""
    if other := named_kind_of(folder):
        return InputError(f"{folder} should hold a {RETRIEVER}, but is {other}. Is it the folder of another flag?")
    return InputError(
        f"{folder} should hold a {RETRIEVER}, version {VERSION}, but its {CONFIG} can't be used: {reason}. "
        "Make it with: visual-grounding export --checkpoint … --out DIR"
    )


def _kind_before_kinds(architecture: dict[str, Any]) -> str:
    """The kind of a retriever that was exported before its folder said it: there were two."""
    return "dual_encoder" if "dual_encoder" in architecture else "joint_embedding"


def sha256_of_files(folder: Path, names: Iterable[str] = FILES) -> str:
    """Digest of the names and contents of a retriever's files, those in its folders included."""
    digest = hashlib.sha256()
    found = [path for name in names for path in (folder / name, *(folder / name).rglob("*")) if path.is_file()]
    for path in sorted(found):
        named = f"{path.relative_to(folder).as_posix()}\0{sha256_of_file(path)}\n"
        digest.update(named.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def write_weights(folder: Path, state: Mapping[str, Tensor]) -> None:
    """Write `model.safetensors`; safetensors' own `save_file` would let only the owner read it."""
    (folder / WEIGHTS).write_bytes(save({name: weight.contiguous() for name, weight in state.items()}))


def write_retriever(
    folder: Path, description: Description, write_files: Callable[[Path], None], names: Sequence[str] = FILES
) -> None:
    """Write a retriever's folder, or put it in the place of an older one; what else lies there stays.

    Args:
        folder: its place.
        description: for `config.json`.
        write_files: writes everything else into the folder that it is given.
        names: the retriever's own files and folders.

    Raises:
        InputError: the folder holds something else, or can't be written.
    """

    def write(beside: Path) -> None:
        write_files(beside)
        write_json(beside / CONFIG, {"format": RETRIEVER, "version": VERSION, **asdict(description)})

    write_folder(folder, write, lambda place: _others(place, names))


def _others(folder: Path, names: Iterable[str]) -> set[str]:
    """What lies in a retriever's folder beside it.

    Raises:
        InputError: the folder holds other things, and no retriever.
    """
    found = {path.name for path in folder.iterdir()}
    others = found - set(names)
    try:
        said = read_json(folder / CONFIG)
        if isinstance(said, dict) and said.get("format") == RETRIEVER:
            return others
        others = found  # another program's
    except (OSError, ValueError):
        pass
    if others:
        raise InputError(
            f"{folder} should be a new folder or that of a retriever, but it holds {len(others)} other things, such as "
            f"{min(others)}. Choose another place.",
            "out",
        )
    return others
