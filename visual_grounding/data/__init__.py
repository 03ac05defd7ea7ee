"""fairseq datasets that carry images beside text. Importing this registers `--bpe pretrained_pieces`."""

import fairseq  # noqa: F401  # first of all: what it registers would else meet a half-imported module here

from . import pretrained_pieces

__all__ = ["pretrained_pieces"]
