"""Arrays of others: every form gives the same store; anything that isn't plain finite numbers is refused unexecuted."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from visual_grounding.errors import InputError
from visual_grounding.features import importers
from visual_grounding.features.array_files import sample_digest
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.importers import import_features
from visual_grounding.features.store import FeatureStore

KEYS = [f"{number}.jpg" for number in (3, 1, 2, 0, 4)]


@pytest.fixture
def features() -> np.ndarray:
    """(I, R, F) = (5, 2, 3), exact in float16."""
    return np.random.default_rng(0).integers(1, 99, (5, 2, 3)).astype(np.float32) / 8


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.txt"
    path.write_text("".join(key + "\n" for key in KEYS))
    return path


def store_of(path: Path, out: Path, *, normalise: str = "no", strict: bool = False, **options: object) -> FeatureStore:
    import_features(open_arrays(path, **options), out, normalise, shard_size=2, strict=strict)
    return FeatureStore(out)


def refused(message: str, path: Path, **options: object) -> None:
    out = path.with_name(f"refused{len(list(path.parent.iterdir()))}")
    with pytest.raises(InputError, match=message):
        store_of(path, out, **options)
    assert not out.exists()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_gives_its_numbers_in_the_order_of_the_keys(
    tmp_path: Path, features: np.ndarray, keys: Path, dtype: type, order: str
) -> None:
    np.save(tmp_path / "f.npy", np.asarray(features, dtype=dtype, order=order))
    store = store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys)
    np.testing.assert_array_equal(store.features, features)
    assert list(store.keys()) == KEYS
    digest = sample_digest(tmp_path / "f.npy")
    assert store.signature.startswith(f"import|images:5|normalise:no|arrays:{digest[:16]}|version:")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensor_gives_its_numbers(
    tmp_path: Path, features: np.ndarray, keys: Path, dtype: torch.dtype, zipped: bool
) -> None:
    tensor = torch.from_numpy(features).to(dtype).requires_grad_()
    torch.save(tensor, tmp_path / "f.pth", _use_new_zipfile_serialization=zipped)
    store = store_of(tmp_path / "f.pth", tmp_path / "out", keys=keys)
    np.testing.assert_array_equal(store.features, tensor.detach().half().numpy())


def test_tensor_by_name(tmp_path: Path, features: np.ndarray, keys: Path) -> None:
    torch.save({"a": torch.zeros(5, 2), "x": torch.from_numpy(features)}, tmp_path / "f.pt")
    np.testing.assert_array_equal(
        store_of(tmp_path / "f.pt", tmp_path / "out", keys=keys, array_name="x").features, features
    )
    refused(r"f\.pt holds a, x, but none was chosen\. Choose one by its name", tmp_path / "f.pt", keys=keys)
    refused(r"f\.pt holds a, x, but not b\. Choose one by its name", tmp_path / "f.pt", keys=keys, array_name="b")


def test_one_vector_per_image_is_one_region(tmp_path: Path, features: np.ndarray, keys: Path) -> None:
    np.save(tmp_path / "f.npy", features[:, 0])
    store = store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys)
    np.testing.assert_array_equal(store.features, features[:, :1])


def test_map_with_channels_first_becomes_regions_row_by_row(tmp_path: Path, keys: Path) -> None:
    # (I, F, h, w) = (5, 2, 2, 3): place (y, x) becomes region 3 y + x.
    maps = np.arange(60, dtype=np.float32).reshape(5, 2, 2, 3)
    np.save(tmp_path / "f.npy", maps)
    store = store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys, channels_first=True)
    assert store.features.shape == (5, 6, 2)
    for y in range(2):
        for x in range(3):
            np.testing.assert_array_equal(store.features[:, 3 * y + x], maps[:, :, y, x])
    (tmp_path / "folder").mkdir()
    for key, one in zip(KEYS, maps):
        np.save(tmp_path / f"folder/{key}.npy", one)
    again = store_of(tmp_path / "folder", tmp_path / "again", keys=keys, channels_first=True)
    np.testing.assert_array_equal(again.features, store.features)
    refused(
        r"shape \(I, F\) or \(I, R, F\).*has \(5, 2, 2, 3\)\. Is it a map.*Then say so",
        tmp_path / "f.npy",
        keys=keys,
    )
    refused(r"shape \(F,\) or \(R, F\), but has \(2, 2, 3\)\. Is it a map.*Then say so", tmp_path / "folder")


def write_folder(folder: Path, features: np.ndarray) -> Path:
    """One file per image, in every form."""
    folder.mkdir()
    np.save(folder / "3.jpg.npy", features[0])
    np.savez(folder / "1.jpg.npz", features[1])
    np.savez_compressed(folder / "2.jpg.npz", x=features[2])
    torch.save(torch.from_numpy(features[3]), folder / "0.jpg.pt")
    torch.save({"x": torch.from_numpy(features[4]).bfloat16()}, folder / "4.jpg.pth")
    return folder


def test_folder_gives_the_same_as_one_array(tmp_path: Path, features: np.ndarray, keys: Path) -> None:
    folder = write_folder(tmp_path / "folder", features)
    features[4] = torch.from_numpy(features[4]).bfloat16().float().numpy()
    store = store_of(folder, tmp_path / "out", keys=keys)
    np.testing.assert_array_equal(store.features, features)
    assert list(store.keys()) == KEYS
    everything = store_of(folder, tmp_path / "sorted")
    assert list(everything.keys()) == sorted(KEYS)
    np.testing.assert_array_equal(everything.features, features[[3, 1, 2, 0, 4]])


def test_folder_looks_into_sub_folders_and_past_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "f/train").mkdir(parents=True)
    np.save(tmp_path / "f/train/1.npy", np.ones(3))
    (tmp_path / "f/.1.npy").write_bytes(b"")
    (tmp_path / "f/readme.txt").touch()
    assert list(store_of(tmp_path / "f", tmp_path / "out").keys()) == ["train/1"]


def test_vector_per_file_is_one_region(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f/a.npy", np.array([1.0, 2]))
    torch.save(torch.tensor([3.0, 4]), tmp_path / "f/b.pt")
    assert store_of(tmp_path / "f", tmp_path / "out").features.tolist() == [[[1, 2]], [[3, 4]]]


def test_npz_with_several_arrays_needs_a_name(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    np.savez(tmp_path / "f/a.npz", x=np.zeros((2, 4)), y=np.ones((2, 3)))
    refused(r"a\.npz holds x, y, but none was chosen\. Choose one by its name", tmp_path / "f")
    assert store_of(tmp_path / "f", tmp_path / "out", array_name="y").features.shape == (1, 2, 3)


def test_fewer_regions_are_filled_with_absent_ones_when_the_most_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    for name, regions in (("a", 2), ("b", 1), ("c", 0)):
        np.save(tmp_path / f"f/{name}.npy", np.ones((regions, 3)))
    store = store_of(tmp_path / "f", tmp_path / "out", regions=4)
    _, mask = store.gather(np.arange(3))
    assert mask.tolist() == [[False, False, True, True], [False, True, True, True], [True] * 4]
    assert "|regions:4|" in store.signature  # so that a model that learned from 4 refuses another number
    refused(r"a\.npy has 2 regions, but .*b\.npy has 1\. Where images differ, say the most", tmp_path / "f")
    refused(
        r"images should have 1 regions at most, as was said, but row 0 \(a\) has 2, and no sc",
        tmp_path / "f",
        regions=1,
    )
    refused(r"the most regions of an image should be at least 1, but are 0", tmp_path / "f", regions=0)
    (tmp_path / "f/a.npy").unlink()
    (tmp_path / "f/b.npy").unlink()
    refused(r"c\.npy has no region\. Say the most that an image has", tmp_path / "f")


def test_missing_and_broken_files_are_listed_and_shift_no_row(tmp_path: Path, features: np.ndarray, keys: Path) -> None:
    folder = write_folder(tmp_path / "folder", features)
    (folder / "3.jpg.npy").write_bytes((folder / "3.jpg.npy").read_bytes()[:-4])
    (folder / "1.jpg.npz").unlink()
    (folder / "2.jpg.npz").write_bytes(b"")
    (folder / "0.jpg.pt").write_bytes((folder / "0.jpg.pt").read_bytes()[:300])
    store = store_of(folder, tmp_path / "out", keys=keys)
    assert store.gather(np.arange(5))[1].all(axis=1).tolist() == [True, True, True, True, False]
    listed = [line.split("\t") for line in (tmp_path / "out/unreadable.tsv").read_text().splitlines()]
    assert [key for key, _ in listed] == KEYS[:4]
    assert [reason.split(":")[0] for _, reason in listed] == [
        "broken or truncated", "missing", "empty file", "broken or truncated",
    ]  # fmt: skip
    refused(
        r"3\.jpg is unreadable \(broken or truncated.*; strictly, no such image is allowed",
        folder,
        keys=keys,
        strict=True,
    )


def test_folder_of_broken_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    for name in ("a.npy", "b.npz", "c.pt"):
        (tmp_path / "f" / name).write_bytes(b"garbage")
    refused(r"All 3 images are unreadable; the first is .*a\.npy \(broken or truncated: ", tmp_path / "f")


@pytest.mark.parametrize(
    ("bad", "said"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (7e4, "70000, too large")]
)
@pytest.mark.parametrize("normalise", ["no", "l2"])
def test_numbers_that_are_not_finite_are_refused_with_row_and_key(
    tmp_path: Path, features: np.ndarray, keys: Path, bad: float, said: str, normalise: str
) -> None:
    features[3, 1, 2] = bad
    np.save(tmp_path / "f.npy", features)
    if bad == 7e4 and normalise == "l2":
        assert store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys, normalise="l2").features[3, 1, 2] == 1
        return
    said = "nan" if normalise == "l2" else said
    refused(rf"row 3 \(0\.jpg\) holds {said}", tmp_path / "f.npy", keys=keys, normalise=normalise)
    write_folder(tmp_path / "folder", features)
    refused(rf"row 3 \(0\.jpg\) holds {said}", tmp_path / "folder", keys=keys, normalise=normalise)


def test_normalise_scales_regions_to_length_1_and_leaves_zero(tmp_path: Path, keys: Path) -> None:
    features = np.zeros((5, 2, 2), np.float32)
    features[:, 0] = (3, 4)  # length 5
    features[1, 0] = (3e30, 4e30)  # its square overflows float32
    np.save(tmp_path / "f.npy", features)
    store = store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys, normalise="l2")
    np.testing.assert_allclose(store.features[:, 0], [[0.6, 0.8]] * 5, rtol=1e-3)
    assert not store.features[:, 1].any()


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "complex64"])
def test_numbers_of_another_kind_are_refused_with_their_type(tmp_path: Path, keys: Path, dtype: str) -> None:
    array = np.zeros((5, 3), dtype)
    np.save(tmp_path / "f.npy", array)
    torch.save(torch.from_numpy(array), tmp_path / "f.pt")
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f/a.npy", array)
    for name in ("f.npy", "f.pt"):
        wanted, end = rf"{name} should hold features of a type among float16.*, but holds", rf"{dtype}\."
        if (name, dtype) == ("f.pt", "complex64"):  # not even plain numbers
            wanted, end = rf"{name} should hold plain numbers, but 'tensor' is of type", r"torch\.complex64\."
        refused(f"{wanted} {end}", tmp_path / name, keys=keys)
    refused(rf"a\.npy should hold features of a type among float16.*, but holds {dtype}\.", tmp_path / "f")


def test_structured_array_is_refused(tmp_path: Path, keys: Path) -> None:
    np.save(tmp_path / "f.npy", np.zeros((5, 3), [("a", "f4")]))
    refused(r"f\.npy should hold features of a type among .*, but holds void32", tmp_path / "f.npy", keys=keys)


class Hostile:
    """A pickle that would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_that_wants_to_run_code_is_refused_unexecuted(tmp_path: Path, keys: Path, zipped: bool) -> None:
    trap = tmp_path / "pwned"
    (tmp_path / "f").mkdir()
    for name in ("f.pt", "f/a.pt"):
        torch.save(Hostile(trap), tmp_path / name, _use_new_zipfile_serialization=zipped)
        path = tmp_path / name if name == "f.pt" else tmp_path / "f"
        message = r"a?\.pt should hold tensors alone, but asks to run \w+\.mkdir when loaded\. Nothing was run"
        refused(message, path, keys=keys if name == "f.pt" else None)
    (tmp_path / "f/a.pt").unlink()
    np.save(tmp_path / "f.npy", np.array([Hostile(trap)] * 5, dtype=object), allow_pickle=True)
    refused(r"f\.npy should hold a plain array, but can't be read: .*Python objects", tmp_path / "f.npy", keys=keys)
    for name in ("a.npy", "a.npz"):
        write = np.save if name == "a.npy" else np.savez
        write(tmp_path / "f" / name, np.array([Hostile(trap)], dtype=object), allow_pickle=True)
        refused(rf"{name} should hold numbers, but holds Python objects", tmp_path / "f")
        (tmp_path / "f" / name).unlink()
    assert not trap.exists()


