"""fairseq datasets that carry images beside text. Importing this registers `--bpe pretrained_pieces`."""

from . import pretrained_pieces

__all__ = ["pretrained_pieces"]
