"""Extraction of a network's map, from its choices."""

from pathlib import Path
from typing import Any

from visual_grounding.features.backbones import Backbone
from visual_grounding.features.computation import choose_computation
from visual_grounding.features.dry_run import DryRun, dry_run
from visual_grounding.features.extraction import extract
from visual_grounding.features.map_extractor import MEAN, MapExtractor, Pooling
from visual_grounding.features.store_writer import StoreSummary
from visual_grounding.images.sources import ImageSource


def extract_map(
    images: ImageSource,
    backbone: Backbone,
    out: Path,
    pooling: Pooling = MEAN,
    device: str | None = None,
    precision: str = "float32",
    **choices: Any,
) -> StoreSummary:
    """A feature store of a network's map."""
    extractor = MapExtractor(backbone, pooling, choose_computation(device, precision))
    return extract(images, extractor, out, **choices)


def dry_run_of_map(
    images: ImageSource,
    backbone: Backbone,
    out: Path,
    pooling: Pooling = MEAN,
    device: str | None = None,
    precision: str = "float32",
    **choices: Any,
) -> DryRun:
    """What `extract_map` would do."""
    extractor = MapExtractor(backbone, pooling, choose_computation(device, precision))
    return dry_run(images, extractor, out, **choices)
