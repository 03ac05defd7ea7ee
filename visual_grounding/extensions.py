"""Parts from outside this package: a finder, a backbone or a retriever of somebody else's, by name.

A name is `package.module:Name` (`module:Name` where the file lies in no package), or one that an installed package
offers as an entry point:

    [project.entry-points."visual_grounding.finders"]
    nearest_colour = "my_package.colours:ColourFinder"
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

from .errors import InputError

Part = TypeVar("Part")

GROUPS = ("finders", "backbones", "retrievers")  # of entry points, behind `visual_grounding.`


def offered(group: str) -> list[str]:
    """Names that installed packages offer in a group, sorted."""
    return sorted({entry.name for entry in entry_points(group=f"visual_grounding.{group}")})


def is_extension(name: str, group: str) -> bool:
    """Whether a name is meant for `load_extension`: `package.module:Name`, or offered by an installed package.

    A backbone's module has to be in a package: what a bare word before a colon names is a library, as in `timm:NAME`.
    """
    module, colon, attribute = name.partition(":")
    spelled = bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))
    return (spelled and ("." in module or group != "backbones")) or name in offered(group)


def load_extension(name: str, group: str, wanted: str) -> Any:
    """What a name stands for.

    Args:
        name: `package.module:Name`, or an entry point's name.
        group: one of `GROUPS`.
        wanted: what it should be, for the message, such as "--method".

    Raises:
        InputError: no such entry point, or the module can't be imported, or doesn't have the name.
    """
    for entry in entry_points(group=f"visual_grounding.{group}"):
        if entry.name == name:
            name = entry.value
            break
    module, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(offered(group)) or "none"
        raise InputError(f"{wanted} should be package.module:Name or an installed name ({known}), but is {name!r}.")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{wanted} {name} can't be loaded: {error}. Its package should be installed here, or its folder be in "
            "PYTHONPATH."
        ) from error


def class_named(
    name: str, known: Mapping[str, str], group: str, base: type[Part], wanted: str, *choices: str
) -> type[Part]:
    """The class that a name stands for: one of this package's, or one from outside.

    Args:
        known: this package's names -> `package.module:Name`; each is imported when it is asked for.
        group: one of `GROUPS`.
        base: what the class has to be derived from.
        wanted: what the name is, for the message, such as "the method".
        choices: the arguments that the message is about.

    Raises:
        InputError: the name is nothing of that, can't be loaded, or stands for something else.
    """
    if name not in known and not is_extension(name, group):
        names = ", ".join([*known, *offered(group)])
        raise InputError(
            f"{wanted} should be one of {names}, or package.module:Name of a {base.__name__.lower()}, but is "
            f"{name!r:.80}.",
            *choices,
        )
    found = load_extension(known.get(name, name), group, wanted)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            f"{wanted} {name} should be a class derived from {base.__module__}.{base.__name__}, but is {found!r:.80}.",
            *choices,
        )
    return found
