"""What a trained model does with its images. WHAT is one of:

  attention-mass     share of each decoder layer's cross-attention that falls on regions, and on which boxes
  entity-masking     words of the source are hidden from a translator: BLEU with and without them
  last-word          the last word of a sentence is masked: does a pre-trained stream (vtlm) predict it?

`visual-grounding probe WHAT --help` says what each takes. Every number comes with n and its 95 % interval.
"""

import argparse

from ..errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Words only: the probes that are there are verbs by themselves."""
    parser.add_argument("what", nargs=argparse.REMAINDER, metavar="WHAT", help="the probe, and its flags behind it")


def run(args: argparse.Namespace) -> None:
    """Only what isn't found among the verbs comes here.

    Raises:
        InputError: always.
    """
    from .main import VERBS

    known = " or ".join(verb.partition(" ")[2] for verb in VERBS if verb.startswith("probe "))
    found = repr(args.what[0]) if args.what else "not given"
    raise InputError(f"the probe should be {known}, and the first word after `probe`, but is {found}.")
