"""`report regions`: photos with boxes, labels and scores, in the page and the PNG."""

from pathlib import Path

import numpy as np
import pytest
from conftest import write_image_ids, write_store
from PIL import Image

from visual_grounding.analysis.drawn_regions import colour_of
from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore

KEYS = ["a.png", "b.png", "c.png"]
BOXES = np.array([[[0, 0, 0.5, 0.5], [0.25, 0.25, 1, 1]], [[0, 0, 1, 1]] * 2, [[0] * 4] * 2])
LABELS = np.array([[1, 0], [-1, 1], [-1, -1]])
SCORES = np.array([[0.75, 0.25], [0.5, 0.125], [0, 0]])


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Three photos of two regions; the last photo's are absent."""
    features = np.ones((3, 2, 4))
    features[2] = 0
    columns = {"boxes": BOXES, "labels": LABELS, "attributes": np.array([[0, -1]] + [[-1, -1]] * 2), "scores": SCORES}
    names = {"label_names": ["dog", "<hat>"], "attribute_names": ["wet"]}
    write_store(tmp_path / "store", features, KEYS, columns, **names)
    (tmp_path / "photos").mkdir()
    for key in KEYS:
        Image.new("RGB", (64, 48), (90, 90, 90)).save(tmp_path / "photos" / key)
    return tmp_path


def run(world: Path, *flags: object, store: str = "store") -> int:
    common = ["--image-features", world / store, "--images", world / "photos", "--out", world / "out"]
    return main(["report", "regions", *map(str, [*common, *flags])])


def page(world: Path) -> str:
    return (world / "out/report.html").read_text()


def test_first_photos_are_shown_with_all_that_is_known(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world) == 0
    shown = page(world)
    assert shown.count("data:image/jpeg;base64,") == 3 and "http" not in shown
    for text in ("wet &lt;hat&gt; 0.75", "dog 0.25", "&lt;hat&gt; 0.12", "0.50", "no region"):
        assert f">{text}<" in shown
    assert "3 of 3 images, 1.3 regions each" in shown and ">test<" in shown  # the store's signature
    said = capsys.readouterr().out
    assert "report.png show 3 of 3 images, 1.3 regions each." in said and "1 of them have none." in said
    with Image.open(world / "out/report.png") as picture:
        found = np.asarray(picture.convert("RGB")).astype(int)
    for label in (0, 1):  # drawn in their colours
        assert (np.abs(found - np.array(colour_of(label))).max(axis=-1) < 30).sum() > 50


def test_photos_are_chosen_by_key_and_regions_by_score(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(world, "--key", "b.png", "--key", "a.png", "--key", "b.png", "--key", "x.png", "--min-score", 0.5) == 0
    shown = page(world)
    assert shown.index(">b.png<") < shown.index(">a.png<") and "c.png" not in shown
    assert "2 of 3 images, 1.0 regions of score 0.5 or more each" in shown and "dog" not in shown
    assert "store has no image x.png" in capsys.readouterr().err
    assert run(world, "--first", 1) == 0
    assert "a.png" in page(world) and "b.png" not in page(world)


def test_pictures_that_are_not_there_are_counted(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "photos/b.png").unlink()
    assert run(world) == 0
    told = "show 3 of 3 images, 1.3 regions each; of 1 only the regions' names, as their pictures can't be shown."
    assert told in capsys.readouterr().out


def test_store_with_boxes_alone_is_enough(world: Path) -> None:
    write_store(world / "boxes", np.ones((3, 2, 4)), KEYS, {"boxes": BOXES})
    assert run(world, store="boxes") == 0
    assert page(world).count(">region<") == 6


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--first", 0], "--first should be 1 or more, but is 0."),
        (["--min-score", 0.8], "has a score of 0.8: the highest is 0.75. See --min-score."),
        (["--key", "x.png", "--key", "y.png"], "store has no image x.png, and 1 more. A key there is a.png."),
    ],
)
def test_what_can_not_be_shown_is_refused(
    world: Path, capsys: pytest.CaptureFixture[str], flags: list[object], message: str
) -> None:
    assert run(world, *flags) == 2
    assert message in capsys.readouterr().err and not (world / "out").exists()


def test_store_without_boxes_or_scores_is_refused_by_what_it_has(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_store(world / "grid", np.ones((3, 2, 4)), KEYS, {"labels": LABELS})
    assert run(world, store="grid") == 2
    assert "grid should have boxes, to be drawn, but has features, labels. docs/regions.md" in capsys.readouterr().err
    write_store(world / "boxes", np.ones((3, 2, 4)), KEYS, {"boxes": BOXES})
    assert run(world, "--min-score", 0.5, store="boxes") == 2
    said = capsys.readouterr().err
    assert "the least score is for a store with scores, but" in said and "--min-score" in said
    for key in KEYS:
        (world / "photos" / key).rename(world / "photos" / f"other{key}")
    assert run(world) == 2
    assert "3 of 3 pictures can't be shown: 3 aren't in" in capsys.readouterr().err


def test_report_of_sentences_draws_the_regions_of_their_images(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_image_ids(world / "ids", np.array([[0], [1]], np.int32), FeatureStore(world / "store").keys_sha256)
    (world / "text").write_text("one\ntwo\n")
    flags = ["--text", world / "text", "--image-ids", world / "ids", "--image-features", world / "store"]
    flags += ["--images", world / "photos", "--out", world / "page"]

    def drawn(*more: object) -> list[int]:
        """Pixels of the page's picture in the colours of both labels."""
        assert main(["report", *map(str, [*flags, *more])]) == 0
        with Image.open(world / "page/report.png") as picture:
            found = np.asarray(picture.convert("RGB")).astype(int)
        return [int((np.abs(found - np.array(colour_of(label))).max(axis=-1) < 30).sum()) for label in (0, 1)]

    assert drawn() == [0, 0]
    assert min(drawn("--draw-regions")) > 50
    low, high = drawn("--draw-regions", "--min-score", 0.5)
    assert low == 0 and high > 50
    capsys.readouterr()
    for sentences, warned in ((("one", "t@@ wo"), False), (("one", "three"), True)):  # of fairseq-generate
        lines = [f"S-{row}\t{text}\nD-{row}\t0\teins\n" for row, text in enumerate(sentences)]
        (world / "generated").write_text("".join(lines))
        assert main(["report", *map(str, flags), "--output", f"ours={world / 'generated'}"]) == 0
        said = capsys.readouterr().err
        assert ("1 of 2 sources in" in said and "aren't those of" in said) == warned
    assert main(["report", *map(str, flags), "--min-score", "0.5"]) == 2
    assert "--min-score 0.5 is for regions that are drawn: give --draw-regions, too." in capsys.readouterr().err
