"""The small model of `small_text_and_regions.py` by a registered name, so that a checkpoint of it loads."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq.models import register_model, register_model_architecture
from small_text_and_regions import SmallEncoder, small_config, small_words
from small_trained import train

from visual_grounding.models.text_and_regions_decoder import TextAndRegionsDecoder, TextAndRegionsModel

NAME = "small_text_and_regions"


@register_model(NAME)
class SmallTextAndRegions(TextAndRegionsModel):
    """Two layers over text and regions of six numbers."""

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> TextAndRegionsModel:
        words = small_words(task.target_dictionary)
        return cls(
            SmallEncoder(task.source_dictionary), TextAndRegionsDecoder(small_config(), task.target_dictionary, words)
        )


@register_model_architecture(NAME, NAME)
def small_text_and_regions(args: Namespace) -> None:
    """It has no flags."""


def watched(folder: Path, path: Path, images: bool = True, updates: int = 0) -> Path:
    """A checkpoint of it, of the world of `small_trained.py`."""
    seeing = ["--image-features", folder / "store", "--image-ids", folder / "ids"] if images else []
    words = [folder / "bin", "--task", "grounded_translation", "-s", "en", "-t", "de", "--arch", NAME, *seeing]
    return train(path, *words, "--criterion", "cross_entropy", updates=updates)
