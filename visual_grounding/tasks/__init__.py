"""fairseq tasks. Importing this registers them."""

from . import grounded_translation, image_text_matching

__all__ = ["grounded_translation", "image_text_matching"]
