"""Images beside text batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from fairseq.data import Dictionary, LanguagePairDataset

from visual_grounding import InputError
from visual_grounding.data.complete_batches import CompleteBatches
from visual_grounding.data.visual_context import VisualContextConfig, VisualContextDataset, add_visual_context
from visual_grounding.features.store import FeatureStore

SIZES = [3, 7, 2, 5, 4, 6, 2, 3, 5, 4, 3]


def text_dataset() -> LanguagePairDataset:
    dictionary = Dictionary()
    for word in "abcdefgh":
        dictionary.add_symbol(word)
    sentences = [torch.tensor([4 + s % 8] * (size - 1) + [dictionary.eos()]) for s, size in enumerate(SIZES)]
    return LanguagePairDataset(sentences, SIZES, dictionary, sentences, SIZES, dictionary)


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    features = 1 + np.arange(20 * 2 * 3).reshape(20, 2, 3)
    features[13, 1] = 0  # an image with one region
    features[14] = 0  # an image that couldn't be read
    return FeatureStore(write_store(tmp_path / "store", features))


def test_visual_context_follows_the_order_that_the_text_collater_chose(store):
    ids = np.arange(22).reshape(11, 2).astype(np.int32) % 13
    dataset = VisualContextDataset(text_dataset(), store, ids)
    batch = dataset.collater([dataset[index] for index in (2, 1, 8)])
    assert batch["id"].tolist() == [1, 8, 2]  # by falling length
    assert batch["net_input"]["visual"]["features"].dtype == torch.float16
    for row, index in enumerate(batch["id"]):
        expected = torch.from_numpy(store.features[ids[index]])
        assert torch.equal(batch["net_input"]["visual"]["features"][row], expected)
    assert not batch["net_input"]["visual"]["padding_mask"].any()


def test_visual_context_masks_missing_images_absent_regions_and_zero_rows(store):
    ids = np.tile(np.array([[13, -1, 14]], dtype=np.int32), (11, 1))
    dataset = VisualContextDataset(text_dataset(), store, ids)
    visual = dataset.collater([dataset[0]])["net_input"]["visual"]
    assert visual["padding_mask"].tolist() == [[[False, True], [True, True], [True, True]]]
    assert not visual["features"][visual["padding_mask"]].any()
    assert dataset.collater([]) == {}


def test_visual_context_batches_hold_every_sentence_once(store):
    for dataset in (
        VisualContextDataset(text_dataset(), store, np.zeros((11, 1), np.int32)),
        CompleteBatches(text_dataset()),
    ):
        batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=1000, required_batch_size_multiple=8)
        assert sorted(np.concatenate(batches)) == list(range(11))
        batches = dataset.batch_by_size(np.arange(11), max_sentences=2, required_batch_size_multiple=1)
        assert [len(batch) for batch in batches] == [2, 2, 2, 2, 2, 1]
        assert dataset.batch_by_size(np.arange(0)) == []


def test_fairseq_alone_still_loses_the_last_batch():
    """When this fails, fairseq is mended and `CompleteBatches` can go."""
    dataset = text_dataset()
    batches = dataset.batch_by_size(np.arange(11), max_tokens=1000, required_batch_size_multiple=8)
    assert sum(map(len, batches)) == 8


def test_add_visual_context_takes_the_best_n_and_joins_tables(store, tmp_path):
    first = write_image_ids(tmp_path / "ids/train", np.arange(18).reshape(6, 3) % 20, store.keys_sha256)
    second = write_image_ids(tmp_path / "ids/train1", np.arange(15).reshape(5, 3) % 20, store.keys_sha256)
    cfg = VisualContextConfig(images_per_sentence=2)
    dataset = add_visual_context(text_dataset(), cfg, store, [str(first), str(second)], "train.en-de")
    assert dataset.ids.tolist() == [
        [0, 1],
        [3, 4],
        [6, 7],
        [9, 10],
        [12, 13],
        [15, 16],
        [0, 1],
        [3, 4],
        [6, 7],
        [9, 10],
        [12, 13],
    ]


def test_add_visual_context_counts_sentences_without_image(store, tmp_path, caplog):
    ids = np.zeros((11, 1), np.int32)
    ids[:3] = -1
    folder = write_image_ids(tmp_path / "ids", ids, store.keys_sha256)
    add_visual_context(text_dataset(), VisualContextConfig(), store, [str(folder)], "train.en-de")
    assert "3 of 11 sentences of train.en-de (27.3%) have no image" in caplog.text


def test_add_visual_context_refuses_what_does_not_belong_together(store, tmp_path):
    def add(ids: np.ndarray, digest: str = store.keys_sha256, **cfg) -> None:
        folder = write_image_ids(tmp_path / f"ids{len(list(tmp_path.iterdir()))}", ids, digest)
        add_visual_context(text_dataset(), VisualContextConfig(**cfg), store, [str(folder)], "train.en-de")

    with pytest.raises(InputError, match=r"train.en-de has 11 sentences, but image ids in .* have 12 rows"):
        add(np.zeros((12, 1), np.int32))
    with pytest.raises(
        InputError, match=r"refer to row 20, but feature store .* has 20 images \(rows 0..19\).*keys sha256"
    ):
        add(np.full((11, 1), 20, np.int32), digest="9c02")
    for row in (20, -5):
        with pytest.raises(
            InputError, match=rf"refer to row {row}, but .* rows 0\.\.19 of .*store, or -1 for no image"
        ):
            add(np.full((11, 1), row, np.int32))
    with pytest.raises(InputError, match=f"don't belong to feature store.*keys sha256 9c02… ≠ {store.keys_sha256[:8]}"):
        add(np.zeros((11, 1), np.int32), digest="9c02")
    with pytest.raises(InputError, match=r"--images-per-sentence is 3, but .* has 2 images a sentence"):
        add(np.zeros((11, 2), np.int32), images_per_sentence=3)
    with pytest.raises(InputError, match=r"--images-per-sentence should be 0 \(all\) or more, but is -1"):
        add(np.zeros((11, 2), np.int32), images_per_sentence=-1)


def test_visual_context_refuses_nan_features_and_names_the_image(tmp_path):
    features = np.ones((4, 1, 3))
    features[2, 0, 1] = np.nan
    store = FeatureStore(write_store(tmp_path / "store", features))
    dataset = VisualContextDataset(text_dataset(), store, np.full((11, 1), 2, np.int32))
    with pytest.raises(InputError, match=r"row 2 \(image2.jpg\) hold NaN"):
        dataset.collater([dataset[0]])
