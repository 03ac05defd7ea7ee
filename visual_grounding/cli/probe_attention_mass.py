"""How much of each decoder layer's cross-attention falls on the regions of the images, and on which of them.

    visual-grounding probe attention-mass --checkpoint checkpoint_best.pt --image-order congruent shuffled \\
        --sentence 12 --images photos/ --out probes/attention

For models whose decoder attends to text and regions. The references are read, not translated anew; weights are the mean
of the heads, and each target token counts alike, the end of a sentence among them. Beside the share stands what even
attention over all words and regions would give. DIR/results.json has all numbers, DIR/attention-mass.png draws them.

With --sentence N (counted from 0) and --images, DIR/sentence-N.png shows that sentence's photo once for each token of
its reference, the boxes shaded by the token's attention (the mean of the layers; the JSON has each layer's).
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, warn
from .image_source import add_image_source, check_pictures, open_image_source
from .probing import PACKAGES, add_model, add_running, changes_of, check_running, shown, write_results
from .scoring import aligned, meta_of

if TYPE_CHECKING:
    from PIL import Image

    from ..probes.attention_mass import Looked, Shares

PLOT = "attention-mass.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, its images, and a sentence to look at."""
    add_model(parser)
    parser.add_argument("--sentence", type=int, metavar="N", help="draw where this one's tokens look, from 0")
    add_image_source(parser, "with --sentence, the pictures that the store was extracted from: ", required=False)
    add_running(parser)


def run(args: argparse.Namespace) -> None:
    """Watch the decoder, print a table, write the same as JSON, draw it.

    Raises:
        InputError: a model that attends to no regions, or files that don't belong together.
    """
    from ..analysis.attention_pictures import draw_shares
    from ..analysis.intervals import Interval
    from ..devices import choose_device
    from ..probes.attention_mass import check_attends, look, shares_of
    from ..probes.trained import load_split, load_trained
    from ..progress import progress_bar
    from ..shares import warn_of
    from ..storage.file_set import numbered

    check_running(args)
    if (args.sentence is None) != (args.images is None):
        raise InputError("a sentence is drawn with its pictures, so both should be named.", "sentence", "images")
    if "blank" in args.image_order:
        raise InputError("without images no attention can fall on them, so blank tells nothing.", "image_order")
    device = choose_device(args.device)
    trained = load_trained(args.checkpoint, "grounded_translation", device, changes_of(args), args.user_dir)
    check_attends(trained)
    looked = (
        look(trained, load_split(trained, args.split, args.image_order[0]), args.sentence, args.split)
        if args.images
        else None
    )
    picture = _picture(args, looked) if looked is not None else None
    found: dict[str, Shares] = {}
    for order in args.image_order:
        dataset = load_split(trained, args.split, order)
        with progress_bar(len(dataset), 0, "sentences") as bar:
            found[order] = shares_of(trained, dataset, args.split, args.batch_size, bar.update)
    seeing = [row for row in range(len(dataset)) if all(shares.visible[row][1] for shares in found.values())]
    if not seeing:
        raise InputError(f"no sentence of {args.split} has a region to look at.", "image_ids", "split")
    for warning in warn_of(len(dataset) - len(seeing), len(dataset), "have no region, and are left out."):
        warn(warning)
    report = {
        "probe": "attention-mass",
        "split": args.split,
        "sentences": len(dataset),
        "n": len(seeing),
        **_numbers(args, found, seeing),
        "interval": f"95 %, bootstrap over sentences, {args.bootstrap_samples} resamplings, seed {args.seed}",
        "sentence": None if looked is None else _described(args.sentence, looked),
        "meta": meta_of(args, (args.checkpoint,), PACKAGES),
    }
    shares = {run["images"]: [Interval(**layer) for layer in run["layers"]] for run in report["runs"]}
    even = {run["images"]: run["even"] for run in report["runs"]}
    title = f"{args.split}, {len(seeing)} sentences, {report['tokens']} tokens"
    others: dict[str, Callable[[Path], object]] = {PLOT: lambda path: draw_shares(path, shares, even, title)}
    if looked is not None and picture is not None:
        others[f"sentence-{args.sentence}.png"] = _drawing(looked, picture)
    write_results(args.out, report, others, numbered("sentence-{}.png"))
    print("\n".join(_table(report)))


