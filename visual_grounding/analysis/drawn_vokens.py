"""Sentences with the image of each piece under it (VOK Fig. 4): a PNG each, and a page of all."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from ..images.sources import ImageSource
from ..storage.file_set import numbered, write_file_set
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import SPECIAL_SYMBOLS
from ..vokenization.vokens import NO_VOKEN, Vokens
from .drawn_regions import letters
from .report import PAGE, ReportImage, embedded, load_picture, page_head

SIDE = 96  # pixels of a picture
WIDTH = 1200  # of a PNG: longer sentences wrap
SPACE, GOES_ON = "␣", "·"  # a piece of white space; one that is the rest of a letter
_GAP, _LINE, _LETTERS, _SMALL = 8, 20, 14, 11  # pixels
_LONGEST = 24  # letters of a piece that are shown
MOST_PIECES = 512  # of a line
_MOST_BYTES = 4  # of a letter
_UNKNOWN_LETTER = "\ufffd"  # what bytes decode to that are no whole letter
_GREY, _PALE = "#5b6775", "#e9edf2"
_STYLE = """
.row{display:block} .pieces{display:flex;gap:6px;flex-wrap:wrap;margin-top:8px}
figure{width:auto;min-width:SIDEpx;text-align:center} figure b{display:block;font-weight:600;white-space:pre}
"""


@dataclass
class Piece:
    """A piece as it is shown; no image where it has no voken."""

    text: str
    image: ReportImage | None


@dataclass
class VokenLine:
    """A line of the text, as its pieces decode, and its pieces."""

    number: int
    text: str
    pieces: list[Piece]
    more: int = 0  # pieces that aren't shown


def lines_with_vokens(vokens: Vokens, numbers: Sequence[int], images: ImageSource) -> list[VokenLine]:
    """What is to be shown of some lines; an image is read once.

    Args:
        numbers: of the lines, from 0.

    Raises:
        InputError: the artefact is broken.
    """
    bridge, wanted, last = vokens.bridge(), set(numbers), max(numbers, default=-1)
    lines: dict[int, str] = {}
    for number, line in enumerate(vokens.token_lines()):
        if number in wanted:
            lines[number] = line
        if number == last:
            break
    pictures = _pictures(vokens, numbers, images)
    shown = []
    for number in numbers:
        symbols, own = lines[number].split(), _shown(vokens, number)
        start = int(vokens.offsets[number])
        scores = [None] * len(own) if vokens.scores is None else vokens.scores[start : start + len(own)].tolist()
        found = [
            replace(pictures[voken], score=score) if voken != NO_VOKEN else None for voken, score in zip(own, scores)
        ]
        more, symbols = len(symbols) - len(own), symbols[: len(own)]
        text = bridge.text_of(" ".join(symbols)).strip() + (" …" if more else "")
        shown.append(VokenLine(number, text, list(map(Piece, readable(bridge, symbols), found)), more))
    return shown


def _shown(vokens: Vokens, line: int) -> list[int]:
    return vokens.of_line(line)[:MOST_PIECES].tolist()


def _pictures(vokens: Vokens, numbers: Sequence[int], images: ImageSource) -> dict[int, ReportImage]:
    """The picture of each voken of some lines."""
    wanted = {voken for number in numbers for voken in _shown(vokens, number)}
    if not wanted <= {NO_VOKEN, *range(vokens.size)}:
        vokens.check_range()  # says which
    keys = {voken: key for voken, key in enumerate(vokens.keys()) if voken in wanted}
    shown = set(keys.values())
    places: Mapping[str, int] = {key: place for place, key in enumerate(images.keys) if key in shown}
    return {voken: load_picture(images, key, places, SIDE) for voken, key in keys.items()}


def readable(bridge: TokenizerBridge, symbols: Sequence[str]) -> list[str]:
    """What the pieces of a line stand for. Bytes are shown as the letter that they make, at its first piece.

    Args:
        symbols: the pieces as `tokens.txt` spells them.
    """
    texts: list[str] = []
    while len(texts) < len(symbols):
        at, text, many = len(texts), "", 0
        for many in range(1, min(_MOST_BYTES, len(symbols) - at) + 1):
            text = bridge.text_of(" ".join(symbols[at : at + many]))
            if _UNKNOWN_LETTER not in text:
                break
        else:  # the text itself has what stands for an unknown letter, or a part of one
            text, many = bridge.text_of(symbols[at]), 1
        if symbols[at] in SPECIAL_SYMBOLS and not text:  # it is left out of decoded text
            text = symbols[at]
        texts += [text.strip() or SPACE, *[GOES_ON] * (many - 1)]
    return texts


def draw_line(line: VokenLine, width: int = WIDTH) -> Image.Image:
    """A sentence as a picture: each piece above its image, the score below it where there is one."""
    font, small = letters(_LETTERS), letters(_SMALL)
    texts = [_short(piece.text) for piece in line.pieces] or ["(no pieces)"]
    texts += [f"and {line.more} more"] if line.more else []
    wide = [max(SIDE, round(font.getlength(text))) for text in texts]
    places = _wrapped(wide, width)
    scored = any(piece.image is not None and piece.image.score is not None for piece in line.pieces)
    high = _LINE + (SIDE if line.pieces else 0) + (_LINE if scored else 0) + _GAP
    right = max(left + size for (left, _), size in zip(places, wide))
    drawn = Image.new("RGB", (right + _GAP, (places[-1][1] + 1) * high + _GAP), "white")
    pen = ImageDraw.Draw(drawn)
    for text, size, (left, row) in zip(texts, wide, places):
        middle, top = left + size / 2, _GAP + row * high
        pen.text((middle, top), text, font=font, fill="black", anchor="ma")
    for piece, size, (left, row) in zip(line.pieces, wide, places):
        left, top = left + (size - SIDE) // 2, _GAP + row * high + _LINE
        if piece.image is None:
            pen.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), outline=_PALE)
            continue
        if piece.image.image is not None:
            drawn.paste(ImageOps.fit(piece.image.image.convert("RGB"), (SIDE, SIDE)), (left, top))
        else:
            pen.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), fill=_PALE)
            pen.text((left + SIDE / 2, top + SIDE / 2), "?", font=font, fill=_GREY, anchor="mm")
        if piece.image.score is not None:
            below = (left + SIDE / 2, top + SIDE + 3)
            pen.text(below, f"{piece.image.score:.2f}", font=small, fill=_GREY, anchor="ma")
    return drawn


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _wrapped(sizes: Sequence[int], width: int) -> list[tuple[int, int]]:
    """Left edge and row of boxes in lines of a width; a box that is wider has a line of its own.

    >>> _wrapped([40, 40, 40], 110)
    [(8, 0), (56, 0), (8, 1)]
    """
    places: list[tuple[int, int]] = []
    left, row = _GAP, 0
    for size in sizes:
        if left + size + _GAP > width and left > _GAP:
            left, row = _GAP, row + 1
        places.append((left, row))
        left += size + _GAP
    return places


def write_voken_report(out: Path, title: str, lines: Sequence[VokenLine], note: str) -> list[str]:
    """Write `report.html`, which needs no other file, and a PNG of each line; returns the names of these.

    Args:
        note: below the heading.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """
    pictures: dict[str, Callable[[Path], object]] = {f"line-{line.number}.png": partial(_save, line) for line in lines}
    page = _page(title, lines, note)
    writes: Callable[[Path], object] = partial(Path.write_text, data=page, encoding="utf-8")
    write_file_set(out, {**pictures, PAGE: writes}, last=PAGE, instead_of=numbered("line-{}.png"))
    return list(pictures)


def _save(line: VokenLine, path: Path) -> None:
    draw_line(line).save(path, format="PNG")


def _page(title: str, lines: Sequence[VokenLine], note: str) -> str:
    sources: dict[str, str] = {}  # key -> the picture, embedded
    parts = [page_head(title, SIDE, _STYLE.replace("SIDE", str(SIDE))), f"<p class=note>{html.escape(note)}</p>"]
    for line in lines:
        text = html.escape(line.text) or "<span class=none>no pieces</span>"
        cells = "".join(_cell(piece, sources) for piece in line.pieces)
        cells += f"<span class=none>and {line.more} more</span>" if line.more else ""
        parts.append(
            f"<div class=row><span class=none>line {line.number}</span><div class=source>{text}</div>"
            f"<div class=pieces>{cells}</div></div>"
        )
    return "\n".join(parts) + "\n"


def _cell(piece: Piece, sources: dict[str, str]) -> str:
    text = f"<b>{html.escape(piece.text)}</b>"
    shown = piece.image
    if shown is None:
        return f"<figure>{text}</figure>"
    key = html.escape(shown.key)
    if shown.image is not None and shown.key not in sources:
        sources[shown.key] = embedded(shown.image, SIDE // 2)
    source = f" src='{sources[shown.key]}'" if shown.image is not None else ""
    below = "" if shown.score is None else f"<figcaption>{shown.score:.2f}</figcaption>"
    return f"<figure title='{key}'>{text}<img alt='{html.escape(shown.why)}'{source}>{below}</figure>"
