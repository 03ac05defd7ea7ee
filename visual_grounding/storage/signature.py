"""One line that says how an output was made, as sacreBLEU does for scores; and what else tells artefacts apart.

An artefact has three identities, each for one question:

    keys_sha256  which images, in which order?  Image ids and an index only fit a store with the same keys.
    signature    how were the features made?  By which network, with which choices: a model takes features of any
                 photos, as long as they were made alike (`made_alike`), and refuses others that only fit by size.
    digest       by these very choices, from these very inputs?  An index of a store is stale when this differs.

The *plan* in `meta.json` is what the digest is of: every choice and input that decides the bytes. A rerun with the same
plan continues or confirms an output, one with another plan is refused (`shards.py`). Sources have a digest, too: enough
of what lies in them to notice that it changed.
"""

from collections.abc import Sequence

from .._version import __version__

# What a signature says beside how the features were made: how many there are, and who wrote the line.
_NOT_MAKING = ("images", "version")
# What numbers in a store's columns mean. A store may have such columns or not, whatever made its features.
_OF_COLUMNS = ("label_names", "attribute_names")


def signature(stage: str, **choices: object) -> str:
    """Join what decides the result, in the order given.

    >>> signature("retrieve", method="dense", n=8).rsplit("|", 1)[0]
    'retrieve|method:dense|n:8'
    """
    fields = [f"{name}:{str(value).replace('|', '/')}" for name, value in choices.items()]
    return "|".join([stage, *fields, f"version:{__version__}"])


def making(signed: str, apart_from: Sequence[str] = ()) -> str:
    """How features were made, whatever images they are of: a signature without their number and the package's version.

    Args:
        signed: the signature.
        apart_from: more fields to leave out.

    >>> making("extract|images:80|backbone:resnet50|pool:mean|version:0.1.0")
    'extract|backbone:resnet50|pool:mean'
    """
    return "|".join(field for field in signed.split("|") if field.partition(":")[0] not in (*_NOT_MAKING, *apart_from))


def made_alike(signed: str, other: str, apart_from: Sequence[str] = ()) -> bool:
    """Whether two signatures say that features were made in the same way; the images may be others.

    Where both have labels, the same numbers must mean the same; one of them may have none.

    Args:
        signed, other: the signatures.
        apart_from: fields that may differ, too.

    >>> made_alike("extract|images:80|pool:mean|version:0.1.0", "extract|images:9|pool:mean|version:0.2.0")
    True
    >>> made_alike("extract|images:80|pool:mean|version:0.1.0", "extract|images:80|pool:max|version:0.1.0")
    False
    >>> made_alike("import|images:8|made_by:net|version:1", "import|images:8|made_by:net|label_names:3f|version:1")
    True
    """
    apart_from = [*apart_from, *(name for name in _OF_COLUMNS if not (f"|{name}:" in signed and f"|{name}:" in other))]
    return making(signed, apart_from) == making(other, apart_from)
