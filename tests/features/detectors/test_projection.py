"""A fixed projection of region features: by hand, and files that are none."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from visual_grounding.errors import InputError
from visual_grounding.features.detectors.projection import read_projection

PARTS = {
    "mean": torch.tensor([1.0, 2.0, 3.0]),
    "components": torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]]),
    "block_std": torch.tensor([2.0, 0.5]),
}


def write(path: Path, **changes: Any) -> Path:
    """A file of the parts; one that is None is left out."""
    save_file({name: part for name, part in {**PARTS, **changes}.items() if part is not None}, path)
    return path


def test_projection_scales_blocks_then_subtracts_the_mean_then_projects(tmp_path: Path) -> None:
    path = write(tmp_path / "pca.safetensors")
    # (4 6 | 1) -> (4/2 6/2 | 1/0.5) = (2 3 2) -> minus the mean (1 1 -1) -> (1 - 1, 2)
    blocks = [torch.tensor([[4.0, 6.0]]), torch.tensor([[1.0]])]
    assert read_projection(path)(blocks).tolist() == [[0.0, 2.0]]
    first = read_projection(path, 1)
    assert first(blocks).tolist() == [[0.0]] and first.size == 1
    assert read_projection(path).digest == first.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": None}, r"should have mean \(C,\), .*, but has mean missing, components \(2, 3\), block_std \(2,\)"),
        ({"mean": torch.zeros(4)}, r"but has mean \(4,\), components \(2, 3\)"),
        ({"components": torch.zeros(3)}, r"but has mean \(3,\), components \(3,\)"),
        ({"block_std": torch.tensor([1.0, 0.0])}, r"should have a block_std above 0, but has \[1\.0, 0\.0\]"),
        ({"mean": torch.tensor([1.0, float("nan"), 0.0])}, r"1 of 3 have NaN or infinity \(mean\)"),
    ],
)
def test_file_that_is_no_projection_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_projection(write(tmp_path / "pca.safetensors", **changes))


@pytest.mark.parametrize(
    ("size", "message"), [(3, r"3 numbers a region .* has 2 components"), (0, r"feature size .* 0")]
)
def test_more_or_fewer_components_than_there_are_are_refused(tmp_path: Path, size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_projection(write(tmp_path / "pca.safetensors"), size)


@pytest.mark.parametrize("sizes", [[2, 2], [3], [1, 1, 1]])
def test_projection_of_other_maps_is_refused(tmp_path: Path, sizes: list[int]) -> None:
    projection = read_projection(write(tmp_path / "pca.safetensors"))
    projection.check([2, 1], ["a", "b"])
    total = sum(sizes)
    with pytest.raises(InputError, match=rf"is for 2 maps with 3 numbers together, .*: {len(sizes)} with {total}"):
        projection.check(sizes, ["a", "b", "c"])
