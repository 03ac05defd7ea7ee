"""fairseq criterions. Importing this registers them."""

import fairseq  # noqa: F401  # first of all: what it registers would else meet a half-imported module here

from . import hardest_negative_triplet, visual_tlm

__all__ = ["hardest_negative_triplet", "visual_tlm"]
