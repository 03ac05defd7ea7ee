"""Average the weights of several checkpoints of one training run: usually better than the last one alone.

    visual-grounding average --checkpoint-dir checkpoints/en-de --last 10 --out averaged/en-de
    fairseq-generate … --path averaged/en-de/averaged.pt

`DIR/averaged.pt` loads like any checkpoint; `DIR/meta.json` says what it was made from.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from ..errors import InputError

_LAST = 10
_AVERAGED = "averaged.pt"
_FORMAT = "averaged-checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the checkpoints are and where their mean goes."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--inputs", nargs="+", metavar="CKPT", help="the checkpoints to average")
    source.add_argument("--checkpoint-dir", metavar="DIR", help="average the last epochs' checkpoint<epoch>.pt in DIR")
    parser.add_argument("--last", type=int, metavar="N", help=f"with --checkpoint-dir: how many (default: {_LAST})")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for averaged.pt and meta.json")


def run(args: argparse.Namespace) -> None:
    """Write the mean under its name only when it is whole, and beside what says of which checkpoints it is.

    Raises:
        InputError: checkpoints that don't belong together, or an output that can't be written.
    """
    import torch

    from ..storage.artefact import FORMAT_VERSION, META, json_text, sha256_of_file
    from ..storage.checkpoints import average_checkpoints, last_epoch_checkpoints
    from ..storage.file_set import check_place, write_file_set
    from ..storage.signature import signature

    if args.inputs and args.last is not None:
        raise InputError("all checkpoints that are named are averaged, so --last says nothing.", "inputs")
    last = _LAST if args.last is None else args.last
    paths = [Path(path) for path in args.inputs] if args.inputs else last_epoch_checkpoints(args.checkpoint_dir, last)
    out = Path(args.out)
    check_place(out, [META], _AVERAGED, META, _FORMAT)
    state = average_checkpoints(paths)
    meta = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "signature": signature("average", checkpoints=len(paths)),
        "inputs": {str(path): sha256_of_file(path) for path in paths},
    }
    files: dict[str, Callable[[Path], object]] = {
        META: lambda path: path.write_text(json_text(meta), encoding="utf-8"),
        _AVERAGED: lambda path: torch.save(state, path),
    }
    try:
        write_file_set(out, files, last=_AVERAGED)
    except RuntimeError as error:  # how torch reports a full disk
        raise InputError(f"{out} can't be written: {error}.", "out") from error
    print(f"{out / _AVERAGED}: mean of {len(paths)} checkpoints, {', '.join(path.name for path in paths)}")
