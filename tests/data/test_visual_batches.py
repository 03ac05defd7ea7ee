"""Images beside text batches: in the collater's order, from tables or from a finder, features or pictures."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from fairseq.tasks import FairseqTask
from masked_text import LetterFinder, MaskedText, line_of, text_dataset
from PIL import Image

from visual_grounding import InputError
from visual_grounding.data.complete_batches import CompleteBatches
from visual_grounding.data.visual_batches import FoundImages, TabledImages, VisualContextDataset
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.pixels import PixelSource
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    features = 1 + np.arange(20 * 2 * 3).reshape(20, 2, 3)
    features[13, 1] = 0  # an image with one region
    features[14] = 0  # an image that couldn't be read
    return FeatureStore(write_store(tmp_path / "store", features))


def test_images_follow_the_order_that_the_text_collater_chose(store):
    ids = np.arange(22).reshape(11, 2).astype(np.int32) % 13
    dataset = VisualContextDataset(text_dataset(), store, TabledImages(ids))
    batch = dataset.collater([dataset[index] for index in (2, 1, 8)])
    assert batch["id"].tolist() == [1, 8, 2]  # by falling length
    visual = batch["net_input"]["visual"]
    assert sorted(visual) == ["features", "padding_mask"] and visual["features"].dtype == torch.float16
    for row, index in enumerate(batch["id"]):
        expected = torch.from_numpy(store.features[ids[index]])
        assert torch.equal(visual["features"][row], expected)
    assert not visual["padding_mask"].any()


def test_missing_images_absent_regions_and_zero_rows_are_masked(store):
    ids = np.tile(np.array([[13, -1, 14]], dtype=np.int32), (11, 1))
    dataset = VisualContextDataset(text_dataset(), store, TabledImages(ids))
    visual = dataset.collater([dataset[0]])["net_input"]["visual"]
    assert visual["padding_mask"].tolist() == [[[False, True], [True, True], [True, True]]]
    assert not visual["features"][visual["padding_mask"]].any()
    assert dataset.collater([]) == {}


def test_batch_carries_the_optional_columns_of_the_store(tmp_path):
    rng = np.random.default_rng(0)
    corner = rng.random((5, 2, 2)) / 2
    columns = {
        "boxes": np.concatenate([corner, corner + 0.25], axis=-1).astype(np.float32),
        "labels": rng.integers(0, 3, (5, 2)).astype(np.int32),
        "attributes": rng.integers(0, 4, (5, 2)).astype(np.int32),
        "scores": rng.random((5, 2)).astype(np.float16),
    }
    store = FeatureStore(write_store(tmp_path / "store", np.ones((5, 2, 3)), columns=columns))
    ids = np.tile(np.array([[4, -1, 1]], dtype=np.int32), (11, 1))
    dataset = VisualContextDataset(text_dataset(), store, TabledImages(ids))
    visual = dataset.collater([dataset[0], dataset[1]])["net_input"]["visual"]
    assert sorted(visual) == ["attributes", "boxes", "features", "labels", "padding_mask", "scores"]
    for name, values in columns.items():
        assert visual[name].shape == (2, 3, *values.shape[1:])
        for sentence in (0, 1):
            np.testing.assert_array_equal(visual[name][sentence, [0, 2]], values[[4, 1]])
    assert (visual["labels"][:, 1] == -1).all() and not visual["boxes"][:, 1].any()


def test_batches_hold_every_sentence_once(store):
    for dataset in (
        VisualContextDataset(text_dataset(), store, TabledImages(np.zeros((11, 1), np.int32))),
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


def test_nan_features_are_refused_and_the_image_is_named(tmp_path):
    features = np.ones((4, 1, 3))
    features[2, 0, 1] = np.nan
    store = FeatureStore(write_store(tmp_path / "store", features))
    dataset = VisualContextDataset(text_dataset(), store, TabledImages(np.full((11, 1), 2, np.int32)))
    with pytest.raises(InputError, match=r"row 2 \(image2.jpg\) hold NaN"):
        dataset.collater([dataset[0]])


@pytest.mark.parametrize(
    ("workers", "start"), [(0, None), (1, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)]
)
def test_finder_is_asked_in_the_workers_with_the_text_of_the_epoch(store, workers, start, monkeypatch):
    """`--num-workers` and several epochs as fairseq's trainer runs them: an iterator for each epoch from the task."""
    if start:
        started = partial(torch.utils.data.DataLoader, multiprocessing_context=start)
        monkeypatch.setattr(torch.utils.data, "DataLoader", started)
    dataset = VisualContextDataset(MaskedText(text_dataset()), store, FoundImages(LetterFinder(store), line_of))
    task = FairseqTask(None)
    seen = {}
    for epoch in (1, 2):
        iterator = task.get_batch_iterator(dataset, max_sentences=4, num_workers=workers, epoch=epoch)
        for batch in iterator.next_epoch_itr(shuffle=False):
            for row, place in enumerate(batch["id"].tolist()):
                seen[epoch, place] = batch["net_input"]["visual"]["features"][row]
    assert len(seen) == 22
    for (epoch, place), features in seen.items():
        letter = (place + epoch) % 8
        assert torch.equal(features, torch.from_numpy(store.features[[letter, letter + 8]])), (epoch, place)


