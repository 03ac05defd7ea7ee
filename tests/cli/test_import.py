"""`visual-grounding import`: from arrays to a store, exit status 2 and the message alone where the input is wrong."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.features.imports.published import write_vtlm
from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore
from visual_grounding.storage.signature import made_alike


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "f.npy", np.arange(1, 13, dtype=np.float32).reshape(3, 4))
    (tmp_path / "keys.txt").write_text("a.jpg\nb.jpg\nc.jpg\n")
    return tmp_path / "f.npy"


def run(*arguments: object) -> int:
    return main(["import", *map(str, arguments)])


def test_import_writes_a_store_and_says_what_is_in_it(
    array: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--arrays", array, "--keys", tmp_path / "keys.txt", "--out", tmp_path / "store") == 0
    assert FeatureStore(tmp_path / "store").features[1].tolist() == [[5, 6, 7, 8]]
    assert "store: 3 images, 1 region of 4 numbers each." in capsys.readouterr().out


def test_import_passes_every_flag_on(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    for key in "ab":
        np.savez(tmp_path / f"f/{key}.npz", x=np.full((2, 1, 2), 4.0), y=np.zeros(1))
    (tmp_path / "keys.txt").write_text("b\nmissing\na\n")
    flags = ["--array", "x", "--channels-first", "--regions", 3, "--normalise", "l2", "--shard-size", 2]
    flags += ["--arrays", tmp_path / "f", "--keys", tmp_path / "keys.txt", "--out", tmp_path / "store"]
    assert run(*flags, "--strict") == 2
    assert run(*flags) == 0
    store = FeatureStore(tmp_path / "store")
    assert list(store.keys()) == ["b", "missing", "a"]
    half = np.float16(0.5**0.5)
    np.testing.assert_array_equal(store.features[0], [[half, half], [half, half], [0, 0]])
    assert not store.features[1].any()
    assert (tmp_path / "store/unreadable.tsv").read_text() == "missing\tmissing\n"
    assert '"shard_size": 2' in (tmp_path / "store/meta.json").read_text()


def test_import_prints_the_message_alone_and_returns_2(
    array: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = np.load(array)
    features[2, 1] = np.nan
    np.save(array, features)
    assert run("--arrays", array, "--keys", tmp_path / "keys.txt", "--out", tmp_path / "store") == 2
    err = capsys.readouterr().err.splitlines()
    expected = "visual-grounding import: features should be finite numbers, but row 2 (c.jpg) holds nan."
    assert [line for line in err if line.startswith(expected)]
    assert not any("Traceback" in line for line in err)
    assert not (tmp_path / "store").exists()


def test_import_runs_again_after_the_input_was_mended(array: Path, tmp_path: Path) -> None:
    whole = np.load(array)
    np.save(array, np.where(whole == 1, np.nan, whole))
    flags = ["--arrays", array, "--keys", tmp_path / "keys.txt", "--out", tmp_path / "store"]
    assert run(*flags) == 2
    np.save(array, whole)
    assert run(*flags) == 0


@pytest.fixture
def regions(tmp_path: Path) -> list[object]:
    """Features, boxes in pixels and labels of 2 images with 2 regions, and the flags that import them."""
    np.save(tmp_path / "f.npy", np.array([[[1, 2], [3, 4]], [[5, 6], [0, 0]]], np.float32))
    np.save(tmp_path / "boxes.npy", np.array([[[20, 10, 40, 30], [0, 0, 10, 10]], [[5, 5, 5, 5], [0] * 4]]))
    np.save(tmp_path / "sizes.npy", np.array([[100, 50], [20, 10]]))
    np.save(tmp_path / "labels.npy", np.array([[1, 0], [1, -1]]))
    np.save(tmp_path / "attributes.npy", np.array([[-1, 0], [0, -1]]))
    np.save(tmp_path / "scores.npy", np.array([[0.5, 0.25], [0.125, 0]]))
    (tmp_path / "keys.txt").write_text("a.jpg\nb.jpg\n")
    (tmp_path / "labels.txt").write_text("man\ndog\n")
    (tmp_path / "attributes.txt").write_text("red\n")
    return ["--arrays", tmp_path / "f.npy", "--keys", tmp_path / "keys.txt", "--out", tmp_path / "store"]


def test_import_takes_columns_by_their_flags(
    regions: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--boxes", tmp_path / "boxes.npy", "--box-sizes", tmp_path / "sizes.npy", "--box-format", "xywh"]
    flags += ["--labels", tmp_path / "labels.npy", "--label-names", tmp_path / "labels.txt"]
    flags += ["--attributes", tmp_path / "attributes.npy", "--attribute-names", tmp_path / "attributes.txt"]
    flags += ["--scores", tmp_path / "scores.npy", "--made-by", "a detector of ours"]
    assert run(*regions, *flags) == 0
    out = capsys.readouterr().out
    assert "store: 2 images, 2 regions of 2 numbers each, with boxes, labels, attributes, scores." in out
    store = FeatureStore(tmp_path / "store")
    found = store.gather_columns(np.arange(2))
    np.testing.assert_allclose(found["boxes"][:, 0], [[0.2, 0.2, 0.6, 0.8], [0.25, 0.5, 0.5, 1]], rtol=1e-6)
    assert found["labels"].tolist() == [[1, 0], [1, -1]] and store.label_names == ["man", "dog"]
    assert found["attributes"].tolist() == [[-1, 0], [0, -1]] and store.attribute_names == ["red"]
    assert found["scores"].tolist() == [[0.5, 0.25], [0.125, 0]]
    assert "|made_by:a detector of ours|" in store.signature


def test_import_takes_a_table_of_regions(
    regions: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["b.jpg 0 0 10 5 dog", "a.jpg 50 0 100 50 man", "z.jpg 0 0 1 1 cat", "a.jpg 0 0 10 10 dog"]
    table = "\n".join(["image x1 y1 x2 y2 label", *lines]).replace(" ", "\t") + "\n"
    (tmp_path / "t.tsv").write_text(table)
    flags = ["--regions-table", tmp_path / "t.tsv", "--box-sizes", tmp_path / "sizes.npy"]
    assert run(*regions, *flags) == 0
    err = capsys.readouterr().err
    assert f"warning: 1 of 3 images (33.3 %) of {tmp_path / 't.tsv'} are none of the store's and were left out." in err
    store = FeatureStore(tmp_path / "store")
    found = store.gather_columns(np.arange(2))
    np.testing.assert_allclose(found["boxes"][:, 0], [[0.5, 0, 1, 1], [0, 0, 0.5, 0.5]])
    assert found["labels"].tolist() == [[1, 0], [0, -1]] and store.label_names == ["dog", "man"]
    assert run(*regions[:-1], tmp_path / "named", *flags, "--label-names", tmp_path / "labels.txt") == 0
    named = FeatureStore(tmp_path / "named")
    assert named.gather_columns(np.arange(2))["labels"].tolist() == [[0, 1], [1, -1]]
    said = f"warning: the labels of {tmp_path / 't.tsv'} are numbered by their own names, sorted; another table"
    assert said in err and "Give each the same --label-names." in err
    assert "numbered by their own names" not in capsys.readouterr().err
    digests = [re.search(r"\|label_names:(\w{8})\|version", each.signature)[1] for each in (store, named)]
    assert digests[0] != digests[1] and not made_alike(store.signature, named.signature)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--boxes", "boxes.npy"], "give the pictures' widths and heights. See --boxes, --box-format and --box-sizes."),
        (["--labels", "labels.npy"], "there are no names. Give one a line. See --label-names."),
        (["--label-names", "labels.txt"], "names are what labels stand for, but there are no labels. See --labels."),
        (["--box-sizes", "sizes.npy"], "but there are no boxes. See --box-sizes and --boxes."),
        (["--made-by", ""], "what stands behind --made-by is empty: it may"),
        (["--min-score", "0.5"], "but there are features alone. See --min-score and --scores."),
        (["--min-score", "nan", "--scores", "scores.npy"], "--min-score should be a number, but is nan."),
        (["--key-format", "{id.real}"], "but is '{id.real}'. See --key-format."),
        (["--key-format", "{id}.jpg"], "are keys already. See --key-format and --keys."),
        (["--fields", "a,b"], "f.npy is none. See --fields."),
        (["--array", "x"], "f.npy is a single one. See --array."),
        (["--box-format", "xywh"], "there are no boxes. See --box-format and --boxes."),
        (["--unknown-labels", "none"], "there is none. See --unknown-labels."),
        (["--shard-size", "0"], "shard size should be at least 1, but is 0. See --shard-size."),
        (["--scores", "labels"], "labels is none. See --scores."),
    ],
)
def test_import_names_the_flag_of_a_mistake(
    regions: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    flags: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(*regions, *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_import_of_a_table_without_features_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--regions-table", "t.tsv", "--out", tmp_path / "store") == 2
    err = capsys.readouterr().err
    assert "a table of regions says where they are, not what they look like. Give an array" in err
    assert "features of given boxes can't be made here yet. See --arrays." in err
    assert run("--out", tmp_path / "store") == 2
    assert "features are needed, in a file or a folder. See --arrays." in capsys.readouterr().err


def test_import_says_which_arrays_it_took_as_what_and_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_vtlm(tmp_path / "f")
    flags = ["--arrays", tmp_path / "f", "--regions", 4, "--out"]
    assert run(*flags, tmp_path / "store", "--min-score", 0.2) == 0
    said = capsys.readouterr()
    assert (
        f"{tmp_path}/f: features: detection_features, boxes: detection_boxes (yxyx), scores: detection_sc" in said.out
    )
    assert (
        "f: labels (detection_classes) were left out: nothing says what the numbers stand for. Give their" in said.err
    )
    assert "--label-names" in said.err and "3 images, 4 regions of 5 numbers each, with boxes, scores." in said.out
    (tmp_path / "names.json").write_text('{"0": "man", "1": "dog", "2": "ball", "3": "tree"}')
    assert run(*flags, tmp_path / "labelled", "--label-names", tmp_path / "names.json") == 0
    assert FeatureStore(tmp_path / "labelled").label_names == ["man", "dog", "ball", "tree"]
    assert "left out" not in capsys.readouterr().err
