"""Boxes of a collection from a table: the right lines for the right image, whatever their order; mistakes with line."""

from pathlib import Path

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.features.box_lines import read_box_lines
from visual_grounding.features.columns import Columns
from visual_grounding.features.region_table import RegionTable

KEYS = ["b.jpg", "a.jpg", "none.jpg"]
HEADER = "image x1 y1 x2 y2 label score width height attribute"
LINES = [
    "a.jpg 10 20 60 80 dog 0.5 100 100 wet",
    "b.jpg 0 0 200 50 man 0.75 200 50 -",
    "other.jpg 0 0 1 1 cat 1 1 1 -",
    "a.jpg 0 0 50 100 - 0.25 100 100 old",
]


def write(path: Path, *lines: str) -> Path:
    """A table whose cells are separated by blanks here; - is an empty cell."""
    path.write_text(
        "".join("\t".join("" if cell == "-" else cell for cell in line.split(" ")) + "\n" for line in lines)
    )
    return path


def test_table_becomes_columns_in_the_order_of_the_keys(tmp_path: Path) -> None:
    table = RegionTable(write(tmp_path / "t.tsv", HEADER, *LINES), KEYS)
    assert table.counts.tolist() == [1, 2, 0] and (table.left_out, table.images) == (1, 3)
    # Names are those that occur in the collection's images, sorted: dog 0, man 1; old 0, wet 1.
    assert table.columns == Columns(("boxes", "labels", "attributes", "scores"), ["dog", "man"], ["old", "wet"])
    assert table.sizes is not None and table.sizes.tolist() == [[200, 50], [100, 100], [0, 0]]
    found = table.block(0, 3, 3)
    assert found["boxes"].tolist() == [
        [[0, 0, 200, 50], [0] * 4, [0] * 4],
        [[10, 20, 60, 80], [0, 0, 50, 100], [0] * 4],
        [[0] * 4] * 3,
    ]
    assert found["labels"].tolist() == [[1, -1, -1], [0, -1, -1], [-1] * 3]
    assert found["attributes"].tolist() == [[-1, -1, -1], [1, 0, -1], [-1] * 3]
    assert found["scores"].tolist() == [[0.75, 0, 0], [0.5, 0.25, 0], [0] * 3]
    assert {name: part.tolist() for name, part in table.block(1, 2, 2).items()} == {
        name: part[1:2, :2].tolist() for name, part in found.items()
    }


def test_names_that_are_given_keep_their_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", HEADER, *LINES)
    table = RegionTable(path, KEYS, ["cat", "man", "dog", "man"], ["wet", "old"])
    assert table.columns.label_names == ["cat", "man", "dog", "man"]
    assert table.block(0, 3, 2)["labels"].tolist() == [[1, -1], [2, -1], [-1, -1]]
    assert table.block(0, 3, 2)["attributes"].tolist() == [[-1, -1], [0, 1], [-1, -1]]
    with pytest.raises(
        InputError, match=r"t\.tsv:2: label should be one of the 2 label names, such as 'man'"
    ) as caught:
        RegionTable(path, KEYS, ["man", "cat"])
    assert caught.value.choices == ("label_names", "unknown_labels")


def test_names_that_are_not_given_may_be_none_and_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", HEADER, *LINES)
    table = RegionTable(path, KEYS, ["man", "cat"], ["wet"], unknown_as_none=True)
    assert (table.unknown, table.lines) == (2, 3)  # a dog, and something old; empty cells aren't unknown
    assert table.block(0, 3, 2)["labels"].tolist() == [[0, -1], [-1, -1], [-1, -1]]
    assert RegionTable(path, KEYS, unknown_as_none=True).unknown == 0


def test_phrases_of_entities_are_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "image x1 y1 x2 y2 phrase", "a.jpg 0 0 1 1 hat", "b.jpg 0 0 1 1 dog")
    assert RegionTable(path, KEYS).columns.label_names == ["dog", "hat"]
    both = write(tmp_path / "b.tsv", "image x1 y1 x2 y2 phrase label", "a.jpg 0 0 1 1 hat thing")
    assert RegionTable(both, KEYS).columns.label_names == ["thing"]


