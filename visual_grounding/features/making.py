"""Features of another network fit wherever their size does. So what learned from some remembers how those were made.

The images may be others, the network and its choices may not (`storage/signature.py`).
"""

import shlex
from collections.abc import Sequence

from ..errors import InputError
from ..storage.signature import made_alike, making
from .store import FeatureStore

_FLAGS = (
    "backbone",
    "detector",
    "region_source",
    "pool",
    "grid",
    "regions",
    "min_score",
    "nms_iou",
    "normalise",
    "made_by",
)  # that a signature says as they are typed


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
    differs = f"another {', '.join(names)}" if stage == found_stage else f"{found_stage} instead of {stage}"
    raise InputError(
        f"{store.folder} should hold features made as those that {learner} was trained on, but they were made "
        f"otherwise ({differs}): {store.signature} ≠ {learned_from}. {_remedy(stage, wanted, found_stage, names)} (or "
        "take these as they are, unchecked).",
        "image_features_unchecked",
    )


def _remedy(stage: str, wanted: dict[str, str], found_stage: str, differs: Sequence[str]) -> str:
    """How to come to features that are taken.

    Args:
        stage: that those which it learned from were made by, as the next.
        wanted: what their signature says.
        found_stage: that these were made by.
        differs: names of what signatures differ in.
    """
    said = {name: wanted[name] for name in _FLAGS if wanted.get(name, "None") != "None"}
    flags = [f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in said.items()]
    if wanted.get("nms_across_classes") == "True":
        flags.append("--nms-across-classes")
    command = " ".join(["visual-grounding", stage, *flags])
    if stage == found_stage == "import" and "made_by" not in wanted and {"arrays", "made_by"} & {*differs}:
        return (
            "An import that doesn't say what made its arrays is of a making of its own. If the same network made both, "
            f"import both with: {command} --made-by TEXT … --out DIR, with the same text, and train again"
        )
    return f"Make them with: {command} … --out DIR"


def _fields(signed: str) -> tuple[str, dict[str, str]]:
    """The command that a signature is of, and what it says of how the features were made."""
    stage, *fields = making(signed).split("|")
    return stage, {name: value for name, _, value in (field.partition(":") for field in fields)}
