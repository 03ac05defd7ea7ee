"""Vokens of one tokenizer's pieces -> vokens of another's, from the text that they are of; continues where it stopped.

  visual-grounding revokenize --vokens vokens/bert --text wiki.txt --tokenizer roberta-base --out vokens/roberta

A piece takes the voken of the piece whose characters overlap its own the most (intersection by union; the first of
several), and -1 where there is none. The first tokenizer and its pieces lie in --vokens; --text is the raw text that
`vokenize` was given. OUT is vokens again, with scores where there were some.
"""

import argparse
from pathlib import Path

from ..errors import warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--vokens", type=Path, required=True, metavar="DIR", help="vokens, from `vokenize`")
    parser.add_argument(
        "--text",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="the text that they are of, the files of `vokenize` in their order; also .gz and .zst",
    )
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="NAME|FOLDER",
        help="the other tokenizer: its name on the hub, or a folder",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="vokens to write")


def run(args: argparse.Namespace) -> None:
    """Write them, and say what is in them.

    Raises:
        InputError: as `revokenize`.
    """
    from ..shares import share, warn_of
    from ..vokenization.revokenization import Revokenizer, revokenize
    from ..vokenization.vokens import Vokens

    source = Vokens(args.vokens)
    revokenizer = Revokenizer(source, args.tokenizer)
    if revokenizer.other.sha256 == source.tokenizer_sha256:
        warn(
            f"{args.tokenizer} is the tokenizer that {args.vokens} has vokens for already. Pieces that share "
            "a character will have those of the first of them, and white space will have none."
        )
    made = revokenize(revokenizer, args.text, args.out)
    print(f"{args.out}: {made.lines} lines, {source.tokens} pieces -> {made.tokens} pieces\n{made.signature}")
    counts, pieces = made.counts, made.tokens
    print(f"{share(counts['unmatched'], pieces, 'pieces')} overlap none, as white space does, and have no voken.")
    for warning in warn_of(counts["ignored"], pieces, "overlap one that has no voken, and have none.", "pieces"):
        warn(warning)
    print(f"Training data of them:\n  {made.binarise}")
