"""Which boxes are kept, in which order, and the rows that they become."""

import math

import pytest
import torch

from visual_grounding.errors import InputError
from visual_grounding.features.detectors.selection import Selection, as_rows, cut_to_picture

# The first two overlap by 8 of 12 parts: 0.6667. The third is the first, of another class. The last stands apart.
BOXES = torch.tensor([[0, 0, 1.0, 0.5], [0.2, 0, 1.2, 0.5], [0, 0, 1.0, 0.5], [0, 0.8, 1, 1]])
LABELS = torch.tensor([1, 1, 2, 1])
SCORES = torch.tensor([0.6, 0.9, 0.3, 0.1])


@pytest.mark.parametrize(
    ("selection", "kept"),
    [
        (Selection(), [1, 0, 2, 3]),
        (Selection(regions=2), [1, 0]),
        (Selection(min_score=0.3), [1, 0, 2]),  # "at least": 0.3 itself stays
        (Selection(nms_iou=0.6), [1, 2, 3]),
        (Selection(nms_iou=0.7), [1, 0, 2, 3]),
        (Selection(nms_iou=0.6, nms_across_classes=True), [1, 3]),
        (Selection(regions=2, nms_iou=0.6), [1, 2]),  # what is suppressed takes no place
    ],
)
def test_selection_keeps_the_most_confident(selection: Selection, kept: list[int]) -> None:
    assert selection.of(BOXES, LABELS, SCORES).tolist() == kept


def test_selection_keeps_the_first_of_equally_confident_boxes() -> None:
    scores = torch.full((40,), 0.5)
    boxes = torch.arange(40.0)[:, None] + torch.tensor([0, 0, 1, 1])
    assert Selection(regions=40).of(boxes, torch.zeros(40), scores).tolist() == list(range(40))


def overlap(one: list[float], other: list[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(width, 0) * max(height, 0)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return common / (area - common)


@pytest.mark.parametrize("across", [False, True])
def test_selection_agrees_with_a_naive_twin(across: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(60, 2, 2, generator=generator).sort(dim=1).values
    boxes, labels = corners.flatten(1), torch.randint(0, 3, (60,), generator=generator)
    scores = torch.rand(60, generator=generator)
    expected: list[int] = []
    for place in sorted(range(60), key=lambda place: -scores[place].item()):
        rivals = [kept for kept in expected if across or labels[kept] == labels[place]]
        worst = max((overlap(boxes[place].tolist(), boxes[kept].tolist()) for kept in rivals), default=0)
        if scores[place] >= 0.2 and worst <= 0.3 and len(expected) < 20:
            expected.append(place)
    assert Selection(20, 0.2, 0.3, across).of(boxes, labels, scores).tolist() == expected
    assert len(expected) > 10


def test_cut_to_picture_leaves_boxes_inside_as_they_are() -> None:
    boxes = torch.tensor([[0.0, 0.25, 1.0, 0.5], [1.5, 0.0, 2.0, 1.0], [0.5, 0.5, 0.5, 1.0]])
    inside, real = cut_to_picture(boxes)
    assert inside[0].tolist() == boxes[0].tolist() and real.tolist() == [True, False, False]


def test_as_rows_fills_what_isnt_there() -> None:
    one = {
        "features": torch.ones(1, 2),
        "boxes": torch.full((1, 4), 0.5),
        "labels": torch.tensor([3]),
        "scores": torch.tensor([0.5]),
    }
    rows = as_rows([None, one], [0, 4], (2, 2), ("boxes", "labels", "scores"), torch.device("cpu"))
    assert rows["features"].tolist() == [[[0, 0], [0, 0]], [[1, 1], [0, 0]]]
    assert rows["labels"].tolist() == [[-1, -1], [3, -1]] and rows["labels"].dtype == torch.int32
    assert rows["scores"].tolist() == [[0, 0], [0.5, 0]] and rows["boxes"].shape == (2, 2, 4)
    assert rows["dropped"].tolist() == [0, 4]


@pytest.mark.parametrize(
    ("selection", "message", "choice"),
    [
        (Selection(regions=0), r"regions should be at least 1, but is 0", "regions"),
        (Selection(min_score=1.0), r"the least score should be from 0 to below 1, but is 1\.", "min_score"),
        (Selection(min_score=math.nan), r"the least score should be .*, but is nan", "min_score"),
        (Selection(nms_iou=1.5), r"an overlap should be from 0 to 1, but is 1\.5", "nms_iou"),
        (Selection(nms_across_classes=True), r"across classes needs the overlap .* such as 0\.7", "nms_iou"),
    ],
)
def test_selection_of_nothing_is_refused(selection: Selection, message: str, choice: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        selection.check()
    assert caught.value.choices[0] == choice
