"""A sentence's own images or another's: how often, which, and by what they are decided."""

from collections import Counter

import numpy as np
import pytest

from visual_grounding import InputError
from visual_grounding.data.paired_images import OwnOrOtherImages

EVERY = np.arange(5000)


def test_half_of_the_items_get_other_images_and_each_other_image_equally_often():
    """Item n has image n % 5; image 0 has ten times as many items, which makes no other item get it more often."""
    ids = np.concatenate([np.arange(5000) % 5, np.zeros(40000, int)])[:, None]
    choice = OwnOrOtherImages(ids, 1, False, "train")
    paired, rows = choice.paired(EVERY, 1), choice.rows(EVERY, [], 1)
    assert abs(paired.sum() - 2500) < 5 * np.sqrt(5000 / 4)  # five standard deviations
    assert ((rows == ids[EVERY]).all(axis=1) == paired).all()
    for own in range(5):
        others = Counter(rows[~paired & (ids[EVERY, 0] == own), 0].tolist())
        drawn = sum(others.values())
        assert own not in others and len(others) == 4
        assert all(abs(count - drawn / 4) < 5 * np.sqrt(drawn * 3 / 16) for count in others.values())


def test_draws_depend_on_seed_epoch_and_item_alone_and_in_validation_on_no_epoch():
    ids = np.arange(200)[:, None]
    places = np.arange(200)

    def drawn(seed: int, epoch: int, fixed: bool = False, order: np.ndarray = places) -> list[int]:
        return OwnOrOtherImages(ids, seed, fixed, "").rows(order, [], epoch)[:, 0].tolist()

    first = drawn(1, 1)
    assert first == drawn(1, 1) and first[::-1] == drawn(1, 1, order=places[::-1])
    assert drawn(1, 1, order=places[7:9]) == first[7:9]
    assert first != drawn(1, 2) and first != drawn(2, 1)
    assert drawn(1, 1, True) == drawn(1, 2, True)
    assert OwnOrOtherImages(ids, 1, False, "").changes and not OwnOrOtherImages(ids, 1, True, "").changes


def test_other_images_share_none_with_the_items_own_and_come_from_one_item():
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(9)[:2] for _ in range(300)])
    ids[5] = [3, -1]
    choice = OwnOrOtherImages(ids, 1, False, "train")
    table = {tuple(row) for row in ids.tolist()}
    places = np.arange(300)
    rows, paired = choice.rows(places, [], 1), choice.paired(places, 1)
    for own, row, same in zip(ids, rows, paired):
        assert tuple(row.tolist()) in table
        assert same or not set(own[own >= 0]) & set(row.tolist())


def test_item_without_images_gets_none_and_gives_none():
    ids = np.array([[0], [-1], [1], [-1]])
    choice = OwnOrOtherImages(ids, 1, False, "train")
    for epoch in range(50):
        rows = choice.rows(np.arange(4), [], epoch)[:, 0].tolist()
        assert rows[1] == rows[3] == -1 and {rows[0], rows[2]} <= {0, 1}


def test_item_that_shares_an_image_with_all_others_keeps_its_own():
    ids = np.array([[0, 1], [0, 2], [1, 3]])
    choice = OwnOrOtherImages(ids, 1, False, "train")
    drawn = [choice.rows(np.array([0]), [], epoch)[0].tolist() for epoch in range(30)]
    assert drawn == [[0, 1]] * 30 and all(choice.paired(np.array([0]), epoch)[0] for epoch in range(30))


def test_split_of_one_image_is_refused_and_one_without_any_is_not():
    with pytest.raises(InputError, match="takes the images of other sentences, but all of dev have the same"):
        OwnOrOtherImages(np.array([[4], [-1], [4]]), 1, True, "dev")
    blank = OwnOrOtherImages(np.full((3, 1), -1), 1, True, "dev")
    assert (blank.rows(np.arange(3), [], 1) == -1).all()


def test_items_that_cannot_get_others_are_counted(caplog):
    apart = np.stack([np.arange(2000), np.arange(2000) + 2000], axis=1)
    OwnOrOtherImages(apart, 1, False, "train")
    assert not caplog.records
    popular = np.stack([np.zeros(2000, int), 1 + np.arange(2000)], axis=1)
    popular[::4] = -1
    OwnOrOtherImages(popular, 1, False, "valid")
    (record,) = caplog.records
    said = record.getMessage()
    assert (
        said.startswith("valid, by a sample: ") and "(100.0 %) share an image with all others, and always keep" in said
    )
