"""Sentences -> image ids: which images go with each line of a text.

  visual-grounding retrieve --method dense --retriever retriever --index index --text train.en --out ids/train
  visual-grounding retrieve --method keyword --captions captions.tsv --image-features features/f30k \\
      --text train.en --out ids/train
  visual-grounding retrieve --method scene --captions captions.tsv --word-vectors wiki.bin \\
      --image-features features/f30k --text train.en --out ids/train
  visual-grounding retrieve --method object --nouns nouns.tsv --word-vectors wiki.bin \\
      --image-features features/f30k --text train.en --out ids/train
  visual-grounding retrieve --method paired --image-features features/f30k --keys train.keys --out ids/train

dense: the nearest images in a retriever's space, best first, as exactly as the index allows. keyword: the images whose
captions share most of the sentence's topic words (Zhang et al. 2020); needs no retriever. scene: those with the nearest
captions, as bags of word vectors; object: images of the nouns that stand for the sentence (both GS §2.4). paired: the
image that the corpus itself has for each sentence. package.module:Name: a finder of your own. An empty line gets no
image. Make one table a split; training reads them with --image-ids ids.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, warn
from ..flags import FlagParser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb, whatever the method."""
    parser.add_argument(
        "--method",
        required=True,
        metavar="METHOD",
        help="how images are found: dense, keyword, scene, object, paired, or package.module:Name",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="table of image ids to write")
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="one sentence a line; paired: its length is checked, and training compares it with its own",
    )
    parser.add_argument("--keys", type=Path, metavar="FILE", help="paired: one image key a line, empty for none")
    parser.add_argument(
        "--exclude-paired",
        type=Path,
        metavar="FILE",
        help="all but paired: one image key a line, which that sentence must not get",
    )
    group = parser.add_argument_group(
        "words hidden", "find images for the text without the words that a mask touches; training uses the same mask"
    )
    group.add_argument("--mask-prob", type=float, metavar="P", help="hide each piece with this probability")
    group.add_argument("--mask-tokenizer", metavar="NAME", help="whose pieces: that of the model which will learn")
    group.add_argument("--mask-seed", type=int, metavar="N", help="(default: 1)")
    group.add_argument(
        "--mask-max-pieces",
        type=int,
        metavar="N",
        help="pieces that the model will read of a line, its --max-pieces; the rest isn't searched by (default: 64)",
    )
    parser.add_argument("--shard-size", type=int, help="sentences between two save points (default: 8192; paired: all)")


def add_chosen_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Flags of the method that is chosen, and where none is, all methods' for the help.

    Raises:
        InputError: there is no such method.
    """
    from ..retrieval.finder import METHODS, find_class

    choice = FlagParser(add_help=False)
    choice.add_argument("--method", nargs="?")
    method = choice.parse_known_args(words)[0].method
    if method is None:
        sections = [FlagParser(usage=argparse.SUPPRESS, add_help=False) for _ in METHODS]
        for name, section in zip(METHODS, sections):
            find_class(name).add_arguments(section.add_argument_group(f"--method {name}"))
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = "\n".join(section.format_help() for section in sections)
        return
    group = parser.add_argument_group(f"--method {method}")
    find_class(method).add_arguments(group)
    needed = [action for action in group._group_actions if action.required]
    for action in needed:
        action.required = False  # `run` names all that are missing, in one line
    parser.set_defaults(needed={action.dest: action.option_strings[-1] for action in needed})
    for other in METHODS:
        _add_unread_arguments(parser, other)


def _add_unread_arguments(parser: argparse.ArgumentParser, method: str) -> None:
    """Take another method's flags, too, with a warning: a script may give the same ones to several methods."""
    from ..retrieval.finder import find_class

    others = FlagParser(add_help=False)
    find_class(method).add_arguments(others)
    for action in others._actions:
        names = [name for name in action.option_strings if name not in parser._option_string_actions]
        if names:
            parser.add_argument(*names, nargs=action.nargs, action=_Unread, help=argparse.SUPPRESS)


