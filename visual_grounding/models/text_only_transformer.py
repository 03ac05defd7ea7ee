"""`--arch text_only_transformer`: the twin without images of every translation model with images.

fairseq's transformer with the same presets: a model with images is this, and its fusion. `--arch transformer_tiny` is
another, much smaller model.
"""

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from .presets import TRANSFORMER_PRESETS, register_presets
from .visual_model import StrictLoading


@register_model("text_only_transformer")
class TextOnlyTransformerModel(StrictLoading, TransformerModel):
    """fairseq's transformer, under the names of the presets of this package."""


register_presets("text_only_transformer", TRANSFORMER_PRESETS)
