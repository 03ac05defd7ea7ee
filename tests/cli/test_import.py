"""`visual-grounding import`: from arrays to a store, exit status 2 and the message alone where the input is wrong."""

from pathlib import Path

import numpy as np
import pytest

from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore


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
