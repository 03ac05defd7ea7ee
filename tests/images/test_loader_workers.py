"""Every kind of source gives the same pictures to 0, 1 and 4 loader workers, forked or spawned, and to threads."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from tests.images.containers import encoded, picture, write_parquet, write_tar, write_zip
from visual_grounding.errors import InputError
from visual_grounding.images.sources import ImageSource, UnreadableImage, open_images, read_image

PICTURES = 160
KEYS = [f"{number % 3}/{number:03}.png" for number in range(PICTURES)]


def contents() -> dict[str, bytes]:
    """Pictures of different sizes, each with its own pixels; numbers 5 and 100 are broken."""
    made = {key: encoded(picture(20 + number % 9, 30, number)) for number, key in enumerate(KEYS)}
    made[KEYS[5]], made[KEYS[100]] = b"", made[KEYS[100]][:60]
    return made


def folder(root: Path) -> Path:
    for key, content in contents().items():
        (root / "photos" / key).parent.mkdir(parents=True, exist_ok=True)
        (root / "photos" / key).write_bytes(content)
    return root / "photos"


def list_of_paths(root: Path) -> Path:
    folder(root)
    (root / "photos.txt").write_text("".join(f"photos/{key}\n" for key in KEYS))
    return root / "photos.txt"


def stored_zip(root: Path) -> Path:
    return write_zip(root / "photos.zip", contents())


def deflated_zip(root: Path) -> Path:
    import zipfile

    return write_zip(root / "photos.zip", contents(), zipfile.ZIP_DEFLATED)


def tar(root: Path) -> Path:
    return write_tar(root / "photos.tar", contents())


def webdataset(root: Path) -> Path:
    (root / "tars").mkdir()
    members = list(contents().items())
    for number in range(4):
        write_tar(root / f"tars/{number}.tar", dict(members[40 * number : 40 * number + 40]))
    return root / "tars"


def parquet(root: Path) -> Path:
    (root / "tables").mkdir()
    members = list(contents().items())
    for number in range(2):
        part = members[80 * number : 80 * number + 80]
        write_parquet(root / f"tables/{number}.parquet", [c for _, c in part], [key for key, _ in part], group=32)
    return root / "tables"


# torch warns of more workers than cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
KINDS = [folder, list_of_paths, stored_zip, deflated_zip, tar, webdataset, parquet]


class Pictures(Dataset):
    """Rows of a source as a data loader asks for them: pixels, or the reason why there are none."""

    def __init__(self, images: ImageSource) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images.keys)

    def __getitem__(self, row: int) -> tuple[str, bytes | str]:
        try:
            return self.images.keys[row], read_image(self.images, row).tobytes()
        except UnreadableImage as reason:
            return self.images.keys[row], str(reason)


def expected() -> dict[str, bytes | str]:
    """What Pillow itself sees in each file; a reason's beginning where there is nothing to see."""
    wanted: dict[str, bytes | str] = {key: picture(20 + n % 9, 30, n).tobytes() for n, key in enumerate(KEYS)}
    wanted[KEYS[5]], wanted[KEYS[100]] = "empty file", "broken or truncated: "
    return wanted


def check(found: list[tuple[str, bytes | str]], keys: list[str]) -> None:
    """Keys come as `keys` says, and each with its own pixels or reason."""
    wanted = expected()
    assert [key.partition("photos/")[2] or key for key, _ in found] == keys
    for key, (_, seen) in zip(keys, found):
        if isinstance(seen, str):
            assert seen.startswith(str(wanted[key])), (key, seen)
        else:
            assert seen == wanted[key], key


def rows_in(source: ImageSource) -> list[str]:
    return [key.partition("photos/")[2] or key for key in source.keys]


@pytest.mark.parametrize("make", KINDS)
def test_every_source_gives_the_same_pictures_to_any_number_of_forked_workers(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    images = open_images(make(tmp_path))
    for row in (3, PICTURES - 1):  # something is open, and at some place, when the workers are forked
        read_image(images, row)
    for workers in (0, 1, 4):
        loader = DataLoader(
            Pictures(images), batch_size=None, num_workers=workers, multiprocessing_context=_how(workers)
        )
        check(list(loader), rows_in(images))
    assert sorted(rows_in(images)) == sorted(KEYS)


def _how(workers: int) -> str | None:
    return "fork" if workers else None


@pytest.mark.parametrize("make", KINDS)
def test_every_source_gives_the_same_pictures_where_it_is_pickled_and_to_threads(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    images = open_images(make(tmp_path))
    read_image(images, 7)
    again = pickle.loads(pickle.dumps(images))  # what a spawned worker gets
    assert (list(again.keys), again.digest) == (list(images.keys), images.digest)
    rows = np.random.default_rng(0).permutation(PICTURES).tolist()
    for source in (images, again):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(Pictures(source).__getitem__, rows))
        check(found, [rows_in(images)[row] for row in rows])


def test_worker_reads_parquet_though_it_was_forked_while_another_thread_read(tmp_path: Path) -> None:
    images = open_images(parquet(tmp_path))
    with images._rows._lock:  # type: ignore[attr-defined]  # which nobody would free in the worker
        loader = DataLoader(Pictures(images), batch_size=None, num_workers=1, timeout=30)
        check(list(loader), rows_in(images))


def test_spawned_workers_read_a_zip_and_parquet(tmp_path: Path) -> None:
    for make in (deflated_zip, parquet):
        images = open_images(make(tmp_path))
        loader = DataLoader(Pictures(images), batch_size=None, num_workers=2, multiprocessing_context="spawn")
        check(list(loader), rows_in(images))


def test_zip_that_vanishes_is_an_error_and_not_many_unreadable_images(tmp_path: Path) -> None:
    images = open_images(stored_zip(tmp_path))
    (tmp_path / "photos.zip").unlink()
    with pytest.raises(InputError, match=r"photos\.zip was there, but is gone\. Bring it back; what is done stays\."):
        read_image(images, 0)


def test_zip_cut_short_during_the_run_makes_its_images_unreadable(tmp_path: Path) -> None:
    path = stored_zip(tmp_path)
    images = open_images(path)
    first = len(contents()[images.keys[0]])
    with open(path, "r+b") as file:
        file.truncate(first + 60)  # the first member, its header, and a bit of the second's
    assert isinstance(read_image(images, 0), Image.Image)
    with pytest.raises(UnreadableImage, match=r"^broken or truncated: "):
        read_image(images, 1)
