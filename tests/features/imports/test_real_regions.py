"""A real detector's output, and the lists of names that real features are published with."""

from pathlib import Path

import numpy as np
import pytest

from visual_grounding.cli.main import main
from visual_grounding.features.names import read_names
from visual_grounding.features.store import FeatureStore

pytestmark = pytest.mark.data


def test_regions_of_real_photos_are_imported_with_the_best_alone(
    real_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts are those of its README: 37,985 of 114,984 regions at 0.3, 5.2 a photo; 0.5 % of photos have none."""
    regions = real_data / "flickr8k/regions"
    rows = (real_data / "flickr8k/images.tsv").read_text().splitlines()[1:]
    (tmp_path / "keys.txt").write_text("".join(row.split("\t")[1] + "\n" for row in rows))
    flags = ["--arrays", regions / "features.npy", "--keys", tmp_path / "keys.txt", "--made-by", "DEIMv2-Femto, COCO"]
    for name in ("boxes", "labels", "scores"):
        flags += [f"--{name}", regions / f"{name}.npy"]
    flags += ["--label-names", regions / "label_names.txt", "--min-score", "0.3", "--out", tmp_path / "store"]
    assert main(["import", *map(str, flags)]) == 0
    out = capsys.readouterr().out
    assert "76999 regions scored below the lowest score that was asked for, and were left out." in out
    assert "39 of 7348 images (0.5 %) have only zeros as features" in out
    store = FeatureStore(tmp_path / "store")
    features, absent = store.gather(np.arange(len(store)))
    found = store.gather_columns(np.arange(len(store)))
    assert (~absent).sum() == 37985 and round((~absent).sum() / len(store), 1) == 5.2
    assert (found["scores"][~absent] >= np.float16(0.3)).all() and (found["labels"][absent] == -1).all()
    labels = np.bincount(found["labels"][~absent], minlength=80)
    assert store.label_names[labels.argmax()] == "person" and round(labels.max() / labels.sum(), 3) == 0.557
    for name, here in (("features", features), ("boxes", found["boxes"]), ("scores", found["scores"])):
        whole = np.load(regions / f"{name}.npy")
        kept = np.load(regions / "scores.npy") >= 0.3
        np.testing.assert_array_equal(here[~absent], whole[kept])


def test_real_lists_of_names_are_read(real_data: Path) -> None:
    vocabularies = real_data / "downstream/frcnn_vocab"
    names = read_names(vocabularies / "vtlm_object_vocab.json")
    assert len(names) == 601 and names[0] == "Tortoise"
    assert len(read_names(vocabularies / "objects_vocab.txt")) == 1600
