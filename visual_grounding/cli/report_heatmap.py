"""Show where in its image a text is: a heat map from grid features and a retriever's projection.

  visual-grounding report heatmap --retriever retriever --image-features features/grid --images photos/ \\
      --pair beach.jpg "a red ball" --pair beach.jpg "a dog" --out heat

Which texts, over which images: --pair and --pairs name both; --text with --image-ids takes each sentence's best image;
--boxes takes phrases whose place is known and plays the pointing game: does the map's peak lie in a box of the phrase?
Beside it stands how often the middle of the picture does. DIR/report.html and DIR/report.png show a sample,
DIR/heatmap.json has the maps shown, and each phrase's outcome.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, warn
from .features_unchecked import add_features_unchecked, warn_of_unknown_making
from .image_source import add_image_source, check_pictures, check_shown, open_image_source

if TYPE_CHECKING:
    from ..analysis.pointing_game import Pointing
    from ..analysis.report import ReportRow
    from ..analysis.text_over_image import HeatMap, Query
    from ..features.framing import Framing
    from ..features.store import FeatureStore
    from ..images.sources import ImageSource
    from ..retrieval.retriever import Retriever

_SIDE = 224  # pixels of a picture on the page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--retriever", type=Path, required=True, metavar="DIR", help="made by `export`")
    parser.add_argument(
        "--image-features",
        type=Path,
        required=True,
        metavar="DIR",
        help="store of grid features, n x n regions an image",
    )
    add_features_unchecked(parser)
    add_image_source(parser, "the pictures: ")
    parser.add_argument(
        "--framing",
        metavar="whole|RESIZE/CROP",
        help="what the network saw of a picture: all of it, squeezed into a square, or the middle after resizing the "
        "short side, such as 256/224 (default: as the store says, where `extract` made it)",
    )
    which = parser.add_argument_group("which texts, over which images")
    which.add_argument("--pair", nargs=2, action="append", default=[], metavar=("KEY", "TEXT"), help="repeatable")
    which.add_argument("--pairs", type=Path, metavar="TSV", help="key<TAB>text lines")
    which.add_argument("--text", type=Path, metavar="FILE", help="one text a line; needs --image-ids")
    which.add_argument("--image-ids", type=Path, metavar="DIR", help="images found for --text, by `retrieve`")
    which.add_argument(
        "--boxes",
        type=Path,
        metavar="TSV",
        help="table with columns image, x1, y1, x2, y2, phrase; in pixels of the pictures in --images, or of the "
        "size in columns width and height",
    )
    parser.add_argument(
        "--channels",
        type=int,
        metavar="K",
        help="entries of the text's vector that count (default: 7.5 %%, the largest)",
    )
    parser.add_argument("--sample", type=int, default=12, metavar="N", help="show N drawn at random (default: 12)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the page, the PNG and the JSON"
    )


def run(args: argparse.Namespace) -> None:
    """Make the maps, draw a sample, and count hits where boxes are known.

    Raises:
        InputError: choices that don't belong together, what can't be read, or an output that can't be written.
    """
    from ..analysis.heat_map import default_channels
    from ..analysis.report import ReportSection, write_report
    from ..analysis.text_over_image import framing_of, grid_side
    from ..devices import choose_device
    from ..features.store import FeatureStore
    from ..retrieval.retriever import Retriever
    from ..storage.artefact import json_text
    from ..storage.signature import signature

    _check_choices(args)
    store = FeatureStore(args.image_features)
    side = grid_side(store)
    framing = framing_of(store, args.framing)
    retriever = Retriever.load(args.retriever, str(choose_device(args.device)))
    retriever.check_cells(store, args.image_features_unchecked)
    warn_of_unknown_making(retriever, args.image_features_unchecked)
    channels = default_channels(retriever.joint_size) if args.channels is None else args.channels
    if not 1 <= channels <= retriever.joint_size:
        raise InputError(f"--channels should be 1 to {retriever.joint_size}, the joint size, but is {channels}.")
    images = open_image_source(args)
    signed = signature(
        "heatmap",
        retriever=retriever.sha256[:8],
        features=store.digest[:8],
        grid=side,
        channels=channels,
        framing="whole" if not framing.resize else f"{framing.resize}/{framing.crop}",
    )
    result: dict[str, Any] = {"signature": signed}
    if args.boxes:
        rows, note = _play(args, retriever, store, images, framing, channels, result)
    else:
        rows, note = _show_queries(args, retriever, store, images, framing, channels, result)
    check_pictures((row.images[0] for row in rows), images, args, only_shown=args.boxes is None)
    sections, texts = [ReportSection(note, rows, signed)], {"heatmap.json": json_text(result)}
    write_report(args.out, "Where in the picture?", sections, side=_SIDE, texts=texts)
    print(f"{args.out / 'report.html'}, report.png and heatmap.json: {note}")


def _check_choices(args: argparse.Namespace) -> None:
    if (args.text is None) != (args.image_ids is None):
        raise InputError("--text and --image-ids belong together: the ids say which image is best for each line.")
    given = [bool(args.pair or args.pairs), args.text is not None, args.boxes is not None]
    if sum(given) != 1:
        raise InputError(
            "Exactly one of these should say what to show: --pair or --pairs, --text with --image-ids, --boxes; but "
            f"{sum(given)} of them are given."
        )
    if args.sample < 1:
        raise InputError(f"--sample should be 1 or more, but is {args.sample}.")
    check_shown(args.sample, "texts", "sample")


def _show_queries(
    args: argparse.Namespace,
    retriever: "Retriever",
    store: "FeatureStore",
    images: "ImageSource",
    framing: "Framing",
    channels: int,
    result: dict[str, Any],
) -> tuple[list["ReportRow"], str]:
    from ..analysis.text_over_image import heat_maps

    shown, total = _best_images(args, store) if args.text else _named_pairs(args)
    rows = store.rows_of(query.key for query in shown)
    unknown = [query.key for query in shown if query.key not in rows]
    if unknown:
        raise InputError(
            f"{store.folder} should hold the images that are asked for, but has no {unknown[0]}; {len(unknown)} such."
        )
    maps = {heat.query: heat for heat in heat_maps(retriever, store, shown, rows, channels)}
    without = len(shown) - len([query for query in shown if query in maps])
    if without:
        warn(f"{without} of {len(shown)} have no map: no word in the text, or an absent image")
    found = [maps[query] for query in shown if query in maps]
    places = _places(images, [query.key for query in shown])
    drawn = [_row(heat, images, places, framing, None) for heat in found]
    result["maps"] = [_as_json(heat) for heat in found]
    return drawn, f"{len(found)} of {total} texts over their images"


def _named_pairs(args: argparse.Namespace) -> tuple[list["Query"], int]:
    """A sample of the pairs that were named, and how many there are."""
    from ..analysis.text_over_image import Query
    from ..text.captions import read_captions

    named = [Query(key, text) for key, text in [*args.pair, *(read_captions(args.pairs) if args.pairs else [])]]
    return [named[place] for place in _sample(len(named), args)], len(named)


def _best_images(args: argparse.Namespace, store: "FeatureStore") -> tuple[list["Query"], int]:
    """A sample of lines, each with its best image, and how many lines there are; lines without one are left out."""
    import numpy as np

    from ..analysis.text_over_image import Query
    from ..retrieval.image_ids import NO_IMAGE, ImageIds
    from ..storage.lines import read_lines

    ids = ImageIds(args.image_ids)
    ids.check_against(store)
    lines = read_lines(args.text)
    ids.check_lines(len(lines), str(args.text))
    if doubt := ids.doubt(lines, args.text):
        warn(doubt)
    with_image = np.flatnonzero((ids.ids[:, :1] != NO_IMAGE).any(axis=1))  # best first
    if not len(with_image):
        raise InputError(f"{args.image_ids} should have an image for a line of {args.text}, but has none.")
    if len(with_image) < len(lines):
        warn(f"{len(lines) - len(with_image)} of {len(lines)} lines have no image")
    chosen = [int(with_image[place]) for place in _sample(len(with_image), args)]
    best = {line: int(ids.ids[line, 0]) for line in chosen}
    wanted = set(best.values())
    keys = {row: key for row, key in enumerate(store.keys()) if row in wanted}
    return [Query(keys[best[line]], lines[line]) for line in chosen], len(lines)


def _play(
    args: argparse.Namespace,
    retriever: "Retriever",
    store: "FeatureStore",
    images: "ImageSource",
    framing: "Framing",
    channels: int,
    result: dict[str, Any],
) -> tuple[list["ReportRow"], str]:
    """The pointing game over all boxes; what is left out is counted."""
    from ..analysis.heat_map import peak
    from ..analysis.pointing_game import point, read_boxes, score_pointing
    from ..analysis.text_over_image import Query, heat_maps

    phrases = {Query(phrase.key, phrase.text): phrase for phrase in read_boxes(args.boxes)}
    rows = store.rows_of(query.key for query in phrases)
    places = _places(images, [query.key for query in phrases])
    left_out: Counter[str] = Counter()
    sizes: dict[Query, tuple[int, int]] = {}  # of the phrases that can be asked
    opened: dict[str, tuple[int, int] | None] = {}
    for query, phrase in phrases.items():
        if query.key not in rows:
            left_out["image isn't in --image-features"] += 1
            continue
        if phrase.size is None and query.key not in opened:
            opened[query.key] = _size(images, places.get(query.key))
        size = phrase.size or opened[query.key]
        if size is None:
            left_out["picture isn't in --images, or is unreadable"] += 1
        else:
            sizes[query] = size
    outcomes: dict[Query, tuple[HeatMap, Pointing]] = {}
    for heat in heat_maps(retriever, store, list(sizes), rows, channels):
        pointing = point(phrases[heat.query], peak(heat.grid), sizes[heat.query], framing)
        outcomes[heat.query] = heat, pointing
    left_out["image has no features, or phrase no word"] += len(sizes) - len(outcomes)
    if not outcomes:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in left_out.items() if count)
        raise InputError(f"{args.boxes} has {len(phrases)} phrases, but none can be asked ({reasons}).")
    results = [pointing for _, pointing in outcomes.values()]
    score = score_pointing(results)
    lines = [
        f"pointing game: {score.hits} of {score.phrases} phrases hit ({score.rate:.1%}); the middle of the picture "
        f"hits {score.centre_hits} ({score.centre_rate:.1%}).",
        f"{len(phrases)} phrases with {sum(len(phrase.boxes) for phrase in phrases.values())} boxes in {args.boxes}; "
        f"{len(phrases) - score.phrases} left out.",
        *(f"  {count} left out: {reason}" for reason, count in left_out.items() if count),
    ]
    if score.outside:
        lines.append(f"{score.outside} phrases lie wholly outside of what the network saw; they count as missed.")
    print("\n".join(lines))
    result["pointing_game"] = {
        **score._asdict(),
        "rate": score.rate,
        "centre_rate": score.centre_rate,
        "phrases_in_file": len(phrases),
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "outcomes": [
            {"key": r.phrase.key, "phrase": r.phrase.text, "point": r.point, "hit": r.hit, "centre_hit": r.centre_hit}
            for r in results
        ],
    }
    asked = list(outcomes)
    shown = [asked[place] for place in _sample(len(asked), args)]
    result["maps"] = [_as_json(outcomes[query][0]) for query in shown]
    drawn = []
    for query in shown:
        heat, pointing = outcomes[query]
        drawn.append(_row(heat, images, places, framing, (pointing, sizes[query])))
    return drawn, f"{len(shown)} of {score.phrases} phrases; {score.rate:.1%} hit, the middle {score.centre_rate:.1%}"


def _sample(total: int, args: argparse.Namespace) -> list[int]:
    """--sample places among `total`, in their order."""
    import numpy as np

    chosen = np.random.default_rng(args.seed).choice(total, size=min(args.sample, total), replace=False)
    return sorted(chosen.tolist())


def _places(images: "ImageSource", wanted: list[str]) -> dict[str, int]:
    names = set(wanted)
    return {key: place for place, key in enumerate(images.keys) if key in names}


def _size(images: "ImageSource", place: int | None) -> tuple[int, int] | None:
    from ..images.sources import UnreadableImage, read_image

    try:
        return None if place is None else read_image(images, place).size
    except UnreadableImage:
        return None


def _row(
    heat: "HeatMap",
    images: "ImageSource",
    places: dict[str, int],
    framing: "Framing",
    outcome: "tuple[Pointing, tuple[int, int]] | None",
) -> "ReportRow":
    """The picture, and the picture under its map; with the boxes and the peak where they are known."""
    from ..analysis.overlay import draw_overlay, letterbox
    from ..analysis.report import ReportImage, ReportRow, load_picture
    from ..features.framing import Box

    key, text = heat.query
    outputs: list[tuple[str, str, bool | None]] = []
    boxes: list[Box] = []
    peak = None
    if outcome is not None:
        pointing, (width, height) = outcome[0], outcome[1]
        boxes = [Box(b.x0 / width, b.y0 / height, b.x1 / width, b.y1 / height) for b in pointing.phrase.boxes]
        peak = pointing.point[0] / width, pointing.point[1] / height
        outputs = [
            ("peak of the map", "in a box" if pointing.hit else "beside the boxes", pointing.hit),
            ("middle of the picture", "in a box" if pointing.centre_hit else "beside the boxes", pointing.centre_hit),
        ]
    found = load_picture(images, key, places, _SIDE)
    if found.image is None:
        return ReportRow(text, [found], outputs)
    drawn = draw_overlay(found.image, heat.grid, framing.window(*found.size), boxes, peak)
    return ReportRow(text, [ReportImage(letterbox(found.image), key), ReportImage(letterbox(drawn), text)], outputs)


def _as_json(heat: "HeatMap") -> dict[str, Any]:
    from ..analysis.heat_map import peak

    return {"key": heat.query.key, "text": heat.query.text, "peak": peak(heat.grid), "map": heat.grid.tolist()}
