"""Blocks of consecutive pieces: which pieces, how often masked, their order, batches, several texts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_voken_lm import voken_task, whole_split

from visual_grounding.data.voken_blocks import VokenBlocks
from visual_grounding.data.voken_text import VokenText


@pytest.fixture(scope="module")
def world(voken_world: Path) -> Path:
    return voken_world


def blocks_of(world: Path, split: str = "train", **flags: Any) -> VokenBlocks:
    task = voken_task(world, **flags)
    task.load_dataset(split)
    return task.dataset(split).dataset


def test_blocks_are_the_text_from_its_first_piece_to_its_last(world):
    """10 pieces each between the ends, across lines; what isn't masked is the piece, what is stands in the target."""
    blocks = blocks_of(world)
    (text,) = blocks.texts
    flat, vokens = text.numbers(0, text.pieces), text.vokens_at(0, text.pieces)
    assert text.pieces % 10 and len(blocks) == text.pieces // 10 + 1
    for number in range(len(blocks)):
        item = blocks[number]
        own = np.where(item["word_targets"] < 0, item["tokens"], item["word_targets"])
        expected = flat[10 * number : 10 * number + 10]
        assert own.tolist() == [0, *expected, 2] and item["id"] == number
        assert item["voken_targets"].tolist() == [-1, *vokens[10 * number : 10 * number + 10], -1]
        assert blocks.size(number) == blocks.num_tokens(number) == len(expected) + 2 == blocks.sizes[number]
    assert blocks.num_tokens_vec(np.array([0, len(blocks) - 1])).tolist() == [12, text.pieces % 10 + 2]


def test_pieces_are_masked_as_often_as_they_should_be_and_special_ones_never(world):
    """30 % of some 90 pieces, 200 times: of those 80 % are the mask, 10 % random, 10 % what they were."""
    blocks, chosen, fates = blocks_of(world, mask_prob=0.3), [], []
    mask = blocks.masking.mask
    for epoch in range(1, 201):
        blocks.set_epoch(epoch)
        for number in range(len(blocks)):
            item = blocks[number]
            seen, target = item["tokens"], item["word_targets"]
            assert target[0] == target[-1] == -1 and (seen[0], seen[-1]) == (0, 2)
            chosen += (target[1:-1] >= 0).tolist()
            told = target >= 0
            fates += np.where(seen[told] == mask, 0, np.where(seen[told] == target[told], 2, 1)).tolist()
    assert np.mean(chosen) == pytest.approx(0.3, abs=0.01)
    np.testing.assert_allclose(np.bincount(fates) / len(fates), [0.8, 0.1, 0.1], atol=0.015)
    assert blocks.masking.words.start == 4  # none of <s> <pad> </s> <unk> is a random word


def test_masks_are_new_in_each_epoch_and_fixed_in_validation(world):
    for split, alike in (("train", False), ("valid", True)):
        batches = [whole_split(voken_task(world, seed=seed), split, epoch) for seed, epoch in ((1, 1), (1, 2), (2, 1))]
        first, *others = [batch["word_targets"] for batch in batches]
        assert (first >= 0).any()
        assert all(torch.equal(first, other) == alike for other in others), split
        again = whole_split(voken_task(world), split)
        assert torch.equal(again["word_targets"], first)
        assert blocks_of(world, split).can_reuse_epoch_itr_across_epochs == alike
    valid = whole_split(voken_task(world, mask_prob=1.0))
    inner = valid["word_targets"] >= 0
    assert (valid["net_input"]["src_tokens"][inner] == voken_task(world).mask).all()  # nothing but the mask


def test_a_block_is_the_same_whatever_batch_it_is_in(world):
    blocks = blocks_of(world)
    whole = blocks.collater([blocks[number] for number in range(len(blocks))])
    for number in range(len(blocks)):
        alone = blocks.collater([blocks[number]])
        length = alone["net_input"]["src_tokens"].shape[1]
        for name in ("word_targets", "voken_targets"):
            assert torch.equal(alone[name][0], whole[name][number, :length]), name
        assert torch.equal(alone["net_input"]["src_tokens"][0], whole["net_input"]["src_tokens"][number, :length])


def test_only_a_batch_with_a_shorter_block_has_padding(world):
    blocks = blocks_of(world)
    last = len(blocks) - 1
    full = blocks.collater([blocks[0], blocks[1]])
    assert set(full["net_input"]) == {"src_tokens"} and full["ntokens"] == 24 and full["nsentences"] == 2
    mixed = blocks.collater([blocks[last], blocks[0]])
    length = int(blocks.sizes[last])
    assert mixed["net_input"]["padding_mask"].tolist() == [[place >= length for place in range(12)], [False] * 12]
    assert (mixed["net_input"]["src_tokens"][0, length:] == 1).all()
    assert (mixed["word_targets"][0, length:] == -1).all() and (mixed["voken_targets"][0, length:] == -1).all()
    assert blocks.collater([]) == {} and blocks.collater([blocks[3]])["id"].tolist() == [3]


def test_order_is_new_in_each_epoch_and_that_of_the_text_in_validation(world):
    blocks, valid = blocks_of(world), blocks_of(world, "valid")
    orders = []
    for seed in (1, 2):
        np.random.seed(seed)  # as fairseq does, from its seed and the epoch
        orders.append(blocks.ordered_indices().tolist())
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == list(range(len(blocks)))
    assert valid.ordered_indices().tolist() == list(range(len(valid)))


def test_no_block_goes_across_two_texts(world):
    one = blocks_of(world).texts[0]
    task = voken_task(world)
    task.load_dataset("valid")
    other: VokenText = task.dataset("valid").dataset.texts[0]
    made = blocks_of(world)
    both = VokenBlocks([one, other], 12, made.masking, made.labels)
    first = -(-one.pieces // 10)
    assert len(both) == first + -(-other.pieces // 10)
    assert both.place(first - 1) == (one, 10 * (first - 1), one.pieces)
    assert both.place(first) == (other, 0, 10) and both.place(len(both) - 1)[2] == other.pieces
    assert both.sizes[[0, first - 1, first]].tolist() == [12, one.pieces % 10 + 2, 12]


def test_blocks_that_fill_the_text_exactly_leave_no_empty_one(world):
    (text,) = blocks_of(world).texts
    made = blocks_of(world)
    exact = VokenBlocks([text], text.pieces + 2, made.masking)
    assert len(exact) == 1 and exact.sizes.tolist() == [text.pieces + 2] and "voken_targets" not in exact[0]


def test_shuffled_vokens_are_those_of_the_batch(world):
    plain, shuffled = (
        whole_split(voken_task(world, voken_labels=kind), "train")["voken_targets"] for kind in ("vokens", "shuffled")
    )
    assert torch.equal(plain >= 0, shuffled >= 0) and not torch.equal(plain, shuffled)
    assert torch.equal(plain[plain >= 0].sort().values, shuffled[shuffled >= 0].sort().values)
