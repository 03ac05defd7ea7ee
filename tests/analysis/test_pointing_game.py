"""The pointing game: peaks carried through resizing and crop, boxes at and beyond the crop's edge, counts."""

import pytest

from visual_grounding.analysis.pointing_game import Phrase, point, read_boxes, score_pointing
from visual_grounding.errors import InputError
from visual_grounding.features.framing import Box, Framing

WIDE = Framing(256, 224)  # of 600x300 pixels it sees columns 168.75..431.25 and rows 18.75..281.25


def phrase(*boxes, key="a.jpg"):
    return Phrase(key, "dog", [Box(*box) for box in boxes])


def test_peak_is_carried_back_to_the_picture_by_hand():
    # A quarter of the seen square: 168.75 + 0.25 * 262.5 = 234.375 across, 18.75 + 0.75 * 262.5 = 215.625 down.
    result = point(phrase((230, 210, 240, 220)), (0.25, 0.75), (600, 300), WIDE)
    assert result.point == pytest.approx((234.375, 215.625))
    assert result.hit and not result.centre_hit and not result.outside


def test_box_that_leaves_the_crop_is_hit_in_the_part_that_was_seen():
    partly = phrase((0, 0, 200, 300))  # columns 168.75..200 of it were seen
    assert point(partly, (0.1, 0.5), (600, 300), WIDE).hit  # 168.75 + 26.25 = 195
    assert not point(partly, (0.2, 0.5), (600, 300), WIDE).hit  # 221.25
    assert not point(partly, (0.2, 0.5), (600, 300), WIDE).outside


def test_box_outside_the_crop_is_missed_and_counted():
    result = point(phrase((0, 0, 160, 300)), (0.0, 0.5), (600, 300), WIDE)
    assert result.outside and not result.hit
    # The same box is hit where the network saw the whole picture: 0.1 * 600 = 60.
    assert point(phrase((0, 0, 160, 300)), (0.1, 0.5), (600, 300), Framing(0, 1)).hit


def test_any_box_of_a_phrase_counts():
    both = phrase((0, 0, 10, 10), (290, 140, 310, 160))
    result = point(both, (0.5, 0.5), (600, 300), WIDE)
    assert result.hit and result.centre_hit


def test_box_drawn_on_another_size_is_refused():
    with pytest.raises(InputError, match=r"a\.jpg: a box of 'dog' reaches to 500, 90, but the picture has 128x128"):
        point(phrase((0, 0, 500, 90)), (0.5, 0.5), (128, 128), WIDE)


def test_score_counts_hits_of_all_phrases():
    results = [
        point(phrase((290, 140, 310, 160)), (0.5, 0.5), (600, 300), WIDE),  # both
        point(phrase((290, 140, 310, 160)), (0.1, 0.5), (600, 300), WIDE),  # the middle alone
        point(phrase((0, 0, 160, 300)), (0.0, 0.5), (600, 300), WIDE),  # none: outside
        point(phrase((180, 0, 220, 300)), (0.1, 0.5), (600, 300), WIDE),  # the map alone
    ]
    score = score_pointing(results)
    assert score == (4, 2, 2, 1)
    assert score.rate == 0.5 and score.centre_rate == 0.5


def test_boxes_of_the_same_phrase_in_a_picture_are_gathered(tmp_path):
    table = tmp_path / "boxes.tsv"
    table.write_text(
        "image\tx1\ty1\tx2\ty2\tphrase\na\t0\t1\t2\t3\tred dog\nb\t0\t1\t2\t3\tred dog\na\t4\t4\t6\t6\tred dog\n"
    )
    first, second = read_boxes(table)
    assert (first.key, first.text, first.boxes, first.size) == (
        "a",
        "red dog",
        [Box(0, 1, 2, 3), Box(4, 4, 6, 6)],
        None,
    )
    assert second.key == "b" and len(second.boxes) == 1
    table.write_text("phrase\timage\twidth\theight\tx1\ty1\tx2\ty2\nred dog\ta\t500\t333\t0\t1\t2\t3\n")
    assert read_boxes(table)[0].size == (500, 333)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "should begin with the columns image, x1, y1, x2, y2, phrase"),
        ("image\tx1\ty1\tx2\tphrase\n", "but y2 is missing"),
        ("image\tx1\ty1\tx2\ty2\tphrase\n", "has only a header"),
        ("image\tx1\ty1\tx2\ty2\tphrase\na\t0\t1\t2\n", r"boxes.tsv:2 should have 6 columns, as its header, but has 4"),
        ("image\tx1\ty1\tx2\ty2\tphrase\na\t0\tnan\t2\t3\tdog\n", "boxes.tsv:2: y1 should be a number, but is 'nan'"),
        ("image\tx1\ty1\tx2\ty2\tphrase\na\t2\t1\t2\t3\tdog\n", r"x1 < x2 and y1 < y2, but has \(2.0, 1.0, 2.0, 3.0\)"),
    ],
)
def test_boxes_that_are_broken_are_refused(tmp_path, content, message):
    (tmp_path / "boxes.tsv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_boxes(tmp_path / "boxes.tsv")