def _picture(args: argparse.Namespace, looked: "Looked") -> "tuple[int, Image.Image]":
    """The first of the sentence's images that can be shown, and its place among them.

    Raises:
        InputError: none can.
    """
    from ..analysis.attention_pictures import SIDE
    from ..analysis.report import load_picture

    images = open_image_source(args)
    keys = {key for key in looked.keys if key}
    places = {key: place for place, key in enumerate(images.keys) if key in keys}
    found = {place: load_picture(images, key, places, SIDE) for place, key in enumerate(looked.keys) if key}
    check_pictures(found.values(), images, args)
    return next((place, shown.image) for place, shown in found.items() if shown.image is not None)


def _drawing(looked: "Looked", picture: "tuple[int, Image.Image]") -> "Callable[[Path], object]":
    from ..analysis.attention_pictures import draw_tokens

    place, image = picture
    weights = (looked.on_regions[..., None] * looked.on_boxes[:, :, place]).mean(axis=0)  # (U, R)
    title = f"{looked.keys[place]}: attention on each box, mean of {len(looked.on_boxes)} layers"
    return lambda path: draw_tokens(path, image, looked.boxes[place], weights, looked.tokens, title)


def _numbers(args: argparse.Namespace, found: "Mapping[str, Shares]", seeing: Sequence[int]) -> dict[str, Any]:
    """Every layer's share with its interval, and the first order against the others on the same draws."""
    from ..analysis.attention_mass import compare_mass, mean_mass
    from ..analysis.intervals import Interval

    options = {"samples": args.bootstrap_samples, "seed": args.seed}
    shares = {order: [each.on_regions[row] for row in seeing] for order, each in found.items()}
    runs, tokens = [], 0
    for order, each in found.items():
        mass = mean_mass(shares[order], [each.visible[row] for row in seeing], **options)
        layers = [Interval(*map(float, layer))._asdict() for layer in zip(mass.mean, mass.low, mass.high)]
        runs.append({"images": order, "layers": layers, "even": mass.even})
        tokens = mass.tokens
    first, *others = found
    comparisons = [
        {
            "first": first,
            "second": other,
            "layers": [layer._asdict() for layer in compare_mass(shares[first], shares[other], **options)],
        }
        for other in others
    ]
    return {"tokens": tokens, "runs": runs, "comparisons": comparisons}


def _described(sentence: int, looked: "Looked") -> dict[str, Any]:
    return {
        "sentence": sentence,
        "tokens": looked.tokens,
        "images": looked.keys,
        "boxes": looked.boxes.tolist(),
        "on_regions": looked.on_regions.tolist(),
        "on_boxes": looked.on_boxes.tolist(),
    }


def _table(report: dict[str, Any]) -> list[str]:
    """The report for a reader: one row a layer, one column an order of images."""
    from ..analysis.intervals import Interval

    runs = report["runs"]
    lines = [
        f"{report['n']} of {report['sentences']} sentences of {report['split']}, {report['tokens']} target tokens: "
        "share of the decoder's cross-attention on regions",
        "",
    ]
    rows = [["layer", *(run["images"] for run in runs)]]
    for number in range(len(runs[0]["layers"])):
        rows.append([str(number + 1), *(shown(Interval(**run["layers"][number]), 3) for run in runs)])
    rows.append(["even attention", *(f"{run['even']:.3f}" for run in runs)])
    lines += aligned(rows)
    for pair in report["comparisons"]:
        lines += ["", f"{pair['first']} - {pair['second']}"]
        lines += aligned(
            [
                ["layer", "difference", "p (one-sided)"],
                *(
                    [str(number), shown(Interval(*list(layer.values())[:3]), 3, sign=True), f"{layer['p_value']:.4f}"]
                    for number, layer in enumerate(pair["layers"], 1)
                ),
            ]
        )
    return [*lines, "", f"intervals: {report['interval']}"]
