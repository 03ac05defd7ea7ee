"""Lines with hidden words and regions: how many, when they change, which side is asked, and what finders are asked."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from small_grounded import make_encoder

from visual_grounding.data.grounded_text import GroundedBatches, MaskedLines, QueryOfItem
from visual_grounding.data.word_masking import Masking
from visual_grounding.modules.masking import MASK_ALONE
from visual_grounding.text.masked_words import WordsOfPieces
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


class Lines(list):
    """Binarised text."""


def make_lines(lengths, share=0.3, seed=1, most=50, given=None, shuffle=False):
    texts = Lines(torch.tensor([*range(5, 5 + length - 1), 2]) for length in lengths)
    masking = Masking(share, MASK_ALONE, seed)
    return MaskedLines(texts, np.array(lengths), Dictionary(), most, masking, given, shuffle)


class Shown(MaskedLines):
    """The same with images: an image of two regions for even lines, none for odd ones."""

    def collater(self, samples):
        batch = super().collater(samples)
        if batch:
            absent = torch.tensor(
                [[[sample["id"] % 2 == 1, sample["id"] % 3 == 0 or sample["id"] % 2 == 1]] for sample in samples]
            )
            batch["net_input"]["visual"] = {"padding_mask": absent, "features": torch.ones(*absent.shape, 4)}
        return batch


def make_batches(objective, lines=200, seed=1, share=0.5):
    lengths = [6] * lines
    texts = Lines(torch.tensor([*range(5, 10), 2]) for _ in lengths)
    shown = Shown(texts, np.array(lengths), Dictionary(), 50, Masking(0.3, MASK_ALONE, seed), shuffle=False)
    return GroundedBatches(shown, objective, Masking(share, MASK_ALONE, seed))


def collate(dataset):
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def test_pieces_are_hidden_with_their_share_and_never_the_end():
    batch = collate(make_lines([41] * 100, 0.15))
    hidden = batch["hidden_words"]
    assert not hidden[:, -1].any()
    assert hidden[:, :-1].float().mean().item() == pytest.approx(0.15, abs=4 * (0.15 * 0.85 / 4000) ** 0.5)
    assert batch["net_input"]["src_tokens"][0].tolist() == [*range(5, 45), 2]  # whole
    assert batch["ntokens"] == 4100 and batch["net_input"]["src_lengths"].tolist() == [41] * 100


def test_masks_change_with_the_epoch_in_training_alone():
    for seed, fixed in ((1, False), (None, True)):
        lines = make_lines([30] * 5, seed=seed)
        one = collate(lines)["hidden_words"]
        assert torch.equal(one, collate(lines)["hidden_words"])
        lines.set_epoch(2)
        assert torch.equal(one, collate(lines)["hidden_words"]) == fixed
        assert lines.can_reuse_epoch_itr_across_epochs == fixed
    assert torch.equal(
        collate(make_lines([30] * 5, seed=None))["hidden_words"],
        collate(make_lines([30] * 5, seed=None))["hidden_words"],
    )


def test_batches_are_padded_on_the_right_and_masks_do_not_depend_on_them():
    lines = make_lines([4, 9, 6])
    batch = collate(lines)
    assert batch["net_input"]["src_tokens"][0].tolist() == [5, 6, 7, 2, 1, 1, 1, 1, 1]
    assert not batch["hidden_words"][0, 3:].any()
    alone = lines.collater([lines[1]])
    assert torch.equal(alone["hidden_words"][0], batch["hidden_words"][1])
    assert lines.collater([]) == {}


def test_long_lines_are_cut_and_end():
    lines = make_lines([12, 5], most=6)
    assert lines[0]["tokens"].tolist() == [5, 6, 7, 8, 9, 2] and lines[1]["tokens"].tolist() == [5, 6, 7, 8, 2]
    assert lines.sizes.tolist() == [6, 5] and lines.size(0) == lines.num_tokens(0) == 6
    assert lines.num_tokens_vec(np.array([1, 0])).tolist() == [5, 6]


def test_a_mask_that_is_given_is_taken_as_it_is():
    given = {0: [True, False, True, False, False, False], 1: [False, True]}
    lines = make_lines([7, 3], most=4, given=lambda line: np.array(given[line]))
    assert lines[0]["hidden"].tolist() == [True, False, True, False]  # cut, and the end
    assert lines[1]["hidden"].tolist() == [False, True, False]
    lines.set_epoch(3)
    assert lines[1]["hidden"].tolist() == [False, True, False] and lines.can_reuse_epoch_itr_across_epochs


def test_order_is_by_length_and_random_in_training_alone():
    lengths = [3, 9] * 50
    assert make_lines(lengths).ordered_indices().tolist() == [*range(0, 100, 2), *range(1, 100, 2)]
    shuffled = make_lines(lengths, shuffle=True).ordered_indices().tolist()
    assert sorted(shuffled[:50]) == list(range(0, 100, 2)) and shuffled[:50] != list(range(0, 100, 2))


@pytest.mark.parametrize("objective", ["jmlm", "jmrm", "both"])
def test_one_side_of_a_line_is_asked_in_training(objective):
    batch = collate(make_batches(objective))
    words, regions = batch["word_side"], batch["region_side"]
    with_image = torch.arange(200) % 2 == 0
    assert not (words & regions).any() and (words | regions).all()
    assert words[~with_image].all()
    share = regions[with_image].float().mean().item()
    assert {"jmlm": share == 0, "jmrm": share == 1, "both": 0.3 < share < 0.7}[objective]
    assert ("hidden_regions" in batch) == (objective != "jmlm")


def test_both_sides_are_asked_in_validation():
    for objective in ("jmrm", "both"):
        batch = collate(make_batches(objective, seed=None))
        assert batch["word_side"].all() and batch["region_side"].tolist() == [True, False] * 100
    assert not collate(make_batches("jmlm", seed=None))["region_side"].any()


def test_regions_that_are_there_are_hidden_one_at_least():
    batch = collate(make_batches("both", 2000))
    hidden, absent = batch["hidden_regions"], batch["net_input"]["visual"]["padding_mask"]
    assert not (hidden & absent).any()
    present = ~absent.flatten(1).all(dim=1)
    assert hidden.flatten(1).any(dim=1)[present].all()
    two = (~absent).flatten(1).sum(dim=1) == 2
    # Each with p = .5; where none is drawn, one all the same: (.5 + .25 / 2) of the regions.
    assert hidden[two].float().mean().item() == pytest.approx(0.625, abs=0.03)
    first = hidden[two][:, 0].float().mean(dim=0)
    assert first[0].item() == pytest.approx(first[1].item(), abs=0.1)


def test_sides_and_regions_change_with_the_epoch_in_training_alone():
    for seed, fixed in ((1, False), (None, True)):
        batches = make_batches("both", seed=seed)
        one = collate(batches)
        batches.set_epoch(2)
        other = collate(batches)
        for name in ("hidden_regions", "hidden_words", *(["word_side"] if seed else [])):
            assert torch.equal(one[name], other[name]) == fixed, name
        assert batches.can_reuse_epoch_itr_across_epochs == fixed


def test_a_finder_is_asked_for_what_is_left(tmp_path):
    bridge = TokenizerBridge(str(make_encoder(tmp_path / "encoder")))
    query = QueryOfItem(WordsOfPieces(bridge))
    tokens = torch.tensor([*bridge.numbers_of(["a red dogs near"])[0], 2])  # a red dog ##s near
    for hidden, left in (([3], "a red near"), ([1], "a dogs near"), ([], "a red dogs near"), (range(5), "")):
        mask = torch.tensor([place in hidden for place in range(6)])
        assert query({"tokens": tokens, "hidden": mask}) == left
