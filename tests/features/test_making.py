"""Features of another making are refused with both signatures, whatever their size."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import write_store

from visual_grounding.errors import InputError
from visual_grounding.features.making import check_making
from visual_grounding.features.store import FeatureStore

SIGNED = "extract|images:9|backbone:resnet50|weights:V2|pool:grid|grid:7|version:0.1.0"


def store_signed(folder: Path, signature: str) -> FeatureStore:
    meta = write_store(folder, np.ones((2, 1, 3))) / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "signature": signature}))
    return FeatureStore(folder)


@pytest.mark.parametrize(
    ("found", "apart_from"),
    [
        (SIGNED, ()),
        ("extract|images:5|backbone:resnet50|weights:V2|pool:grid|grid:7|version:9.0.0", ()),  # other photos
        ("extract|images:5|backbone:resnet50|weights:V2|pool:mean|grid:None", ("pool", "grid")),
        ("extract|images:9|backbone:resnet50|weights:V2|pool:grid|grid:7|label_names:12ab|version:0.2.0", ()),
    ],
)
def test_features_made_alike_are_taken(tmp_path, found, apart_from):
    store = store_signed(tmp_path / "store", found)
    check_making(store, SIGNED, "retriever r", apart_from)
    if apart_from:
        with pytest.raises(InputError, match=rf"\(another {', '.join(apart_from)}\)"):
            check_making(store, SIGNED, "retriever r")
    with pytest.raises(InputError, match=r"\(another weights[,)]"):  # it's their making that is compared
        check_making(store, SIGNED.replace("weights:V2", "weights:V1"), "retriever r", apart_from)


@pytest.mark.parametrize(
    ("found", "apart_from", "message"),
    [
        ("extract|backbone:resnet50|weights:random-1|pool:grid|grid:7", (), r"otherwise \(another weights\): extract"),
        ("extract|backbone:resnet50|weights:V2|pool:mean|grid:None", (), r"\(another pool, grid\)"),
        ("extract|backbone:vgg19|weights:V2|pool:mean|grid:None", ("pool", "grid"), r"\(another backbone\)"),
        ("extract|backbone:resnet50|weights:V2|pool:grid|grid:7|layer:3", (), r"\(another layer\)"),
        ("import|images:9|normalise:no|arrays:1234", (), r"\(import instead of extract\): import\|images:9\|normalise"),
    ],
)
def test_features_of_another_making_are_refused(tmp_path, found, apart_from, message):
    store = store_signed(tmp_path / "store", found)
    with pytest.raises(InputError, match=message) as refused:
        check_making(store, SIGNED, "retriever r", apart_from)
    said = str(refused.value)
    assert f"{found} ≠ {SIGNED}" in said and "as those that retriever r was trained on" in said
    assert "visual-grounding extract --backbone resnet50 --pool grid --grid 7 … --out DIR" in said
    assert refused.value.choices == ("image_features_unchecked",)


def test_labels_that_mean_something_else_are_another_making(tmp_path):
    named = SIGNED.replace("|version", "|label_names:{}|version")
    check_making(store_signed(tmp_path / "same", named.format("12ab")), named.format("12ab"), "the checkpoint")
    other = store_signed(tmp_path / "other", named.format("34cd"))
    with pytest.raises(InputError, match=r"made otherwise \(another label_names\)"):
        check_making(other, named.format("12ab"), "the checkpoint")
    check_making(other, SIGNED, "the checkpoint")  # it has learned no labels


@pytest.mark.parametrize("found", ["normalise:no|arrays:1234", "normalise:no|made_by:ResNet"])
@pytest.mark.parametrize("learned_from", ["normalise:no|arrays:cdef", "normalise:no"])  # the latter by version 0.1.0
def test_arrays_that_the_same_network_may_have_made_are_to_be_imported_with_its_name(tmp_path, learned_from, found):
    store = store_signed(tmp_path / "store", f"import|images:9|{found}|version:0.2.0")
    with pytest.raises(InputError) as refused:
        check_making(store, f"import|images:5|{learned_from}|version:0.2.0", "retriever r")
    said = str(refused.value)
    assert "import both with: visual-grounding import --normalise no --made-by TEXT … --out DIR, with the same" in said
    assert "Make them with" not in said and said.endswith("and train again (or take these as they are, unchecked).")


@pytest.mark.parametrize(
    ("learned_from", "found", "command"),
    [
        ("normalise:no|made_by:a net", "normalise:no|arrays:1234", "--normalise no --made-by 'a net' … --out DIR"),
        ("normalise:no|made_by:a net", "normalise:no|made_by:another", "--normalise no --made-by 'a net' … --out DIR"),
        ("normalise:l2|arrays:1234", "normalise:no|arrays:1234", "--normalise l2 … --out DIR"),
        (
            "normalise:no|made_by:a net|min_score:0.3",
            "normalise:no|made_by:a net",
            "--min-score 0.3 --normalise no --made-by 'a net' … --out DIR",
        ),
    ],
)
def test_import_that_said_more_is_repeated_with_what_it_said(tmp_path, learned_from, found, command):
    store = store_signed(tmp_path / "store", f"import|images:9|{found}|version:0.2.0")
    with pytest.raises(InputError) as refused:
        check_making(store, f"import|images:5|{learned_from}|version:0.2.0", "retriever r")
    assert f"Make them with: visual-grounding import {command} (or take" in str(refused.value)


def test_detectors_suppression_is_repeated_with_its_flags(tmp_path):
    learned_from = (
        "extract|images:5|detector:d|regions:9|min_score:0.2|nms_iou:0.5|nms_across_classes:True|version:0.2.0"
    )
    store = store_signed(tmp_path / "store", "extract|images:9|backbone:resnet50|pool:grid|version:0.2.0")
    with pytest.raises(InputError) as refused:
        check_making(store, f"{learned_from}|version:0.2.0", "retriever r")
    command = "extract --detector d --regions 9 --min-score 0.2 --nms-iou 0.5 --nms-across-classes … --out DIR"
    assert f"Make them with: visual-grounding {command}" in str(refused.value)
