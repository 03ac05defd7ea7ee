"""Average the weights of several checkpoints of one training run: usually better than the last one alone.

    visual-grounding average --checkpoint-dir checkpoints/en-de --last 10 --out averaged/en-de
    fairseq-generate … --path averaged/en-de/averaged.pt

`DIR/averaged.pt` loads like any checkpoint; `DIR/meta.json` says what it was made from.
"""

import argparse
from pathlib import Path

from ..errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the checkpoints are and where their mean goes."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--inputs", nargs="+", metavar="CKPT", help="the checkpoints to average")
    source.add_argument("--checkpoint-dir", metavar="DIR", help="average the last epochs' checkpoint<epoch>.pt in DIR")
    parser.add_argument(
        "--last", type=int, default=10, metavar="N", help="with --checkpoint-dir: how many (default: 10)"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for averaged.pt and meta.json")


def run(args: argparse.Namespace) -> None:
    """Write the mean under its name only when it is whole.

    Raises:
        InputError: checkpoints that don't belong together, or an output that can't be written.
    """
    import torch

    from ..storage.artefact import FORMAT_VERSION, META, sha256_of_file, write_json
    from ..storage.checkpoints import average_checkpoints, last_epoch_checkpoints
    from ..storage.signature import signature

    paths = (
        [Path(path) for path in args.inputs] if args.inputs else last_epoch_checkpoints(args.checkpoint_dir, args.last)
    )
    state = average_checkpoints(paths)
    out = Path(args.out)
    averaged = out / "averaged.pt"
    temporary = out / "averaged.pt.tmp"
    meta = {
        "format": "averaged-checkpoint",
        "version": FORMAT_VERSION,
        "signature": signature("average", checkpoints=len(paths)),
        "inputs": {str(path): sha256_of_file(path) for path in paths},
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        torch.save(state, temporary)
        temporary.replace(averaged)
        write_json(out / META, meta)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        if temporary.is_file():
            temporary.unlink()
        raise InputError(f"--out {out} can't be written: {getattr(error, 'strerror', None) or error}.") from error
    print(f"{averaged}: mean of {len(paths)} checkpoints, {', '.join(path.name for path in paths)}")