def test_tensor_file_that_holds_something_else_is_refused(tmp_path: Path, keys: Path) -> None:
    path = tmp_path / "f.pt"
    torch.save([torch.zeros(5, 3)], path)
    refused(r"f\.pt should hold one dense tensor, or tensors by name, but holds a list", path, keys=keys)
    torch.save({"a": 1}, path)
    refused(r"f\.pt should hold one dense tensor, or tensors by name, but holds a int", path, keys=keys)
    torch.save(torch.zeros(5, 3).to_sparse(), path)
    refused(r"f\.pt should hold one dense tensor, .* but holds a Tensor", path, keys=keys)
    torch.save({}, path)
    refused(r"f\.pt holds nothing, but none was chosen", path, keys=keys)
    for content in (b"", b"garbage", b"PK\x03\x04garbage"):
        path.write_bytes(content)
        refused(r"f\.pt should hold a plain array, but can't be read: broken or truncated", path, keys=keys)


def test_files_of_different_feature_sizes_are_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f/a.npy", np.ones((2, 3)))
    np.save(tmp_path / "f/b.npy", np.ones((2, 5)))
    refused(r"features of one size, but .*a\.npy has 3 and .*b\.npy 5\.", tmp_path / "f")


def test_shapes_that_are_no_features_are_refused(tmp_path: Path, keys: Path) -> None:
    for shape in ((5,), (5, 0), (0, 3), (5, 1, 2, 3, 4)):
        np.save(tmp_path / "f.npy", np.zeros(shape, np.float32))
        printed = str(shape).replace("(", r"\(").replace(")", r"\)")
        refused(
            rf"f\.npy should have shape \(I, F\) or \(I, R, F\), none of them 0, but has {printed}",
            tmp_path / "f.npy",
            keys=keys,
        )
    (tmp_path / "f").mkdir()
    for shape in ((), (3, 0)):
        np.save(tmp_path / "f/a.npy", np.zeros(shape, np.float32))
        printed = str(shape).replace("(", r"\(").replace(")", r"\)")
        refused(rf"a\.npy should have shape \(F,\) or \(R, F\), but has {printed}", tmp_path / "f")


