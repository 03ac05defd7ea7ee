"""Bring every number of a feature store to mean 0 and variance 1 over the regions of some of its images.

Scattering features share a large common part, which `visual_aware_transformer` takes off by `--visual-standardise`.
Models that read regions and text as one stream have no such flag, so it is done once, before training.
"""

import argparse
from pathlib import Path

import numpy as np

from visual_grounding.features.store import FeatureStore


def standardised(features: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Features in units of their standard deviation, from their mean.

    Shapes:
        features: (I, R, F);  measured: (K,) rows that mean and deviation are of
        returns: (I, R, F) float16

    >>> standardised(np.array([[[1.0, 5.0]], [[3.0, 5.0]], [[7.0, 6.0]]]), np.array([0, 1])).tolist()
    [[[-1.0, 0.0]], [[1.0, 0.0]], [[5.0, 1.0]]]
    """
    chosen = features[measured].astype(np.float64)
    mean, deviation = chosen.mean(axis=(0, 1)), chosen.std(axis=(0, 1))
    deviation[deviation == 0] = 1  # a number that is always the same says nothing
    return ((features - mean) / deviation).astype(np.float16)


def main() -> None:
    """Write one array of all images, in the order of the store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image-features", type=Path, required=True, metavar="STORE")
    parser.add_argument(
        "--keys", type=Path, required=True, help="keys of the images to measure, those of the training text"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npy")
    args = parser.parse_args()
    store = FeatureStore(args.image_features)
    measured = set(args.keys.read_text(encoding="utf-8").split())
    rows = np.array([row for row, key in enumerate(store.keys()) if key in measured])
    np.save(args.out, standardised(store.gather(np.arange(len(store)))[0], rows))


if __name__ == "__main__":
    main()
