"""VTLM's pickles, one an image; and whatever else is a file of one image by the names in use."""

import bz2
import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.features.imports.published import (
    COUNTS,
    IDS,
    LABELS,
    RECORDS,
    check_store,
    import_all,
    vtlm,
    write_vtlm,
)
from visual_grounding.errors import InputError

VTLM = ("boxes", "labels", "scores")
KEYS = sorted(f"{identity}.jpg" for identity in IDS)
ROWS = [IDS.index(key.removesuffix(".jpg")) for key in KEYS]


def doubled(times: int, value: list) -> list:
    """Each level names the one below twice: a few bytes in a pickle, 2^times as many numbers in an array."""
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize("pooled", [True, False])
def test_pickles_of_vtlm_are_known_by_their_names(tmp_path: Path, pooled: bool) -> None:
    """Boxes are y first without a word; what fills up is absent, with or without num_detections; maps are averaged."""
    store = import_all(write_vtlm(tmp_path / "f", pooled=pooled), tmp_path / "out", regions=4)
    check_store(store, *VTLM, keys=KEYS, rows=ROWS)
    assert store.label_names == LABELS and store.plan["box_format"] == "yxyx"
    assert store.plan["array"] == "detection_features" and store.plan["boxes"] == "detection_boxes"


def test_compressed_pickles_and_npz_of_vtlm_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "7.jpg.pgz").write_bytes(gzip.compress(pickle.dumps(vtlm(0))))
    (folder / "12.jpg.pbz2").write_bytes(bz2.compress(pickle.dumps(vtlm(1))))
    np.savez(folder / "3.jpg.npz", **vtlm(2))
    check_store(import_all(folder, tmp_path / "out", regions=4), *VTLM, keys=KEYS, rows=ROWS)


def test_a_score_that_is_no_number_is_refused_and_does_not_count_as_filling(tmp_path: Path) -> None:
    folder = write_vtlm(tmp_path / "f")
    wrong = vtlm(0)
    wrong["detection_scores"][1] = np.nan
    (folder / "7.jpg.pkl").write_bytes(pickle.dumps(wrong))
    with pytest.raises(InputError, match=r"scores should be finite .*row 2 \(7\.jpg\), region 1, has nan"):
        import_all(folder, tmp_path / "out", regions=4)


def test_best_regions_of_vtlm_are_kept(tmp_path: Path) -> None:
    store = import_all(write_vtlm(tmp_path / "f"), tmp_path / "out", regions=1)
    for place, row in enumerate(ROWS):
        np.testing.assert_array_equal(
            store.features[place, 0], RECORDS[row]["features"][RECORDS[row]["scores"].argmax()]
        )
    assert store.num_regions == 1


def test_names_that_are_chosen_are_all_that_is_read(tmp_path: Path) -> None:
    folder = write_vtlm(tmp_path / "f", filled=3)
    store = import_all(folder, tmp_path / "out", array_name="detection_features", beside={"boxes": "detection_boxes"})
    assert store.columns == ("boxes",) and store.plan["box_format"] == "yxyx"
    np.testing.assert_array_equal(store.column("boxes")[ROWS.index(1)], RECORDS[1]["boxes"])
    store = import_all(folder, tmp_path / "scores", named=(), regions=3, beside={"boxes": "detection_boxes"})
    assert store.columns == ("boxes", "scores")  # labels without names are left out


def test_labels_beyond_the_names_are_refused(tmp_path: Path) -> None:
    folder = write_vtlm(tmp_path / "f")
    wrong = vtlm(0)
    wrong["detection_classes"][1] = len(LABELS)
    (folder / "7.jpg.pkl").write_bytes(pickle.dumps(wrong))
    message = r"labels should be -1 for none, or 0 to 3, .* but row 2 \(7\.jpg\), region 1, has 4\. 1 such"
    with pytest.raises(InputError, match=message):
        import_all(folder, tmp_path / "out", regions=4)


class Malicious:
    """Makes a folder when it is loaded by pickle itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def test_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    folder = write_vtlm(tmp_path / "f")
    evil = {**vtlm(0), "more": Malicious(tmp_path / "ran")}
    (folder / "7.jpg.pkl").write_bytes(pickle.dumps(evil))
    with pytest.raises(InputError, match=r"7\.jpg\.pkl should hold numbers.* asks for posix\.mkdir when loaded\. Noth"):
        import_all(folder, tmp_path / "out", regions=4)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], r"should hold arrays by name, such as detection_features, but holds a list\. Is it a feature file\?"),
        ({3: np.ones(2)}, r"should hold arrays by name, .* but holds a dict"),
        (
            {"a": np.ones((1, 2)), "b": np.ones(2)},
            r"a, b, but nothing that is known as features \(detection_features, f.*\)\. Choose the",
        ),
        (
            {**vtlm(0), "detection_boxes": np.ones((4, 3))},
            r"boxes of shape \(4, 4\), .* detection_boxes has \(4, 3\)",
        ),
        ({**vtlm(0), "detection_features": "none"}, r"should hold arrays of numbers, but one is of type <U4"),
        ({**vtlm(0), "detection_scores": [[1], [2, 3]]}, r"one has lists of several lengths"),
        ({**vtlm(0), "detection_scores": doubled(27, [1.0])}, r"one has lists 8 deep and more"),
        ({**vtlm(0), "detection_scores": doubled(7, [1.0] * 2**21)}, r"one has lists of more than 67108864"),
        ({**vtlm(0), "detection_scores": doubled(7, [np.zeros(2**21, np.int8)])}, r"one has lists of more than 6710"),
        ({**vtlm(0), "num_detections": 9}, r"as num_detections says, but that is 9, and there are features of 4"),
        ({**vtlm(0), "detection_classes": np.ones(4)}, r"should hold whole numbers as labels, but holds float64"),
    ],
)
def test_pickle_that_is_no_feature_file_is_refused(tmp_path: Path, content: object, message: str) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "7.jpg.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=rf"7\.jpg\.pkl.*{message}"):
        import_all(folder, tmp_path / "out", regions=4)


def test_broken_pickles_are_counted(tmp_path: Path) -> None:
    folder = write_vtlm(tmp_path / "f")
    whole = (folder / "7.jpg.pkl").read_bytes()
    (folder / "7.jpg.pkl").write_bytes(whole[:-9])
    (folder / "12.jpg.pkl").unlink()
    (folder / "12.jpg.pgz").write_bytes(gzip.compress(whole)[:-9])
    store = import_all(folder, tmp_path / "out", regions=4)
    assert [bool(row.any()) for row in store.features] == [row == 2 for row in ROWS]
    listed = (tmp_path / "out/unreadable.tsv").read_text()
    assert listed.count("broken or truncated: ") == 2


def test_name_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    write_vtlm(tmp_path / "f")
    (first, *_) = sorted((tmp_path / "f").iterdir())
    os.rename(first, os.fsencode(tmp_path / "f") + b"/\xff" + os.fsencode(first.suffix))
    with pytest.raises(InputError, match="should be UTF-8"):
        import_all(tmp_path / "f", tmp_path / "out", regions=4)


def test_keys_are_made_of_file_names(tmp_path: Path) -> None:
    store = import_all(write_vtlm(tmp_path / "f"), tmp_path / "out", regions=4, key_format="photos/{id}")
    assert list(store.keys()) == [f"photos/{key}" for key in KEYS]
    assert sum(COUNTS) == int(store.features.any(axis=2).sum())