def test_keys_that_do_not_fit_are_refused(tmp_path: Path, features: np.ndarray, keys: Path) -> None:
    np.save(tmp_path / "f.npy", features[:4])
    refused(r"f\.npy has 4 rows, but there are 5 keys", tmp_path / "f.npy", keys=keys)
    refused(r"f\.npy needs the image key of each row: a file with one key a line", tmp_path / "f.npy")
    keys.write_text("a\nb\na\nc\n")
    refused(
        r"keys\.txt: image keys should be unique, but 'a' is number 1 and again number 3", tmp_path / "f.npy", keys=keys
    )
    keys.write_text("a\n\nb\nc\n")
    refused(r"keys\.txt: image key number 2 should be UTF-8, not empty", tmp_path / "f.npy", keys=keys)
    keys.write_text("")
    refused(r"keys\.txt should have one image key a line, but is empty", tmp_path / "f.npy", keys=keys)
    refused(r"nokeys can't be read: No such file", tmp_path / "f.npy", keys=tmp_path / "nokeys")


def test_paths_that_do_not_fit_are_refused(tmp_path: Path, keys: Path) -> None:
    refused(
        r"gone should be a \.npy, \.pt or \.pth file, .*, or a folder of one file per image, but doesn't exist",
        tmp_path / "gone",
    )
    np.savez(tmp_path / "f.npz", np.zeros((5, 3)))
    refused(
        r"f\.npz should end in \.npy, \.pt or \.pth.*numpy\.save: a \.npz can't be read piece by piece",
        tmp_path / "f.npz",
    )
    (tmp_path / "f").mkdir()
    refused(r"f should have one \.npy, \.npz, \.pt, .* file per image, but has none that fits\.$", tmp_path / "f")
    np.save(tmp_path / "f/9.jpg.npy", np.zeros(3))
    refused(
        r"none that fits\. A file there is '9\.jpg' by its key, the first key wanted is '3\.jpg'",
        tmp_path / "f",
        keys=keys,
    )
    np.savez(tmp_path / "f/9.jpg.npz", np.zeros(3))
    refused(r"one file per image, but 9\.jpg\.np[yz] and 9\.jpg\.np[yz] are both of 9\.jpg", tmp_path / "f")
    np.save(tmp_path / "f.npy", np.zeros((5, 3)))
    refused(r"the normalisation should be one of no, l2, but is l1", tmp_path / "f.npy", keys=keys, normalise="l1")