def test_finder_gets_the_excluded_row_of_each_item(store):
    excluded = np.full(11, -1, dtype=np.int32)
    excluded[1], excluded[2] = 2, 11
    choice = FoundImages(LetterFinder(store), line_of, excluded)
    dataset = VisualContextDataset(MaskedText(text_dataset()), store, choice)
    batch = dataset.collater([dataset[index] for index in (2, 1, 8)])
    assert batch["id"].tolist() == [1, 8, 2]
    absent = batch["net_input"]["visual"]["padding_mask"].all(dim=-1)
    assert absent.tolist() == [[True, False], [False, False], [False, True]]


def test_the_excluded_row_is_of_the_item_that_gets_the_images(store):
    """Whosever text they are found for, under --image-order shuffled."""
    asked = []

    class Seen(LetterFinder):
        def search(self, lines, empty, excluded):
            asked.append((lines, excluded.tolist()))
            return super().search(lines, empty, excluded)

    text = text_dataset()
    partners = (np.arange(11) + 1) % 11
    choice = FoundImages(Seen(store), line_of, np.arange(11), None, (partners, text))
    choice.rows(np.array([4, 10]), [text[4], text[10]], 1)
    assert asked == [([line_of(text[5]), line_of(text[0])], [4, 10])]


@pytest.fixture
def pictures(tmp_path: Path) -> PixelSource:
    for name in "abc":
        pixels = np.random.default_rng(ord(name)).integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    (tmp_path / "d.png").write_bytes(b"no picture")
    return PixelSource(open_images(tmp_path), Preprocessing(8, 8), str(tmp_path))


def test_pictures_are_framed_anew_every_epoch_and_alike_in_any_batch(pictures):
    ids = np.array([[1], [2], [1], *[[0]] * 8])
    dataset = VisualContextDataset(text_dataset(), pictures, TabledImages(ids), framing_seed=1)

    def framed(*places: int) -> dict[int, torch.Tensor]:
        batch = dataset.collater([dataset[place] for place in places])
        return dict(zip(batch["id"].tolist(), batch["net_input"]["visual"]["pixels"]))

    first = framed(0, 1, 2)
    assert (first[0].shape, first[0].dtype) == ((1, 8, 8, 3), torch.uint8)
    assert not torch.equal(first[0], first[2])  # one picture, two sentences
    again = framed(2, 0)
    assert torch.equal(again[0], first[0]) and torch.equal(again[2], first[2])
    dataset.set_epoch(2)
    assert not torch.equal(framed(0, 1, 2)[0], first[0])
    dataset.set_epoch(1)
    assert torch.equal(framed(0, 1, 2)[1], first[1])
    assert not dataset.can_reuse_epoch_itr_across_epochs  # fairseq would keep workers that know of no other epoch
    whole = VisualContextDataset(text_dataset(), pictures, TabledImages(ids))
    batch = whole.collater([whole[0], whole[2]])["net_input"]["visual"]
    assert torch.equal(*batch["pixels"]) and whole.can_reuse_epoch_itr_across_epochs
    np.testing.assert_array_equal(batch["pixels"][0], pictures.gather(np.array([1]))[0])


def test_several_pictures_a_sentence_stand_at_their_places_and_absent_ones_are_masked(pictures):
    ids = np.array([[2, -1, 3, 0], [-1, -1, -1, -1], *[[0, 0, 0, 0]] * 9])
    whole = VisualContextDataset(text_dataset(), pictures, TabledImages(ids))
    batch = whole.collater([whole[0], whole[1]])
    visual, first = batch["net_input"]["visual"], batch["id"].tolist().index(0)
    assert visual["padding_mask"][first].tolist() == [[False], [True], [True], [False]]
    assert visual["padding_mask"][1 - first].all() and not visual["pixels"][1 - first].any()
    np.testing.assert_array_equal(visual["pixels"][first, [0, 3]], pictures.gather(np.array([2, 0]))[0])
    framed = VisualContextDataset(text_dataset(), pictures, TabledImages(np.zeros((11, 3), int)), framing_seed=1)
    pixels = framed.collater([framed[0]])["net_input"]["visual"]["pixels"][0]
    assert not torch.equal(pixels[0], pixels[1]) and not torch.equal(pixels[1], pixels[2])
    alone = VisualContextDataset(text_dataset(), pictures, TabledImages(np.zeros((11, 1), int)), framing_seed=1)
    assert torch.equal(alone.collater([alone[0]])["net_input"]["visual"]["pixels"][0, 0], pixels[0])
