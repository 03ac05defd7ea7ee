"""Annotated regions as they were published: Visual Genome's objects, Flickr30k Entities' boxes, sizes of pictures.

They become lines as those of a table of regions (`region_table.py`), in the order of the file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ...errors import InputError, in_short
from ...storage.lines import iterate_lines
from ...storage.outside import check_characters, open_text, read_bytes
from ..box_lines import KEYS, SIZE, BoxLine, check_box, parse_finite
from .image_keys import KeyFormat

_PIECE = 1 << 20  # characters that are read at a time
_BETWEEN = re.compile(r"[\s,]*")
_PHRASE = re.compile(r"\[/EN#(\d+)((?:/\w+)+) ")
_NOT_SEEN = "notvisual"


def stream_json(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSON list, one by one: Visual Genome's take gigabytes as a whole.

    Raises:
        InputError: it can't be read, or is no list of objects.
    """
    decoder, text, piece, number, begun = json.JSONDecoder(), "", _PIECE, 0, False
    wrong = f"{path} should be a JSON list of objects, but"
    try:
        with open_text(path, "utf-8-sig") as file:
            while more := file.read(piece):
                text, place, before = text + more, 0, number
                if not begun and (text := text.lstrip()):
                    if text[0] != "[":
                        raise InputError(f"{wrong} begins with {text[:20]!r}.")
                    text, begun = text[1:], True
                while True:
                    place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]  # it matches nothing, too
                    if text.startswith("]", place):
                        return
                    start = place
                    try:
                        found, place = decoder.raw_decode(text, start)
                    except (ValueError, RecursionError):
                        break  # not all of it was read
                    if not isinstance(found, dict):
                        raise InputError(f"{wrong} number {number} is {str(found)[:20]!r}.")
                    check_characters(found, text[start:place])
                    number += 1
                    yield found
                text = text[place:]
                piece = _PIECE if number > before else 2 * piece
    except UnicodeDecodeError as error:
        raise InputError(f"{path} should be UTF-8, but isn't: {in_short(error)}.") from error
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{wrong} number {number} can't be read: {in_short(error)}.") from error
    raise InputError(f"{wrong} is broken or cut off after {number} of them.")


def genome_lines(path: Path, key_format: KeyFormat) -> Iterator[BoxLine]:
    """Regions of Visual Genome's `objects.json`: x, y, w, h in pixels; the first name is the label.

    Raises:
        InputError: as `stream_json`; or an image without id or objects, or a box that is none.
    """
    for number, image in enumerate(stream_json(path)):
        place = f"{path}, image {number}"
        identity, regions = image.get("image_id", image.get("id")), image.get("objects")
        if identity is None or not isinstance(regions, list):
            raise InputError(f"{place} should have image_id and objects, but has {', '.join(map(str, image))}.")
        for count, region in enumerate(regions):
            where = f"{place} (id {identity}), object {count}"
            if not isinstance(region, dict):
                raise InputError(f"{where} should have x, y, w, h and names, but is {region!r}.")
            x, y, width, height = (parse_finite(region.get(name), name, where) for name in "xywh")
            names = region.get("names") or [region.get("name")]
            label = str(names[0] or "").strip() if isinstance(names, list) else str(names)
            box = check_box((x, y, x + width, y + height), where)
            yield BoxLine(where, {"image": key_format.key(identity), "label": label}, box)


def entities_lines(folder: Path) -> Iterator[BoxLine]:
    """Boxes of Flickr30k Entities: `Annotations/*.xml`, labelled by the type of their entity in `Sentences/*.txt`.

    Types are a closed set: people, clothing, bodyparts, animals, vehicles, instruments, scene, other. Where sentences
    call an entity differently, the first counts. An object without a box (a scene, or not seen) is none.

    Raises:
        InputError: there are no annotations, or one is no such XML.
    """
    files = sorted((folder / "Annotations").glob("*.xml"))
    if not files:
        raise InputError(f"{folder} should hold Annotations/*.xml of Flickr30k Entities, but has none.")
    for path in files:
        try:
            root = ElementTree.fromstring(read_bytes(path))
        except (ElementTree.ParseError, OSError, ValueError, LookupError) as error:
            raise InputError(f"{path} should be XML, but can't be read: {in_short(error)}.") from error
        key, size = root.findtext("filename"), {name: root.findtext(f"size/{name}") for name in SIZE}
        if not key or None in size.values():
            raise InputError(f"{path} should have the picture's filename and size, but hasn't.")
        types = _types_of(folder / "Sentences" / f"{path.stem}.txt")
        for number, region in enumerate(root.iter("object")):
            corners = [region.findtext(f"bndbox/{name}") for name in ("xmin", "ymin", "xmax", "ymax")]
            if None in corners:
                continue
            where = f"{path}, object {number}"
            box = check_box([parse_finite(text, "a corner", where) for text in corners], where)
            names = (types.get(name.text or "", "") for name in region.iter("name"))
            cells = {"image": key, "label": next((name for name in names if name), "")}
            yield BoxLine(where, cells | {name: str(text) for name, text in size.items()}, box)


def _types_of(path: Path) -> dict[str, str]:
    """Entity -> its first type; nothing where there are no sentences."""
    types: dict[str, str] = {}
    if path.is_file():
        for line in iterate_lines(path):
            for entity, said in _PHRASE.findall(line):
                types.setdefault(entity, said.split("/")[1].replace(_NOT_SEEN, ""))
    return types


def read_sizes(path: Path, keys: Sequence[str], key_format: KeyFormat) -> np.ndarray:
    """Widths and heights of pictures.

    They stand in a table with the columns image (or key), width, height; or in JSON, as Visual Genome's
    `image_data.json`, with image_id, width, height.

    Shapes:
        returns: (I, 2), 0 for a picture that isn't there

    Raises:
        InputError: it is broken, has other columns, a size that is none, or none of the pictures.
    """
    row_of, sizes = {key: row for row, key in enumerate(keys)}, np.zeros((len(keys), 2))
    found = 0
    for where, key, sides in _sized(path, key_format):
        width, height = (parse_finite(side, name, where) for side, name in zip(sides, SIZE))
        if width <= 0 or height <= 0:
            raise InputError(f"{where}: width and height should be above 0, but are {width:g} and {height:g}.")
        if key in row_of:
            sizes[row_of[key]], found = (width, height), found + 1
    if not found:
        raise InputError(
            f"{path} should have sizes of the collection's images, but has none of these {len(keys)}, such as "
            f"{keys[0]!r}.",
            "box_sizes",
            "key_format",
        )
    return sizes


def _sized(path: Path, key_format: KeyFormat) -> Iterator[tuple[str, str, Sequence[Any]]]:
    if path.suffix == ".json":
        for number, image in enumerate(stream_json(path)):
            identity = image.get("image_id", image.get("id"))
            yield f"{path}, image {number}", key_format.key(identity), [image.get(name) for name in SIZE]
        return
    lines = iterate_lines(path)
    names = next(lines, "").split("\t")
    key = next((name for name in KEYS if name in names), None)
    if key is None or not set(SIZE) <= set(names):
        raise InputError(f"{path} should begin with the columns image, width, height, but with {', '.join(names)}.")
    for number, line in enumerate(lines, 2):
        found = line.split("\t")
        if len(found) != len(names):
            raise InputError(f"{path}:{number} should have {len(names)} columns, as its header, but has {len(found)}.")
        cells = dict(zip(names, found))
        yield f"{path}:{number}", cells[key], [cells[name] for name in SIZE]