def test_interrupted_import_continues_to_the_same_bytes(
    tmp_path: Path, features: np.ndarray, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "f.npy", features)
    store_of(tmp_path / "f.npy", tmp_path / "whole", keys=keys)
    write, written = importers.StoreWriter.write, []

    def interrupted(self: importers.StoreWriter, *arguments: object) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(write(self, *arguments))

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(importers.StoreWriter, "write", interrupted)
        store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys)
    assert not (tmp_path / "out").exists()
    store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys)
    for name in ("features.npy", "keys.txt", "meta.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    np.save(tmp_path / "f.npy", features + 1)
    with pytest.raises(InputError, match=r"out was made with other choices \(other arrays\)\."):
        store_of(tmp_path / "f.npy", tmp_path / "out", keys=keys)


def test_sample_digest_notices_size_begin_and_end(tmp_path: Path) -> None:
    path, digests = tmp_path / "f", set()
    content = bytearray(1_000_000)
    for change in (None, 0, len(content) - 1, "longer"):
        if isinstance(change, int):
            content[change] = 1
        path.write_bytes(content + b"x" if change == "longer" else content)
        digests.add(sample_digest(path))
        assert sample_digest(path) in digests
    assert len(digests) == 4


@pytest.mark.data
def test_real_features_come_through_unchanged(real_data: Path, tmp_path: Path) -> None:
    lines = (real_data / "flickr8k/images.tsv").read_text().splitlines()[1:]
    (tmp_path / "keys.txt").write_text("".join(line.split("\t")[1] + "\n" for line in lines))
    for name, regions in (("mobilenet1.0_pooled1024", 1), ("mobilenet1.0_grid4x4_pca192", 16)):
        path = real_data / f"flickr8k/features/{name}.npy"
        import_features(open_arrays(path, tmp_path / "keys.txt"), tmp_path / name)
        store = FeatureStore(tmp_path / name)
        assert store.num_regions == regions
        rows = np.array([0, 4000, 7347])
        np.testing.assert_array_equal(
            store.gather(rows)[0].reshape(3, -1), np.load(path, mmap_mode="r")[rows].reshape(3, -1)
        )
