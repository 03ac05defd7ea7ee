"""Features of another network fit wherever their size does. So what learned from some remembers how those were made.

The images may be others, the network and its choices may not (`storage/signature.py`).
"""

from collections.abc import Sequence

from ..errors import InputError
from ..storage.signature import made_alike, making
from .store import FeatureStore

_FLAGS = ("backbone", "pool", "grid")  # of `extract`, that a signature says as they are typed


def says_what_made(signed: str) -> bool:
    """Whether a signature tells features of one making from all others; those of earlier imports don't.

    >>> says_what_made("import|images:9|normalise:no|arrays:3fa1|version:0.2.0")
    True
    >>> says_what_made("import|images:9|normalise:no|version:0.1.0")
    False
    """
    stage, fields = _fields(signed)
    return stage != "import" or "arrays" in fields or "made_by" in fields


def check_making(store: FeatureStore, learned_from: str, learner: str, apart_from: Sequence[str] = ()) -> None:
    """Refuse features that were made otherwise than those that something learned from.

    Args:
        store: the features.
        learned_from: signature of those that it learned from.
        learner: what learned, as a message calls it.
        apart_from: fields of the signature that may differ.

    Raises:
        InputError: they were made otherwise.
    """
    if made_alike(learned_from, store.signature, apart_from):
        return
    stage, wanted = _fields(learned_from)
    found_stage, found = _fields(store.signature)
    names = [name for name in {**wanted, **found} if name not in apart_from and wanted.get(name) != found.get(name)]
    flags = [f"--{name} {wanted[name]}" for name in _FLAGS if wanted.get(name, "None") != "None"]
    differs = f"another {', '.join(names)}" if stage == found_stage else f"{found_stage} instead of {stage}"
    raise InputError(
        f"{store.folder} should hold features made as those that {learner} was trained on, but they were made "
        f"otherwise ({differs}): {store.signature} ≠ {learned_from}. Make them with: "
        + " ".join(["visual-grounding", stage, *flags, "… --out DIR"])
        + " (or take these as they are, unchecked).",
        "image_features_unchecked",
    )


def _fields(signed: str) -> tuple[str, dict[str, str]]:
    """The command that a signature is of, and what it says of how the features were made."""
    stage, *fields = making(signed).split("|")
    return stage, {name: value for name, _, value in (field.partition(":") for field in fields)}
