"""Visual Genome's objects, Flickr30k Entities' boxes, and sizes of pictures, as they were published."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.imports.published import IDS, RECORDS, SIZES, import_all
from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.columns import Columns
from visual_grounding.features.importers import import_features
from visual_grounding.features.imports import annotations
from visual_grounding.features.imports.annotations import entities_lines, genome_lines, read_sizes, stream_json
from visual_grounding.features.imports.image_keys import KeyFormat
from visual_grounding.features.region_table import RegionTable
from visual_grounding.features.store import FeatureStore

GENOME = [
    {"image_id": 7, "objects": [{"x": 0, "y": 10, "w": 100, "h": 40, "names": ["man", "person"], "object_id": 1}]},
    {"image_id": 12, "objects": []},
    {
        "id": 3,
        "objects": [{"x": 5.5, "y": 0, "w": 1, "h": 2, "name": "dog"}, {"x": 0, "y": 0, "w": 9, "h": 9, "names": []}],
    },
]


@pytest.mark.parametrize("piece", [1, 7, 100, 1 << 20])
def test_json_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(annotations, "_PIECE", piece)
    objects = [{"a": "é]},{["}, {}, {"b": [1.5, {"c": None}]}]
    for indent in (None, 2):
        (tmp_path / "a.json").write_text(" " + json.dumps(objects, indent=indent, ensure_ascii=False) + "\n")
        assert list(stream_json(tmp_path / "a.json")) == objects
    (tmp_path / "a.json").write_text("[]")
    assert list(stream_json(tmp_path / "a.json")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}', r"should be a JSON list of objects, but begins with '{\"a\": 1}'"),
        (b"[{}, 7, {}]", r"but number 1 is '7'"),
        (b'[{}, {"a": 1', r"but is broken or cut off after 1 of them"),
        (b'[{}, {"a": "x\\ud800"}]', r"but number 1 can't be read: it has half a character"),
        (b"[{}, {a}]", r"but is broken or cut off after 1 of them"),
        (b"", r"but is broken or cut off after 0 of them"),
        (b'[{"a": "\xff"}]', r"should be UTF-8, but isn't"),
        (b"[" + b'{"a":' * 100_000, r"broken or cut off after 0"),
    ],
)
def test_what_is_no_list_of_objects_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.json .*{message}") as told:
        list(stream_json(tmp_path / "a.json"))
    assert str(told.value).count("a.json") == 1  # said once


def test_objects_of_visual_genome_become_lines(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(GENOME))
    lines = list(genome_lines(path, KeyFormat("{id}.jpg")))
    assert [line.cells for line in lines] == [
        {"image": "7.jpg", "label": "man"},
        {"image": "3.jpg", "label": "dog"},
        {"image": "3.jpg", "label": ""},
    ]
    assert [tuple(line.box) for line in lines] == [(0, 10, 100, 50), (5.5, 0, 6.5, 2), (0, 0, 9, 9)]
    table = RegionTable(path, ["3.jpg", "7.jpg"], key_format=KeyFormat("{id}.jpg"))
    assert table.columns.label_names == ["dog", "man"] and table.counts.tolist() == [2, 1]
    assert table.block(0, 2, 2)["labels"].tolist() == [[0, -1], [1, -1]]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"image_id": 7}, r"image 0 should have image_id and objects, but has image_id"),
        ({"image_id": 7, "objects": [3]}, r"object 0 should have x, y, w, h and names, but is 3"),
        (
            {"image_id": 7, "objects": [{"x": 0, "y": 0, "w": 1}]},
            r"object 0: h should be a number, but is None",
        ),
        ({"image_id": 7, "objects": [{"x": 0, "y": 0, "w": 0, "h": 1}]}, r"should have a box with x1 < x2 and y1 < y2"),
    ],
)
def test_broken_object_is_refused_with_its_place(tmp_path: Path, image: Any, message: str) -> None:
    (tmp_path / "objects.json").write_text(json.dumps([image]))
    with pytest.raises(InputError, match=rf"objects\.json, .*{message}"):
        list(genome_lines(tmp_path / "objects.json", KeyFormat()))


ANNOTATION = """<annotation><filename>9.jpg</filename><size><width>200</width><height>100</height></size>
<object><name>11</name><name>12</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>
</object>
<object><name>13</name><scene>1</scene><nobndbox>1</nobndbox></object>
<object><name>14</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>200</xmax><ymax>100</ymax></bndbox></object>
</annotation>"""
SENTENCE = "[/EN#0/notvisual It] is [/EN#12/people/animals A man] with [/EN#13/scene the sea] . [/EN#12/other x]\n"


def write_entities(folder: Path, annotation: str = ANNOTATION) -> Path:
    for name, content in (("Annotations/9.xml", annotation), ("Sentences/9.txt", SENTENCE)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_annotations_of_entities_are_labelled_by_their_type(tmp_path: Path) -> None:
    """Of 11 and 12, which share a box, the sentences know 12; the first type counts; 14 has none, 13 no box."""
    lines = list(entities_lines(write_entities(tmp_path)))
    assert [line.cells["label"] for line in lines] == ["people", ""]
    assert [tuple(line.box) for line in lines] == [(1, 2, 30, 40), (0, 0, 200, 100)]
    table = RegionTable(tmp_path, ["9.jpg"])
    assert table.sizes is not None and table.sizes.tolist() == [[200, 100]]
    assert table.columns.label_names == ["people"]
    digest = table.digest
    write_entities(tmp_path, ANNOTATION.replace("<xmax>30<", "<xmax>31<"))
    assert RegionTable(tmp_path, ["9.jpg"]).digest != digest  # another plan


def test_broken_annotation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"should hold Annotations/\*\.xml of Flickr30k Entities, but has none"):
        list(entities_lines(tmp_path))
    for change, message in (
        ("</annotation>", "should be XML, but can't be read: "),
        ("<width>200</width>", "should have the picture's filename and size, but hasn't"),
        ("<ymin>2</ymin>", ""),
    ):
        write_entities(tmp_path, ANNOTATION.replace(change, ""))
        if message:
            with pytest.raises(InputError, match=rf"9\.xml {message}"):
                list(entities_lines(tmp_path))
        else:
            assert len(list(entities_lines(tmp_path))) == 1  # a box without all its corners is none
    write_entities(tmp_path, ANNOTATION.replace("<xmax>30<", "<xmax>1<"))
    with pytest.raises(InputError, match=r"9\.xml, object 0 should have a box with x1 < x2"):
        list(entities_lines(tmp_path))


def test_sizes_are_read_from_a_table_or_json(tmp_path: Path) -> None:
    (tmp_path / "s.tsv").write_text("height\timage\twidth\n10\ta\t20\n1\tother\t1\n30\tb\t40\n")
    keys = ["b", "none", "a"]
    assert read_sizes(tmp_path / "s.tsv", keys, KeyFormat()).tolist() == [[40, 30], [0, 0], [20, 10]]
    (tmp_path / "image_data.json").write_text(json.dumps([{"image_id": 5, "width": 40, "height": 30, "url": "x"}]))
    assert read_sizes(tmp_path / "image_data.json", ["5.jpg"], KeyFormat("{id}.jpg")).tolist() == [[40, 30]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image\twidth\n", r"should begin with the columns image, width, height, but with image, width"),
        ("image\twidth\theight\na\t0\t5\n", r"s\.tsv:2: width and height should be above 0, but are 0 and 5"),
        ("image\twidth\theight\na\t5\t?\n", r"s\.tsv:2: height should be a number, but is '\?'"),
        ("width\theight\timage\n5\t5\n", r"s\.tsv:2 should have 3 columns, as its header, but has 2\."),
        ("image\twidth\theight\nz\t5\t5\n", r"should have sizes of the .* none of these 1, such as 'a'"),
    ],
)
def test_broken_table_of_sizes_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.tsv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_sizes(tmp_path / "s.tsv", ["a"], KeyFormat())


def run(folder: Path, *flags: object, out: str = "out") -> int:
    return main(["import", *map(str, flags), "--key-format", "{id}.jpg", "--out", str(folder / out)])


def test_import_takes_objects_of_visual_genome_with_their_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two images there are features, as many as objects; a cat is no name that is known."""
    genome = [*GENOME[:2], {"image_id": 3, "objects": [{"x": 0, "y": 0, "w": 250, "h": 100, "names": ["cat"]}]}]
    (tmp_path / "objects.json").write_text(json.dumps(genome))
    data = [{"image_id": int(key), "width": size[0], "height": size[1]} for key, size in zip(IDS, SIZES)]
    (tmp_path / "image_data.json").write_text(json.dumps(data))
    (tmp_path / "names.txt").write_text("dog\nman\n")
    (tmp_path / "keys.txt").write_text("3.jpg\n7.jpg\n")
    np.save(tmp_path / "f.npy", np.ones((2, 1, 4), np.float32))
    flags = ["--arrays", tmp_path / "f.npy", "--keys", tmp_path / "keys.txt", "--label-names", tmp_path / "names.txt"]
    flags += ["--regions-table", tmp_path / "objects.json"]
    assert run(tmp_path, *flags, "--box-sizes", tmp_path / "image_data.json") == 2
    err = capsys.readouterr().err
    assert "label should be one of the 2 label names, such as 'dog', or empty, but is 'cat'" in err
    assert "See --label-names and --unknown-labels." in err
    flags += ["--unknown-labels", "none"]
    assert run(tmp_path, *flags) == 2  # without sizes
    assert "give the pictures' widths and heights. See --regions-table and --box-sizes." in capsys.readouterr().err
    assert run(tmp_path, *flags, "--box-sizes", tmp_path / "image_data.json") == 0
    assert "1 of 2 regions (50.0 %) have a label that isn't among the names; they have none." in capsys.readouterr().err
    store = FeatureStore(tmp_path / "out")
    assert store.column("labels").tolist() == [[-1], [1]]
    np.testing.assert_allclose(store.column("boxes")[:, 0], [[0, 0, 0.5, 0.25], [0, 0.1, 0.5, 0.5]], rtol=1e-6)
    (tmp_path / "image_data.json").write_text(json.dumps(data[:1]))
    assert run(tmp_path, *flags, "--box-sizes", tmp_path / "image_data.json", out="other") == 2
    assert "widths and heights should be above 0, but row 0 (3.jpg) has 0 and 0." in capsys.readouterr().err


def test_sizes_from_a_table_serve_boxes_of_any_form(tmp_path: Path) -> None:
    """HDF5 and pickles often have boxes in pixels, and no sizes."""
    (tmp_path / "f").mkdir()
    for row, identity in enumerate(IDS):
        own = RECORDS[row]
        np.savez(tmp_path / f"f/{identity}.npz", features=own["features"], boxes=own["boxes"] * np.tile(SIZES[row], 2))
    (tmp_path / "f/x.npz").write_bytes(b"broken")
    source = open_arrays(tmp_path / "f", regions=3)
    sizes = np.array([SIZES[IDS.index(key)] if key in IDS else (0, 0) for key in source.keys])
    import_features(source, tmp_path / "out", columns=Columns(source.columns), sizes=sizes)
    store = FeatureStore(tmp_path / "out")
    for place, key in enumerate(source.keys[:3]):
        own = RECORDS[IDS.index(key)]["boxes"]
        np.testing.assert_allclose(store.column("boxes")[place, : len(own)], own, atol=1e-6)
    with pytest.raises(InputError, match=r"boxes should be .* If boxes are in pixels, give the pictures' widths"):
        import_all(tmp_path / "f", tmp_path / "none", regions=3)