class _Unread(argparse.Action):
    """A flag that the chosen method doesn't have."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        _warn([f"{option_string} is of another method, so it isn't read."])


def run(args: argparse.Namespace) -> None:
    """Retrieve, and say once what is noteworthy.

    Raises:
        InputError: a file that the method needs isn't given or sound, or what is given doesn't belong together.
    """
    from ..retrieval.finder import find_class, write_image_ids
    from ..retrieval.image_ids import ImageIds
    from ..shares import percent, warn_of
    from ..storage.lines import read_lines

    chosen = find_class(args.method)
    paired = chosen.reads == "image_keys"
    given = args.keys if paired else args.text
    needed = {**args.needed, **({"keys": "--keys"} if paired else {"text": "--text"})}
    missing = [flag for name, flag in needed.items() if getattr(args, name) is None]
    if missing:
        raise InputError(f"--method {args.method} also needs {' and '.join(missing)}.")
    _check_mask(args, paired)
    unread = {"--keys": args.keys is not None and not paired, "--exclude-paired": args.exclude_paired is not None}
    unread["--exclude-paired"] &= not chosen.excludes
    _warn(f"{flag} is of another method, so it isn't read." for flag in unread if unread[flag])
    finder = chosen.from_arguments(args)
    lines = read_lines(given)
    text = read_lines(args.text) if paired and args.text is not None else None
    exclude = None if args.exclude_paired is None or not chosen.excludes else read_lines(args.exclude_paired)
    masked = None
    if args.mask_prob is not None:
        from ..retrieval.masked_queries import MAX_PIECES, mask_queries
        from ..text.tokenizer_bridge import TokenizerBridge

        seed = 1 if args.mask_seed is None else args.mask_seed
        most = MAX_PIECES if args.mask_max_pieces is None else args.mask_max_pieces
        masked = mask_queries(TokenizerBridge(args.mask_tokenizer), lines, args.mask_prob, seed, most)
        lines, text = masked.queries, lines
    counts = write_image_ids(finder, lines, args.out, exclude, args.shard_size, text, masked)
    hidden = 0
    if masked is not None and text is not None:
        hidden = sum(bool(whole.strip()) and not left.strip() for whole, left in zip(text, lines))
        hidden = min(hidden, counts["empty"])  # a finder may have something for them
    _warn(finder.warnings({**counts, "empty": counts["empty"] - hidden}, len(lines)))
    _warn(warn_of(hidden, len(lines), "have no word that the mask leaves; they have no image."))
    unknown = counts.get("unknown_excluded", 0)
    _warn(warn_of(unknown, len(lines), "have a key in --exclude-paired that the collection doesn't have."))
    table = ImageIds(args.out)
    print(f"{args.out}: {len(table)} sentences, {table.ids.shape[1]} images each\n{table.signature}")
    if table.recall is not None:
        print(
            f"{percent(table.recall)} of the {table.ids.shape[1]} nearest images were found, on a sample of sentences."
        )


def _check_mask(args: argparse.Namespace, paired: bool) -> None:
    """Refuse flags of a mask that don't go together, before anything is read.

    Raises:
        InputError: they don't.
    """
    if args.mask_prob is None:
        given = {"tokenizer": args.mask_tokenizer, "seed": args.mask_seed, "max-pieces": args.mask_max_pieces}
        alone = [f"--mask-{name}" for name, value in given.items() if value is not None]
        if alone:
            raise InputError(f"without --mask-prob {' and '.join(alone)} would hide nothing: give it, too.")
        return
    if paired:
        raise InputError("--mask-prob hides words of the text, which --method paired doesn't read.")
    if args.mask_tokenizer is None:
        raise InputError("--mask-prob also needs --mask-tokenizer, that of the model which will learn.")


def _warn(warnings: Any) -> None:
    from ..storage.ranks import this_rank

    for warning in warnings:
        if this_rank().leads:
            warn(warning)
