"""Sentences, their images and what became of them, side by side: one self-contained HTML page, and a PNG of it."""

import base64
import html
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from PIL import Image

from ..features.store import FeatureStore
from ..images.sources import ImageSource, UnreadableImage, read_image
from ..retrieval.image_ids import ImageIds
from ..storage.file_set import write_file_set

PAGE, PICTURE = "report.html", "report.png"
_LETTERS = 2000  # of a text that are shown
_SOURCE_WIDTH, _OUTPUT_WIDTH = 60, 58  # letters of a line beside the pictures of the PNG; the page wraps by itself
NOT_THERE = "not there"
_LONGEST, _PIXELS = 65_000, 2**27  # of the PNG: matplotlib's limit; half a gigabyte while it is drawn
THUMBNAIL = 112  # pixels a side, in the page and in the picture, unless said otherwise

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#1d2733;background:#f6f7f9;margin:0 auto;max-width:1180px;padding:24px}
h1{font-size:25px;margin:0 0 4px} h2{font-size:18px;margin:28px 0 8px} .note{color:#5b6775;margin:0 0 12px}
table{border-collapse:collapse;background:#fff;box-shadow:0 1px 3px #0002} th,td{padding:6px 14px;text-align:right}
th{background:#e9edf2;font-weight:600} th:first-child,td:first-child{text-align:left}
tr+tr td{border-top:1px solid #e3e7ec}
.row{background:#fff;box-shadow:0 1px 3px #0002;margin:10px 0;padding:12px 16px}
.row{display:flex;gap:18px;flex-wrap:wrap}
.text{flex:1 1 380px} .source{font-size:17px;font-weight:600} .images{display:flex;gap:6px;flex-wrap:wrap}
figure{margin:0;width:SIDEpx}
figure img{width:SIDEpx;height:SIDEpx;object-fit:cover;border-radius:4px;background:#e9edf2}
figcaption{font-size:11px;color:#5b6775;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
dl{margin:6px 0 0;display:grid;grid-template-columns:max-content 1fr;gap:1px 14px} dt{color:#5b6775} dd{margin:0}
.right{color:#11713d} .wrong{color:#b3261e} .none{color:#5b6775}
"""


@dataclass
class ReportImage:
    """One picture of a sentence. Where `image` is None, `why` says so: `NOT_THERE`, or what is wrong with the file.

    Attributes:
        size: width and height of the picture as it is; `image` may be smaller.
    """

    image: Image.Image | None
    key: str
    score: float | None = None
    why: str = ""
    size: tuple[int, int] = (0, 0)


@dataclass
class ReportRow:
    """One sentence: its text, its images, and named outputs, each right (True), wrong (False) or not judged (None)."""

    source: str
    images: list[ReportImage] = field(default_factory=list)
    outputs: list[tuple[str, str, bool | None]] = field(default_factory=list)


@dataclass
class ReportTable:
    """A table of results: its first row is the header, its first column names the systems."""

    cells: Sequence[Sequence[str]]
    note: str = ""


@dataclass
class ReportSection:
    """Rows under a heading."""

    title: str
    rows: list[ReportRow]
    note: str = ""


def images_of_sentences(
    ids: ImageIds,
    sentences: Sequence[int],
    store: FeatureStore,
    images: ImageSource,
    limit: int,
    draw: Callable[[int, Image.Image], Image.Image] | None = None,
    side: int = THUMBNAIL,
) -> list[list[ReportImage]]:
    """The pictures of each sentence, best first, at most `limit`; keys are looked up in one pass over the store's.

    Args:
        draw: what to make of a picture, by its row of the store.
        side: of each picture on the page.
    """
    tables = [
        [(int(row), float(score)) for row, score in zip(ids.ids[s], ids.scores[s]) if row >= 0] for s in sentences
    ]
    wanted = {row for table in tables for row, _ in table[:limit]}
    names = {row: key for row, key in enumerate(store.keys()) if row in wanted}
    shown = set(names.values())
    places = {key: place for place, key in enumerate(images.keys) if key in shown}
    pictures = {}
    for row, key in names.items():
        picture = pictures[row] = load_picture(images, key, places, side)
        if draw is not None and picture.image is not None:
            picture.image = draw(row, picture.image)
    return [[replace(pictures[row], score=score) for row, score in table[:limit]] for table in tables]


def load_picture(images: ImageSource, key: str, places: Mapping[str, int], side: int = THUMBNAIL) -> ReportImage:
    """One picture by its key, no larger than a page needs it: there may be thousands.

    Args:
        places: key -> row in `images`.
        side: of the picture on the page; it is kept in twice that, its long side in eight times.
    """
    if key not in places:
        return ReportImage(None, key, why=NOT_THERE)
    try:
        image = read_image(images, places[key])
        return ReportImage(_shrunk(image, 2 * side), key, size=image.size)
    except UnreadableImage as reason:
        return ReportImage(None, key, why=str(reason))


def _shrunk(image: Image.Image, side: int) -> Image.Image:
    """A picture whose short side has at most `side` pixels, and its long side four times as many."""
    scale = min(1.0, side / min(image.size), 4 * side / max(image.size))
    wide, high = (max(1, round(scale * length)) for length in image.size)
    return image if scale == 1 else image.resize((wide, high), Image.Resampling.BICUBIC, reducing_gap=2.0)


def write_report(
    out: Path,
    title: str,
    sections: Sequence[ReportSection],
    table: ReportTable | None = None,
    side: int = THUMBNAIL,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write `report.html`, which needs no other file, and `report.png`, which shows the same.

    Where there is a page, all files are of its run (`write_file_set`).

    Args:
        out: folder, made if missing.
        title: the heading.
        sections: what to show, in order.
        table: results above them.
        side: of each picture, in pixels.
        texts: more files that belong to the page, name -> content.

    Raises:
        InputError: another process writes this folder, or it can't be written.
    """
    sections = [replace(section, rows=[_readable(row) for row in section.rows]) for section in sections]
    contents = {PAGE: _page(title, sections, table, side), **(texts or {})}
    writers: dict[str, Callable[[Path], object]] = {
        name: partial(Path.write_text, data=content, encoding="utf-8") for name, content in contents.items()
    }
    writers[PICTURE] = lambda path: _draw(path, title, sections, table, side)
    write_file_set(out, writers, last=PAGE)


def _readable(row: ReportRow) -> ReportRow:
    """A sentence whose texts are as long as anybody reads: a line may be a whole book."""
    outputs = [(name, _shortened(text), right) for name, text, right in row.outputs]
    return replace(row, source=_shortened(row.source), outputs=outputs)


def _shortened(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]} … ({len(text)} letters)"


def _page(title: str, sections: Sequence[ReportSection], table: ReportTable | None, side: int) -> str:
    parts = [page_head(title, side)]
    if table is not None:
        parts.append(f"<p class=note>{html.escape(table.note)}</p><table>")
        for number, cells in enumerate(table.cells):
            tag = "th" if number == 0 else "td"
            parts.append("<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>")
        parts.append("</table>")
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2><p class=note>{html.escape(section.note)}</p>")
        parts += [_row(row, side) for row in section.rows]
    return "\n".join(parts) + "\n"


def page_head(title: str, side: int, style: str = "") -> str:
    """How a page begins: its style and its heading.

    Args:
        style: rules beside those of all pages.
    """
    style = _STYLE.replace("SIDE", str(side)) + style
    head = f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{style}</style>"
    return f"{head}\n<h1>{html.escape(title)}</h1>"


def _row(row: ReportRow, side: int) -> str:
    outputs = "".join(
        f"<dt>{html.escape(name)}</dt><dd class={_verdict(right)}>{html.escape(text)}{_mark(right)}</dd>"
        for name, text, right in row.outputs
    )
    figures = "".join(_figure(image, side) for image in row.images) or "<span class=none>no image</span>"
    source = f"<div class=source>{html.escape(row.source)}</div>"
    return f"<div class=row><div class=text>{source}<dl>{outputs}</dl></div><div class=images>{figures}</div></div>"


def _figure(shown: ReportImage, side: int) -> str:
    label = html.escape(shown.key if shown.score is None else f"{shown.score:.2f} {shown.key}")
    if shown.image is None:
        return f"<figure><img alt='{html.escape(shown.why)}'><figcaption title='{label}'>{label}</figcaption></figure>"
    picture = f"<img alt='' src='{embedded(shown.image, side)}'>"
    return f"<figure>{picture}<figcaption title='{label}'>{label}</figcaption></figure>"


def embedded(image: Image.Image, side: int) -> str:
    """A picture as part of a page, twice as many pixels as are shown."""
    packed = io.BytesIO()
    _thumbnail(image, side).save(packed, "JPEG", quality=88)
    return f"data:image/jpeg;base64,{base64.b64encode(packed.getvalue()).decode()}"


def _thumbnail(image: Image.Image, side: int) -> Image.Image:
    small = image.copy()
    small.thumbnail((2 * side, 2 * side))
    return small


def _verdict(right: bool | None) -> str:
    return {True: "right", False: "wrong", None: "none"}[right]


def _mark(right: bool | None) -> str:
    return {True: " ✓", False: " ✗", None: ""}[right]


def _output_lines(name: str, text: str, right: bool | None) -> list[str]:
    return textwrap.wrap(text + _mark(right), _OUTPUT_WIDTH) or [""]


def _draw(path: Path, title: str, sections: Sequence[ReportSection], table: ReportTable | None, pixels: int) -> None:
    """The page as a picture, drawn with matplotlib: no browser is needed, and every font has its letters."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = [row for section in sections for row in section.rows]
    across = max((len(row.images) for row in rows), default=0)
    text_width, line, dpi = 6.0, 0.22, 100  # inches, inches, pixels per inch
    side = pixels / dpi
    columns = max((len(cells) for cells in table.cells), default=0) if table is not None else 0
    width = max(text_width + across * (side + 0.08), 0.6 + 2.0 * columns) + 0.3
    table_height = line * (len(table.cells) + 2.5) if table is not None else 0
    sources = {id(row): textwrap.wrap(row.source, _SOURCE_WIDTH) or [""] for row in rows}
    outputs = {id(row): [_output_lines(*output) for output in row.outputs] for row in rows}

    def height_of(row: ReportRow) -> float:
        return max(side + 0.25, line * (len(sources[id(row)]) + sum(map(len, outputs[id(row)])) + 0.8))

    heights = [height_of(row) for row in rows]
    height = 0.7 + table_height + sum(heights) + 0.75 * len(sections)
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "text.parse_math": False}):
        fitting = min(dpi, _LONGEST / max(width, height), (_PIXELS / (width * height)) ** 0.5)
        figure = Figure(figsize=(width, height), dpi=fitting, facecolor="#f6f7f9")

        def write(x: float, top: float, text: str, **style: object) -> None:
            figure.text(x / width, 1 - top / height, text, va="top", **style)  # type: ignore[arg-type]

        write(0.2, 0.2, title, fontsize=15, fontweight="bold")
        top = 0.65
        if table is not None:
            write(0.2, top, table.note, fontsize=8, color="#5b6775")
            for number, cells in enumerate(table.cells):
                for column, cell in enumerate(cells):
                    weight = "bold" if number == 0 else "normal"
                    x = 0.2 if column == 0 else 1.6 + 2.0 * column
                    align = "left" if column == 0 else "right"
                    write(x, top + line * (number + 1.5), cell, fontsize=10, fontweight=weight, ha=align)
            top += table_height
        for section in sections:
            write(0.2, top + 0.1, section.title, fontsize=12, fontweight="bold")
            write(0.2, top + 0.38, section.note, fontsize=8, color="#5b6775")
            top += 0.75
            for row in section.rows:
                write(0.2, top, "\n".join(sources[id(row)]), fontsize=11, fontweight="bold", linespacing=1.35)
                below = top + line * (len(sources[id(row)]) + 0.4)
                for (name, _, right), lines in zip(row.outputs, outputs[id(row)]):
                    colour = {True: "#11713d", False: "#b3261e", None: "#1d2733"}[right]
                    write(0.2, below, name, fontsize=9, color="#5b6775")
                    write(1.7, below, "\n".join(lines), fontsize=9, color=colour, linespacing=1.55)
                    below += line * len(lines)
                for number, shown in enumerate(row.images):
                    left = text_width + number * (side + 0.08)
                    box = (left / width, 1 - (top + side) / height, side / width, side / height)
                    axes = figure.add_axes(box)
                    axes.set_axis_off()
                    if shown.image is not None:
                        axes.imshow(_thumbnail(shown.image, pixels), aspect="auto")
                    label = shown.key if shown.score is None else f"{shown.score:.2f} {shown.key}"
                    write(left, top + side + 0.03, label[: pixels // 6], fontsize=6, color="#5b6775")
                top += height_of(row)
        figure.savefig(path, format="png")
