"""Pairs of sentences as one stream: by hand, masked, in batches."""

import numpy as np
import pytest
import torch

from visual_grounding.data.sentence_pairs import PairedText, SentencePairs
from visual_grounding.data.word_masking import Masking, WordMasking
from visual_grounding.errors import InputError
from visual_grounding.modules.masking import BERT_REPLACEMENT

PAD, EOS, MASK = 1, 2, 20


class Lines(list):
    """Sentences as fairseq's datasets hold them, `</s>` at the end."""

    def __init__(self, *sentences: list[int]) -> None:
        super().__init__(torch.tensor([*sentence, EOS]) for sentence in sentences)
        self.sizes = np.array([len(sentence) for sentence in self])


def texts() -> list[PairedText]:
    german = PairedText(Lines([4, 5], [6]), Lines([7], [8, 9, 10]), (1, 0))
    french = PairedText(Lines([4, 5, 11]), Lines([12]), (1, 2))
    return [german, french]


def pairs(
    probability: float = 0.15, seed: int | None = 1, shuffle: bool = False, of: list | None = None
) -> SentencePairs:
    masking = WordMasking(Masking(probability, BERT_REPLACEMENT, seed), MASK, range(4, 20))
    return SentencePairs(of or texts(), masking, PAD, EOS, shuffle)


def test_stream_of_each_pair_of_languages_matches_hand_worked_example():
    dataset = pairs(probability=1e-9)
    assert len(dataset) == 3
    items = [dataset[index] for index in range(3)]
    assert [item["tokens"].tolist() for item in items] == [
        [2, 4, 5, 2, 2, 7, 2], [2, 6, 2, 2, 8, 9, 10, 2], [2, 4, 5, 11, 2, 2, 12, 2],
    ]  # fmt: skip
    assert items[2]["positions"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert items[2]["languages"].tolist() == [1, 1, 1, 1, 1, 2, 2, 2]
    assert items[0]["languages"].tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert all((item["word_targets"] == PAD).all() for item in items)
    assert dataset.sizes.tolist() == [4, 5, 5] and [dataset.size(index) for index in range(3)] == [4, 5, 5]
    assert dataset.num_tokens_vec(np.array([2, 0])).tolist() == [8, 7] and dataset.num_tokens(1) == 8


def test_every_position_but_the_first_may_be_masked():
    dataset = pairs(probability=1.0, seed=None)
    item = dataset[1]
    assert item["tokens"].tolist() == [EOS] + [MASK] * 7
    assert item["word_targets"].tolist() == [PAD, 6, 2, 2, 8, 9, 10, 2]


def test_batch_is_padded_and_keeps_its_items():
    dataset = pairs(probability=1.0, seed=None)
    batch = dataset.collater([dataset[1], dataset[0]])
    assert batch["id"].tolist() == [1, 0] and (batch["nsentences"], batch["ntokens"]) == (2, 15)
    net_input = batch["net_input"]
    assert sorted(net_input) == ["languages", "positions", "tokens"]
    assert net_input["tokens"][1].tolist() == [2, *[MASK] * 6, PAD]
    assert batch["word_targets"][1].tolist() == [PAD, 4, 5, 2, 2, 7, 2, PAD]
    assert net_input["positions"][1].tolist() == [0, 1, 2, 3, 0, 1, 2, 0]
    assert dataset.collater([]) == {}


def test_masks_change_with_the_epoch_in_training_alone():
    long = [PairedText(Lines(list(range(4, 19)) * 10), Lines([7] * 50), (0, 1))]
    for seed, changes in ((1, True), (None, False)):
        dataset = pairs(seed=seed, of=long)
        first = dataset[0]["word_targets"]
        dataset.set_epoch(2)
        assert np.array_equal(first, dataset[0]["word_targets"]) != changes
        assert dataset.can_reuse_epoch_itr_across_epochs != changes
        dataset.set_epoch(1)
        assert np.array_equal(first, dataset[0]["word_targets"])


def test_items_come_by_length_and_equal_lengths_in_a_new_order():
    lines = [[4] * (1 + number % 3) for number in range(60)]
    of = [PairedText(Lines(*lines), Lines(*[[5]] * 60), (0, 1))]
    assert pairs(of=of).ordered_indices().tolist() == [n for r in range(3) for n in range(r, 60, 3)]
    dataset = pairs(of=of, shuffle=True)
    np.random.seed(1)
    first, second = dataset.ordered_indices(), dataset.ordered_indices()
    assert sorted(first) == list(range(60)) and first.tolist() != second.tolist()
    assert (np.diff(dataset.num_tokens_vec(first)) >= 0).all()


def test_a_batch_smaller_than_a_pair_is_refused_by_its_number():
    dataset = pairs()
    order = dataset.ordered_indices()
    assert sum(map(len, dataset.batch_by_size(order, max_tokens=8))) == 3 and dataset.batch_by_size(order[:0], 1) == []
    with pytest.raises(InputError, match=r"--max-tokens is 7, but 2 of 3 pairs of sentences .* pair 2 of 8 positions"):
        dataset.batch_by_size(order, max_tokens=7)
