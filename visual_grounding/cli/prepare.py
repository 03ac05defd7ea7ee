"""Data -> what a task trains on. WHAT is one of:

  captions     captions -> a data folder for training a retriever
  pieces       text -> a pretrained model's pieces and their dict.txt, for fairseq-preprocess
  snli         labelled sentences -> what grounded_sentence_prediction and grounded_tagging train on; so are
  sick         SICK's,
  rte          RTE's,
  glue         those of any task of GLUE, or of any table,
  joci         JOCI's,
  vua          VUA's metaphors,
  conll        CoNLL's named entities, and
  pdtb         PDTB's discourse relations

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
    from .main import VERBS

    known = [verb.partition(" ")[2] for verb in VERBS if verb.startswith("prepare ")]
    raise argparse.ArgumentTypeError(
        f"it should be one of {', '.join(known)}, and the first word after `prepare`, but is {word!r}"
    )


def run(args: argparse.Namespace) -> None:
    """Run `prepare captions`."""
    prepare_captions.run(args)
