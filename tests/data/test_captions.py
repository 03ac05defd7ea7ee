"""Caption batches: tokens, orders, and captions whose image isn't there."""

import numpy as np
import pytest
from conftest import write_store
from fairseq.data import data_utils

from visual_grounding.data.captions import CaptionDataset, load_captions
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.text.words import Vocabulary, WordTokenizer


@pytest.fixture
def store(tmp_path):
    features = np.arange(5, dtype=float)[:, None, None] + np.array([[[1.0, 2.0], [10.0, 20.0]]])
    features[2, 1] = 0  # its second region is absent
    return FeatureStore(write_store(tmp_path / "store", features))


@pytest.fixture
def dataset(store, tmp_path):
    lines = ["image3.jpg\ta b", "image2.jpg\tb", "image3.jpg\ta b a a", "image0.jpg\tzebra"]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    captions, rows = load_captions(tmp_path / "train.tsv", store)
    return CaptionDataset(captions, rows, WordTokenizer(Vocabulary(["a", "b"])), shuffle=True)


def test_caption_batch_has_padded_captions_and_the_rows_of_their_images(dataset):
    batch = dataset.collater([dataset[index] for index in (2, 1, 3)])
    assert batch["id"].tolist() == [2, 1, 3] and batch["image_rows"].tolist() == [3, 2, 0]
    inputs = batch["net_input"]
    assert inputs["tokens"].tolist() == [[4, 5, 4, 4], [5, 1, 1, 1], [3, 1, 1, 1]]
    assert inputs["token_padding_mask"].sum(dim=1).tolist() == [0, 3, 3]
    assert (batch["nsentences"], batch["ntokens"]) == (3, 6) and not batch["special_mask"].any()
    assert dataset.collater([]) == {}


def test_what_the_tokenizer_puts_around_a_caption_is_marked():
    class Pieces:
        """Around the lengths of the words: 2 before, 3 after."""

        pad, around = 0, {2, 3}

        def encode(self, texts):
            return [[2, *(len(word) + 3 for word in text.split()), 3] for text in texts], 0

    dataset = CaptionDataset(["aa b", "a"], np.zeros(2, int), Pieces())
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["tokens"].tolist() == [[2, 5, 4, 3], [2, 4, 3, 0]]
    assert batch["special_mask"].tolist() == [[True, False, False, True], [True, False, True, False]]


def test_caption_batches_are_formed_anew_from_fairseqs_seed_and_unsorted_by_length():
    captions = ["a " * (number % 9 + 1) for number in range(50)]
    shuffled = CaptionDataset(captions, np.zeros(50, int), WordTokenizer(Vocabulary(["a"])), shuffle=True)
    orders = []
    for seed in (1, 1, 2):
        with data_utils.numpy_seed(seed):
            orders.append(shuffled.ordered_indices().tolist())
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50))
    assert not shuffled.can_reuse_epoch_itr_across_epochs
    fixed = CaptionDataset(captions, np.zeros(50, int), WordTokenizer(Vocabulary(["a"])))
    assert fixed.ordered_indices().tolist() == list(range(50)) and fixed.can_reuse_epoch_itr_across_epochs
    assert fixed.sizes.tolist() == [number % 9 + 1 for number in range(50)] == [fixed.size(n) for n in range(50)]


def test_load_captions_refuses_images_that_the_store_does_not_have(store, tmp_path):
    (tmp_path / "train.tsv").write_text("image9.jpg\ta\nimage1.jpg\tb\nimage9.jpg\tc\nimage8.jpg\td\n")
    with pytest.raises(InputError, match=r"2 keys aren't, the first 'image8.jpg' \(the store has 5 images"):
        load_captions(tmp_path / "train.tsv", store)
