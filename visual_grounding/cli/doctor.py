"""Check a whole set-up, and say in plain words what is wrong and what to do.

  visual-grounding doctor
  visual-grounding doctor --images photos/ --image-features features/photos --retriever retriever --index index \\
      --text train.en --image-ids ids/train
  visual-grounding doctor --images photos/ --next extract --out features/photos

Packages and devices are always checked; of the files, those that are named, each by itself and whether they belong
together. With --next also the disk that this step needs at --out. Nothing is written. Every problem is told, not only
the first. Exit status: 0 where nothing is wrong (notes are no fault), 2 where something is.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..flags import see
from .features_unchecked import add_features_unchecked
from .image_source import add_image_source, named_sources, open_image_source

if TYPE_CHECKING:
    from ..diagnosis.findings import Finding

# What decides the size of a step's output, and what its command line needs.
NEEDED = {"extract": ("images",), "index": ("retriever", "image_features"), "retrieve": ("retriever", "index", "text")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    add_image_source(parser, "a sample is decoded: ", required=False)
    parser.add_argument("--image-features", type=Path, metavar="DIR", help="feature store")
    parser.add_argument("--image-ids", type=Path, metavar="DIR", help="image ids of --text, or a folder of splits")
    parser.add_argument("--text", type=Path, metavar="FILE", help="sentences, one a line")
    parser.add_argument("--retriever", type=Path, metavar="DIR", help="made by `export`")
    parser.add_argument("--index", type=Path, metavar="DIR", help="made by `index`")
    add_features_unchecked(parser)
    parser.add_argument(
        "--whole-store",
        action="store_true",
        help="scan every number of the features for NaN, however long it takes (default: up to 512 MiB of them)",
    )
    step = parser.add_argument_group("is there room for the next step?")
    step.add_argument("--next", choices=NEEDED, help="the step that comes next")
    step.add_argument("--out", type=Path, metavar="DIR", help="where it will write")
    step.add_argument(
        "--values-per-image",
        type=int,
        default=2048,
        metavar="N",
        help="extract: regions x numbers: 2048 for a pooled ResNet, 100352 for its 7x7 grid (default: %(default)s)",
    )
    step.add_argument(
        "-n", "--images-per-sentence", type=int, default=8, metavar="N", help="retrieve: (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Print every finding; 2 where something is wrong."""
    from ..diagnosis.findings import Level

    _check_flags(args)
    problems = notes = 0
    for finding in diagnose(args):
        problems += finding.level is Level.WRONG
        notes += finding.level is Level.NOTE
        flags = [_flag(choice) for choice in finding.choices if choice in vars(args)]
        say(f"{finding.level.value:5}  {finding.text}{see(flags)}")
        if finding.remedy:
            say(f"       do: {finding.remedy}")
    if problems:
        say(f"{problems} thing{'s' if problems > 1 else ''} to mend.")
        return 2
    verdict = f"Nothing is wrong; {notes} note{'s' if notes > 1 else ''}." if notes else "All is well."
    say(f"{verdict}{f' Next: {next_command(args)}' if args.next else ''}")
    return 0


def say(line: str) -> None:
    """Print; where nobody reads any more, as after `| head`, the rest goes nowhere; the exit status still counts."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_flags(args: argparse.Namespace) -> None:
    if args.next is None and args.out is not None:
        raise InputError(f"--out {args.out} is where the next step will write: name that step with --next.")
    if args.next is None:
        return
    missing = [_flag(name) for name in (*NEEDED[args.next], "out") if getattr(args, name) is None]
    if missing:
        raise InputError(f"--next {args.next} also needs {' and '.join(missing)}.")
    for name in ("values_per_image", "images_per_sentence"):
        if getattr(args, name) < 1:
            raise InputError(f"{_flag(name)} should be at least 1, but is {getattr(args, name)}.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def diagnose(args: argparse.Namespace) -> Iterator["Finding"]:
    """All findings, one check after the other; none stops the next."""
    from ..diagnosis import environment
    from ..diagnosis.findings import findings_of

    needs_faiss = args.index if args.index is not None and any(args.index.glob("*.faiss")) else None
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("packages", environment.check_packages),
        ("torch", environment.check_devices),
        ("torchvision", environment.check_torchvision),
        ("faiss", partial(environment.check_faiss, needs_faiss)),
    ]
    for subject, check in checks:
        yield from findings_of(check, subject)
    yield from findings_of(partial(_diagnose_files, args), "files")


def _diagnose_files(args: argparse.Namespace) -> Iterator["Finding"]:
    from ..diagnosis import artefacts
    from ..diagnosis.disk import bytes_needed, check_disk
    from ..diagnosis.findings import findings_of

    parts, unchecked = artefacts.Parts(), args.image_features_unchecked
    # In this order, because all else is compared with the store and the text, and ids and pictures with the index.
    checks: list[tuple[list[Path], Callable[[], Iterable[Finding]]]] = [
        (_given(args.image_features), lambda: artefacts.check_store(args.image_features, parts, args.whole_store)),
        (_given(args.text), lambda: artefacts.check_text(args.text, parts)),
        (_given(args.retriever), lambda: artefacts.check_retriever(args.retriever, parts, unchecked)),
        (_given(args.index), lambda: artefacts.check_index(args.index, parts, args.whole_store)),
        (_given(args.image_ids), lambda: artefacts.check_image_ids(args.image_ids, args.text, parts)),
        (
            [Path(source) for source in args.images or []],
            lambda: artefacts.check_images(named_sources(args), open_image_source(args), parts),
        ),
    ]
    for places, check in checks:
        for place in places:
            yield from findings_of(partial(artefacts.check_unfinished, place), str(place))
        if places and all(map(artefacts.exists, places)):
            yield from findings_of(check, " and ".join(map(str, places)))
    if args.next is not None:
        needed = bytes_needed(args.next, parts, args.values_per_image, args.images_per_sentence)
        yield from findings_of(partial(check_disk, args.next, args.out, needed), str(args.out))


def _given(place: Path | None) -> list[Path]:
    return [] if place is None else [place]


def next_command(args: argparse.Namespace) -> str:
    """The command line of the next step, with what was named."""
    more = {
        "extract": ["--backbone", "resnet152"],
        "index": [],
        "retrieve": ["--method", "dense", "-n", str(args.images_per_sentence)],
    }[args.next]
    named = []
    for name in (*NEEDED[args.next], "image_column", "key_column"):
        given = getattr(args, name)
        if name in NEEDED[args.next] or (given is not None and args.next == "extract"):
            values = given if isinstance(given, list) else [given]
            named += [word for value in values for word in (_flag(name), str(value))]
    return shlex.join(["visual-grounding", args.next, *more, *named, "--out", str(args.out)])
