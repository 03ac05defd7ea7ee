"""Data -> what a task trains on. WHAT is one of:

  captions     captions -> a data folder for training a retriever
  pieces       text -> a pretrained model's pieces and their dict.txt, for fairseq-preprocess

`visual-grounding prepare WHAT --help` says what each takes. Without WHAT it is captions, whose flags follow.
"""

import argparse

from . import prepare_captions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `prepare captions`, which was `prepare` alone."""
    parser.add_argument("what", nargs="?", type=_what, metavar="WHAT", help="the first word, where it is given")
    prepare_captions.add_arguments(parser)


def _what(word: str) -> str:
    """Only what isn't found among the verbs comes here, so it is none, or stands in the wrong place."""
    raise argparse.ArgumentTypeError(
        f"it should be captions or pieces, and the first word after `prepare`, but is {word!r}"
    )


def run(args: argparse.Namespace) -> None:
    """Run `prepare captions`."""
    prepare_captions.run(args)