def test_table_of_boxes_alone_may_call_its_images_keys(tmp_path: Path) -> None:
    table = RegionTable(write(tmp_path / "t.tsv", "x2 y2 key x1 y1", "0.5 0.75 a.jpg 0.25 0.5"), KEYS)
    assert table.columns == Columns(("boxes",)) and table.sizes is None
    assert table.block(1, 2, 1)["boxes"].tolist() == [[[0.25, 0.5, 0.5, 0.75]]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["image x1 y1 x2", "a.jpg 0 0 1"], r"t\.tsv should begin with the columns image, x1, .* but y2 is missing"),
        (["x1 y1 x2 y2", "0 0 1 1"], r"should begin with the columns image, x1, .* but image is missing"),
        (["image x1 y1 x2 y2 x1", "a.jpg 0 0 1 1 2"], r"has a column twice: image, x1, y1, x2, y2, x1"),
        (["image x1 y1 x2 y2"], r"t\.tsv should hold boxes, but has only a header"),
        ([], r"should begin with the columns"),
        (["image x1 y1 x2 y2", "a.jpg 0 0 1"], r"t\.tsv:2 should have 5 columns, as its header, but has 4"),
        (["image x1 y1 x2 y2", "a.jpg 0 0 one 1"], r"t\.tsv:2: x2 should be a number, but is 'one'"),
        (["image x1 y1 x2 y2", "a.jpg 0 0 nan 1"], r"t\.tsv:2: x2 should be a number, but is 'nan'"),
        (["image x1 y1 x2 y2", "a.jpg 0 5 9 5"], r"t\.tsv:2 should have a box with x1 < x2 and y1 < y2, but"),
        (["image x1 y1 x2 y2 score", "a.jpg 0 0 1 1 -"], r"t\.tsv:2: score should be a number, but is ''"),
        (["image x1 y1 x2 y2 width", "a.jpg 0 0 1 1 5"], r"should have both columns width and height, or neither"),
        (
            ["image x1 y1 x2 y2 width height", "a.jpg 0 0 1 1 5 0"],
            r"t\.tsv:2: width and height should be above 0, but are 5 and 0",
        ),
        (
            ["image x1 y1 x2 y2 width height", "a.jpg 0 0 1 1 5 4", "a.jpg 0 0 1 1 4 5"],
            r"t\.tsv:3: an image should have one size, but here it is 4x5, and in an earlier line 5x4",
        ),
        (
            ["image x1 y1 x2 y2", "z.jpg 0 0 1 1", "y.jpg 0 0 1 1"],
            r"none of its 2 images is among the 3 keys\. The first of these is 'b\.jpg'; one of the table's is 'y",
        ),
    ],
)
def test_mistakes_in_a_table_are_refused_with_their_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RegionTable(write(tmp_path / "t.tsv", *lines), KEYS)


@pytest.mark.data
def test_real_boxes_of_flickr30k_entities_equal_a_plain_reading(real_data: Path) -> None:
    path = real_data / "downstream/flickr30k_entities/boxes_val.tsv"
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    keys = sorted({line[0] for line in lines})
    table = RegionTable(path, keys)
    assert sum(table.counts) == len(lines) == sum(1 for _ in read_box_lines(path, ["image", "phrase"])) > 10_000
    phrases = table.columns.label_names
    assert phrases == sorted({line[5] for line in lines}) and table.block(100, 101, 1)["labels"].min() >= 0
    regions = int(table.counts.max())
    found = table.block(100, 160, regions)["boxes"]
    for row in range(60):
        own = [[float(number) for number in line[1:5]] for line in lines if line[0] == keys[100 + row]]
        np.testing.assert_array_equal(found[row, : len(own)], own)
        assert not found[row, len(own) :].any()
