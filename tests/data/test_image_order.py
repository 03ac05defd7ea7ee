"""Shuffled and blank images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visual_grounding import InputError
from visual_grounding.data.image_order import arrange_images, derangement


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(0, 1000))
def test_derangement_is_a_permutation_in_which_no_group_meets_itself(groups, seed):
    groups = np.array(groups)
    largest = np.bincount(groups).max()
    if 2 * largest > len(groups):
        with pytest.raises(InputError, match=f"{largest} of {len(groups)} sentences share one image"):
            derangement(groups, seed)
        return
    order = derangement(groups, seed)
    assert sorted(order) == list(range(len(groups)))
    assert (groups[order] != groups).all()
    np.testing.assert_array_equal(order, derangement(groups, seed))


def test_derangement_depends_on_the_seed():
    groups = np.arange(50)
    assert (derangement(groups, 1) != derangement(groups, 2)).any()


def test_arrange_images_shuffled_moves_whole_rows_and_leaves_sentences_without_image_alone():
    ids = np.array([[0, 1], [2, 3], [-1, -1], [4, -1], [0, 5]], dtype=np.int32)
    arranged = arrange_images(ids, "shuffled", 3)
    assert arranged[2].tolist() == [-1, -1]
    assert sorted(map(tuple, arranged)) == sorted(map(tuple, ids))
    with_image = [0, 1, 3, 4]
    assert (arranged[with_image, 0] != ids[with_image, 0]).all()


def test_arrange_images_blank_and_congruent():
    ids = np.array([[3, 1]], dtype=np.int32)
    assert arrange_images(ids, "blank", 1).tolist() == [[-1, -1]]
    assert arrange_images(ids, "congruent", 1) is ids
    with pytest.raises(InputError, match="'sorted'"):
        arrange_images(ids, "sorted", 1)
