"""fairseq datasets that carry images beside text."""

import fairseq  # noqa: F401  # first of all: what it registers would else meet a half-imported module here
