"""Bottom-up attention's tables in base64."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest

from tests.features.imports.published import ATTRIBUTES, LABELS, bottom_up, check_store, import_all, write_tsv
from visual_grounding.errors import InputError
from visual_grounding.features.imports.region_tsv import BOTTOM_UP, LXMERT, RegionTsv, is_tsv

ALL = ("boxes", "labels", "attributes", "scores")


def test_both_known_forms_come_through_without_a_header(tmp_path: Path) -> None:
    check_store(import_all(write_tsv(tmp_path / "a.tsv", BOTTOM_UP), tmp_path / "six"), "boxes")
    store = import_all(write_tsv(tmp_path / "b.tsv.1", LXMERT), tmp_path / "ten")
    check_store(store, *ALL)
    assert store.label_names == LABELS and store.attribute_names == ATTRIBUTES and store.num_regions == 3


def test_other_columns_are_named_by_a_header_or_by_the_user(tmp_path: Path) -> None:
    names = ("features", "boxes", "image_id", "num_boxes", "image_h", "image_w", "attrs_id")
    check_store(
        import_all(write_tsv(tmp_path / "a.tsv", names, header=True), tmp_path / "header"), "boxes", "attributes"
    )
    path = write_tsv(tmp_path / "b.tsv", names)
    check_store(import_all(path, tmp_path / "named", fields=names), "boxes", "attributes")
    message = r"b\.tsv should have a first line with the names of its columns, or 6 \(image_id, .* or 10 .*, but has 7"
    with pytest.raises(InputError, match=message) as caught:
        import_all(path, tmp_path / "out")
    assert caught.value.choices == ("fields",)


def test_images_are_chosen_and_named_by_their_keys(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", LXMERT)
    (tmp_path / "keys.txt").write_text("0003.jpg\n9999.jpg\n0007.jpg\n")
    store = import_all(path, tmp_path / "out", tmp_path / "keys.txt", key_format="{id:04d}.jpg")
    assert list(store.keys()) == ["0003.jpg", "9999.jpg", "0007.jpg"]
    assert store.features.any(axis=2).sum(axis=1).tolist() == [1, 0, 2]
    assert (tmp_path / "out/unreadable.tsv").read_text() == "9999.jpg\tmissing\n"
    (tmp_path / "keys.txt").write_text("a\n")
    message = r"none of these 1\. A key there is '7', the first that is asked for is 'a'"
    with pytest.raises(InputError, match=message) as caught:
        import_all(path, tmp_path / "none", tmp_path / "keys.txt")
    assert caught.value.choices == ("keys", "key_format")


def test_more_regions_than_wanted_need_scores(tmp_path: Path) -> None:
    store = import_all(write_tsv(tmp_path / "a.tsv", LXMERT), tmp_path / "out", regions=2, min_score=0.2)
    scores = store.column("scores")
    assert store.num_regions == 2 and (scores[scores > 0] >= 0.2).all()
    with pytest.raises(InputError, match=r"2 regions at most, as was said, but row 1 \(12\) has 3, and no scores say"):
        import_all(write_tsv(tmp_path / "b.tsv", BOTTOM_UP), tmp_path / "none", regions=2)


def test_width_and_height_the_wrong_way_round_are_noticed(tmp_path: Path) -> None:
    """A box ends beyond the picture."""
    swapped = ("image_id", "image_h", "image_w", "num_boxes", "boxes", "features")
    with pytest.raises(
        InputError, match=r"boxes should be x0 y0 x1 y1 in 0\.\.1 .* but row \d \(\d+\), region \d, has"
    ):
        import_all(write_tsv(tmp_path / "a.tsv", swapped), tmp_path / "out", fields=BOTTOM_UP)


def change(path: Path, row: int, **cells: object) -> None:
    lines = path.read_bytes().split(b"\n")
    parts = lines[row].split(b"\t")
    for name, cell in cells.items():
        parts[LXMERT.index(name)] = cell if isinstance(cell, bytes) else str(cell).encode()
    lines[row] = b"\t".join(parts)
    path.write_bytes(b"\n".join(lines))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"features": bottom_up(1)["features"][:-8]}, r"\d+ bytes of features aren't float32 of 3 regions"),
        ({"features": "!!!"}, "features are no base64: "),
        ({"boxes": base64.b64encode(bytes(50))}, "50 bytes of boxes aren't any of float32, float64, float16 for 3"),
        ({"objects_id": base64.b64encode(bytes(9))}, "9 bytes of labels aren't any of int64, int32, int16 for 3"),
        ({"num_boxes": 0}, "it has 0 regions"),
        ({"num_boxes": "nan"}, "it has nan regions"),
        ({"num_boxes": "inf"}, "it has inf regions"),
        ({"img_w": "wide"}, r"width or height should be a number, but is b'wide'"),
    ],
)
def test_broken_line_is_unreadable_and_shifts_no_row(tmp_path: Path, cells: dict, reason: str) -> None:
    path = write_tsv(tmp_path / "a.tsv", LXMERT)
    change(path, 1, **cells)
    store = import_all(path, tmp_path / "out", regions=3)
    assert store.features.any(axis=(1, 2)).tolist() == [True, False, True]
    key, _, said = (tmp_path / "out/unreadable.tsv").read_text().rstrip("\n").partition("\t")
    assert key == "12" and re.match(reason, said)


@pytest.mark.parametrize("count", ["99999999", "9" * 5000])
def test_number_of_regions_that_its_line_can_not_hold_makes_no_store_of_so_many(tmp_path: Path, count: str) -> None:
    path = write_tsv(tmp_path / "a.tsv", LXMERT)
    change(path, 1, num_boxes=count)
    store = import_all(path, tmp_path / "out")
    assert store.num_regions == 2 and store.features.any(axis=(1, 2)).tolist() == [True, False, True]


def test_int32_and_float16_are_known_by_their_length(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", LXMERT)
    own = bottom_up(1, encoded=False)
    short = {"objects_id": np.int32, "attrs_id": np.int16, "objects_conf": np.float16, "boxes": np.float64}
    change(path, 1, **{name: base64.b64encode(own[name].astype(kind).tobytes()) for name, kind in short.items()})
    check_store(import_all(path, tmp_path / "out"), *ALL)


def test_file_that_is_no_such_table_is_refused(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", LXMERT)
    for change_of, message in (
        (lambda text: text.replace(b"\n12\t", b"\n7\t"), r"image keys should be unique, but '7' is number 1 and again"),
        (
            lambda text: text[: text.rindex(b"\t")],
            r"broken\.tsv:3 should have 10 columns, .* but has 9\. Is",
        ),
        (lambda text: b"", r"should hold features of images, but holds none"),
    ):
        broken = tmp_path / "broken.tsv"
        broken.write_bytes(change_of(path.read_bytes()))
        with pytest.raises(InputError, match=message):
            import_all(broken, tmp_path / "out")
    with pytest.raises(InputError, match=r"column with the number of its regions, named num_detections or num_boxes"):
        import_all(path, tmp_path / "out", fields=("image_id", *"abcdefghi"))
    with pytest.raises(InputError, match=r"should have a name each, but are a, a"):
        import_all(path, tmp_path / "out", fields=("a", "a"))
    assert not is_tsv(tmp_path / "gone.tsv") and is_tsv(path)
    with pytest.raises(
        InputError,
        match=r"ids should be numbers of at most 100 digits, since keys are made as {id:03d}, but one is 'x'",
    ):
        import_all(_renamed(path), tmp_path / "out", key_format="{id:03d}")


def _renamed(path: Path) -> Path:
    path.write_bytes(path.read_bytes().replace(b"\n12\t", b"\nx\t"))
    return path


def test_interrupted_import_continues_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tsv(tmp_path / "a.tsv", LXMERT)
    import_all(path, tmp_path / "whole")

    block = RegionTsv.block

    def failing(self: RegionTsv, start: int, stop: int):
        if start:
            raise KeyboardInterrupt
        return block(self, start, stop)

    monkeypatch.setattr(RegionTsv, "block", failing)
    with pytest.raises(KeyboardInterrupt):
        import_all(path, tmp_path / "out")
    monkeypatch.setattr(RegionTsv, "block", lambda self, start, stop: block(self, start, stop) if start else 1 / 0)
    import_all(path, tmp_path / "out")  # the first shard isn't read again
    names = sorted(file.name for file in (tmp_path / "whole").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "out").iterdir()) and len(names) >= 8
    assert all((tmp_path / "whole" / name).read_bytes() == (tmp_path / "out" / name).read_bytes() for name in names)
