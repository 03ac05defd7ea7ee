"""Text models that look at pictures: a fairseq plugin, and the retrieval that feeds it.

Shapes are written with these letters everywhere:

    B  sentences in a batch      T  source tokens            U  target tokens
    N  images per sentence       R  regions per image        F  image feature size
    D  model size                H  attention heads
    I  images in a collection    S  sentences in a corpus    V  vocabulary, or vokens

fairseq's layers are time-first: they take and return (T, B, D). `*_padding_mask` is True at padding. Boxes are
`x0, y0, x1, y1` in 0..1. Fractions are 0..1 in code, percent only in what a person reads; BLEU is 0..100.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from ._version import __version__
from .errors import InputError

__all__ = ["InputError", "__version__"]


def _running_own_command() -> bool:
    """`visual-grounding VERB` starts within a second, so it doesn't import fairseq; verbs that need it do."""
    program = (
        sys.argv[0] if sys.argv else ""
    )  # "-m" while Python looks for the __main__ of `python -m visual_grounding`
    return program == "-m" or Path(program).name.startswith("visual-grounding")


# Everything is registered here, once: `--user-dir` imports the files of tasks/ and models/ in any order and never
# criterions/, and imports nothing at all when this package was imported before.
if sys.modules.get("fairseq") is not None or (not _running_own_command() and find_spec("fairseq") is not None):
    from . import fairseq_plugin

    fairseq_plugin.register()
