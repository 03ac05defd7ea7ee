"""Masks of words: a function of seed, epoch and item in training, of the item alone in validation."""

import numpy as np
import pytest

from visual_grounding import InputError
from visual_grounding.data.word_masking import REGIONS, WORDS, Masking, WordMasking, check_mask_prob
from visual_grounding.modules.masking import BERT_REPLACEMENT, MASK_ALONE

MASK = 30


def masked(seed: int | None, item: int, epoch: int, length: int = 200) -> tuple[np.ndarray, np.ndarray]:
    masking = WordMasking(Masking(0.15, BERT_REPLACEMENT, seed), MASK, range(4, 30))
    tokens = np.arange(length) % 26 + 4
    return masking(tokens, np.arange(length) > 0, item, epoch)


def same(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(map(np.array_equal, first, second))


def test_masks_in_training_follow_from_seed_epoch_and_item():
    assert same(masked(1, 5, 2), masked(1, 5, 2))
    for other in (masked(2, 5, 2), masked(1, 6, 2), masked(1, 5, 3)):
        assert not same(masked(1, 5, 2), other)


def test_masks_in_validation_follow_from_the_item_and_put_the_mask_everywhere():
    tokens, chosen = masked(None, 5, 1)
    assert same((tokens, chosen), masked(None, 5, 7))
    assert not same((tokens, chosen), masked(None, 6, 1))
    assert chosen.any() and ((tokens == MASK) == chosen).all()
    assert Masking(0.15, BERT_REPLACEMENT, None).replacement == MASK_ALONE


def test_masked_sentence_differs_where_it_was_chosen_alone():
    tokens, chosen = masked(3, 1, 1, length=50_000)
    before = np.arange(50_000) % 26 + 4
    assert (tokens == before)[~chosen].all() and not chosen[0]
    share = {"mask": (tokens == MASK).mean(), "chosen": chosen.mean(), "kept": (tokens == before)[chosen].mean()}
    assert share["chosen"] == pytest.approx(0.15, abs=0.01) and share["mask"] == pytest.approx(0.12, abs=0.01)
    assert share["kept"] == pytest.approx(0.1 + 0.1 / 26, abs=0.02)  # a random word may be the word itself


def test_words_and_regions_of_an_item_draw_different_numbers():
    masking = Masking(0.15, BERT_REPLACEMENT, 1)
    assert masking.generator(4, 2, WORDS).random() != masking.generator(4, 2, REGIONS).random()
    assert masking.changes and not Masking(0.15, BERT_REPLACEMENT, None).changes


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.01, float("nan")])
def test_mask_prob_that_is_no_share_is_refused(probability):
    with pytest.raises(InputError, match=f"--mask-prob should be more than 0 and at most 1, but is {probability}"):
        check_mask_prob(probability)
    check_mask_prob(1.0)
