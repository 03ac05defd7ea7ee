"""One small collection, written in the forms in which region features are published."""

import base64
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.columns import NAMES, Columns
from visual_grounding.features.importers import import_features
from visual_grounding.features.store import FeatureStore

IDS = ["7", "12", "3"]
COUNTS = [2, 3, 1]
SIZES = [(200, 100), (64, 128), (500, 400)]
LABELS = ["man", "dog", "ball", "tree"]
ATTRIBUTES = ["red", "wet"]


def record(row: int) -> dict[str, Any]:
    """Arrays of one image, boxes in 0..1: exact in float16, x and y unlike each other."""
    rng, count = np.random.default_rng(row), COUNTS[row]
    low = rng.integers(0, 8, (count, 2)) / 16
    return {
        "features": rng.integers(1, 50, (count, 5)).astype(np.float32) / 4,
        "boxes": np.concatenate([low, low + np.array([0.25, 0.5])], axis=1).astype(np.float32),
        "labels": rng.integers(0, len(LABELS), count),
        "attributes": rng.integers(0, len(ATTRIBUTES), count),
        "scores": (rng.permutation(8)[:count].astype(np.float32) + 1) / 8,
    }


RECORDS = [record(row) for row in range(len(IDS))]


def pixels(row: int) -> np.ndarray:
    """Boxes in pixels of the picture."""
    return (RECORDS[row]["boxes"] * np.tile(SIZES[row], 2)).astype(np.float32)


def bottom_up(row: int, encoded: bool = True) -> dict[str, Any]:
    """The fields of LXMERT's tables for one image, arrays in base64 or as they are."""
    own = RECORDS[row]
    arrays = {
        "objects_id": own["labels"].astype(np.int64),
        "objects_conf": own["scores"],
        "attrs_id": own["attributes"].astype(np.int64),
        "attrs_conf": own["scores"],
        "boxes": pixels(row),
        "features": own["features"],
    }
    if encoded:
        arrays = {name: base64.b64encode(array.tobytes()) for name, array in arrays.items()}
    width, height = SIZES[row]
    return {"img_id": IDS[row], "img_h": height, "img_w": width, "num_boxes": COUNTS[row], **arrays}


def write_tsv(path: Path, names: tuple[str, ...], header: bool = False) -> Path:
    """A table of these columns; image_w is what LXMERT calls img_w."""
    with open(path, "wb") as file:
        if header:
            file.write("\t".join(names).encode() + b"\n")
        for row in range(len(IDS)):
            fields = bottom_up(row)
            fields |= {f"image_{end}": fields[f"img_{end}"] for end in ("id", "w", "h")}
            cells = [fields[name] for name in names]
            file.write(b"\t".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells) + b"\n")
    return path


def vtlm(row: int, pooled: bool = True, filled: int = 4) -> dict[str, Any]:
    """What VTLM's extractor pickles: boxes are ymin, xmin, ymax, xmax in 0..1, filled up with detections of score 0."""
    own, count = RECORDS[row], COUNTS[row]
    more = filled - count
    features = np.concatenate([own["features"], np.full((more, 5), 9, np.float32)])
    found = {
        "detection_scores": np.pad(own["scores"], (0, more)),
        "detection_classes": np.pad(own["labels"].astype(np.uint16), (0, more), constant_values=65535),
        "detection_boxes": np.pad(own["boxes"][:, [1, 0, 3, 2]], ((0, more), (0, 0))),
        "detection_features": features,
    }
    if not pooled:  # a map (h, w, F) of each region, whose mean is its feature
        deviation = np.array([-1, 1, 3, -3], np.float32).reshape(2, 2, 1)
        found["detection_features"] = features[:, None, None] + deviation
        found["num_detections"] = count
    return found


def write_vtlm(folder: Path, **how: Any) -> Path:
    """One pickle an image, as VTLM names them."""
    folder.mkdir()
    for row, identity in enumerate(IDS):
        (folder / f"{identity}.jpg.pkl").write_bytes(pickle.dumps(vtlm(row, **how), protocol=4))
    return folder


def import_all(path: Path, out: Path, keys: Path | None = None, **choices: Any) -> FeatureStore:
    """Import with names for labels and attributes, as the command does."""
    minimum, table = choices.pop("min_score", None), choices.pop("table", None)
    source = open_arrays(path, keys, named=choices.pop("named", tuple(NAMES)), **choices)
    names = {"label_names": LABELS, "attribute_names": ATTRIBUTES}
    present = {NAMES[column] for column in source.columns if column in NAMES}
    columns = Columns(source.columns, **{name: lines for name, lines in names.items() if name in present})
    import_features(source, out, columns=columns, shard_size=2, min_score=minimum, table=table)
    return FeatureStore(out)


def check_store(store: FeatureStore, *names: str, keys: list[str] | None = None, rows: list[int] | None = None) -> None:
    """The store has just the collection: features and these columns."""
    rows = list(range(len(IDS))) if rows is None else rows
    assert list(store.keys()) == ([IDS[row] for row in rows] if keys is None else keys)
    assert store.columns == names
    found = store.gather_columns(np.arange(len(rows)))
    for place, row in enumerate(rows):
        count = COUNTS[row]
        np.testing.assert_array_equal(store.features[place, :count], RECORDS[row]["features"])
        assert not store.features[place, count:].any()
        for name in names:
            np.testing.assert_allclose(found[name][place, :count], RECORDS[row][name], atol=1e-6)
