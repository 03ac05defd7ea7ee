"""The pictures of a task, as its flags name them, and messages that name the flags."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from visual_grounding.data.pictures import Pictures, PicturesConfig
from visual_grounding.errors import InputError

SMALL = {"image_backbone": "resnet18", "image_backbone_weights": "none"}


def picture(red: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (red, 0, 0)).save(file, "png")
    return file.getvalue()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two columns of pictures, and one of names."""
    columns = {"left": [picture(10), picture(20)], "right": [picture(30), picture(40)], "name": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return str(tmp_path / "t.parquet")


def test_columns_of_parquet_are_chosen_by_flags(table: str) -> None:
    cfg = PicturesConfig(image_folder=table, image_column="right", key_column="name", **SMALL)
    pictures = Pictures(cfg)
    assert list(pictures.source.keys()) == ["x", "y"]
    assert pictures.source.images.read(1) == picture(40)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, r"2 columns that may hold images: left, right\. Choose one\. See --image-column\.$"),
        ({"image_column": "middle"}, r"no image column middle; it has .* See --image-column\.$"),
        ({"image_column": "left", "key_column": "id"}, r"no key column id; it has .* See --key-column\.$"),
        ({"image_backbone": "resnet7"}, r"See --image-backbone\.$"),
        ({"image_backbone_weights": "BEST"}, r"See --image-backbone-weights\.$"),
    ],
)
def test_mistakes_say_which_flag_mends_them(table: str, flags: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pictures(PicturesConfig(image_folder=table, **{**SMALL, **flags}))
