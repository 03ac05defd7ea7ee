"""fairseq criterions. Importing this registers them."""

from . import hardest_negative_triplet

__all__ = ["hardest_negative_triplet"]
