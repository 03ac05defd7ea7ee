"""Masked regions of a batch: what is chosen, what the model sees, and on what that depends."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from fairseq.data import iterators
from masked_text import text_dataset

from visual_grounding.data.region_masking import RegionMasking
from visual_grounding.data.visual_batches import TabledImages, VisualContextDataset
from visual_grounding.data.word_masking import WORDS, Masking
from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.masking import BERT_REPLACEMENT, Replacement

IMAGES, REGIONS = 400, 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Every number of a feature says which image and region it is of; some have no label, some are absent."""
    number = 1 + np.arange(IMAGES * REGIONS).reshape(IMAGES, REGIONS)
    features = np.stack([number % 1000 + 1, number // 1000 + 1], axis=-1).astype(np.float32)
    labels = (number % 7).astype(np.int32)
    labels[::2, 3] = -1
    features[:, 4], labels[1::2, 4] = 0, -1  # half of the regions that aren't there have a label all the same
    boxes = np.tile(np.array([0.0, 0.0, 0.5, 1.0], np.float32), (IMAGES, REGIONS, 1))
    boxes[:, 4] = 0
    columns = {"boxes": boxes, "labels": labels, "attributes": labels, "scores": np.where(labels < 0, 0, 0.5)}
    folder: Path = tmp_path_factory.mktemp("regions") / "store"
    return FeatureStore(write_store(folder, features, columns=columns))


def regions(
    store: FeatureStore, seed: int | None = 1, hides: bool = True, probability: float = 0.15, **shares: float
) -> RegionMasking:
    """Eleven sentences with N = 30 images each; with two images of it each where the share of random ones is given."""
    ids = np.arange(11 * 30).reshape(11, 30).astype(np.int32)
    dataset = VisualContextDataset(text_dataset(), store, TabledImages(ids))
    replacement = Replacement(**shares) if shares else BERT_REPLACEMENT
    return RegionMasking(dataset, Masking(probability, replacement, seed), hides)


def batch_of(dataset: RegionMasking, items: list[int], epoch: int = 1) -> dict:
    dataset.set_epoch(epoch)
    return dataset.collater([dataset[item] for item in items])


def plain(dataset: RegionMasking, items: list[int]) -> dict:
    return dataset.dataset.collater([dataset[item] for item in items])["net_input"]["visual"]


def test_chosen_regions_have_their_labels_as_targets_and_the_model_sees_none(store):
    dataset = regions(store)
    batch, before = batch_of(dataset, list(range(11))), plain(dataset, list(range(11)))
    visual, targets = batch["net_input"]["visual"], batch["label_targets"]
    assert sorted(visual) == ["boxes", "features", "masked", "padding_mask"]
    chosen = targets >= 0
    assert targets.dtype == torch.int64 and torch.equal(targets[chosen], before["labels"][chosen].long())
    assert not (chosen & before["padding_mask"]).any() and not (chosen & (before["labels"] < 0)).any()
    assert (visual["masked"] <= chosen).all()
    candidates = int(((before["labels"] >= 0) & ~before["padding_mask"]).sum())
    assert abs(int(chosen.sum()) - 0.15 * candidates) < 5 * np.sqrt(candidates * 0.15 * 0.85)
    assert torch.equal(visual["boxes"], before["boxes"])
    unchanged = (visual["features"] == before["features"]).all(dim=-1)
    assert unchanged[~chosen].all() and unchanged[visual["masked"]].all()  # the model replaces those of the mask
    assert not unchanged.all()  # a random region or two


def test_regions_are_drawn_apart_from_the_words_of_the_sentence(store):
    dataset = regions(store, probability=0.5)
    masking, before = dataset.masking, plain(dataset, [7])
    batch = batch_of(dataset, [7])
    candidates = (before["labels"][0] >= 0).numpy() & ~before["padding_mask"][0].numpy()
    as_words = masking.fates(candidates, masking.generator(7, 1, WORDS)) > 0
    assert not np.array_equal(batch["label_targets"][0].numpy() >= 0, as_words)


def test_random_features_come_from_regions_of_the_batch_and_bring_nothing_along(store):
    dataset = regions(store, probability=1.0, masked=0.0, random=1.0)
    batch, before = batch_of(dataset, [0, 1, 2]), plain(dataset, [0, 1, 2])
    features = batch["net_input"]["visual"]["features"].flatten(0, 2)
    present = ~before["padding_mask"].flatten()
    there = {tuple(each) for each in before["features"].flatten(0, 2)[present].tolist()}
    swapped = (batch["label_targets"] >= 0).flatten()
    assert {tuple(each) for each in features[swapped].tolist()} <= there
    assert len({tuple(each) for each in features[swapped].tolist()}) > 100
    assert torch.equal(features[~swapped], before["features"].flatten(0, 2)[~swapped])
    assert torch.equal(batch["label_targets"].flatten()[swapped], before["labels"].flatten()[swapped].long())
    assert not batch["net_input"]["visual"]["masked"].any()


def test_unmasked_regions_are_predicted_from_what_they_are(store):
    hidden, shown = batch_of(regions(store), list(range(11))), batch_of(regions(store, hides=False), list(range(11)))
    assert torch.equal(hidden["label_targets"], shown["label_targets"])
    visual = shown["net_input"]["visual"]
    assert not visual["masked"].any() and hidden["net_input"]["visual"]["masked"].any()
    assert torch.equal(visual["features"], plain(regions(store), list(range(11)))["features"])


def test_masks_of_validation_are_the_same_in_every_epoch_and_hide_all_that_is_chosen(store):
    dataset = regions(store, seed=None)
    first, second = batch_of(dataset, [3, 4]), batch_of(dataset, [3, 4], epoch=2)
    assert torch.equal(first["label_targets"], second["label_targets"])
    assert torch.equal(first["net_input"]["visual"]["masked"], first["label_targets"] >= 0)
    assert dataset.can_reuse_epoch_itr_across_epochs and not regions(store).can_reuse_epoch_itr_across_epochs


def test_masks_of_an_item_do_not_depend_on_its_batch_but_on_the_epoch(store):
    dataset = regions(store)
    alone, among = batch_of(dataset, [7]), batch_of(dataset, list(range(11)))
    row = among["id"].tolist().index(7)
    assert torch.equal(alone["label_targets"][0], among["label_targets"][row])
    assert not torch.equal(alone["label_targets"], batch_of(dataset, [7], epoch=2)["label_targets"])
    assert not torch.equal(alone["label_targets"], batch_of(regions(store, seed=2), [7])["label_targets"])


def test_batches_are_the_same_with_any_number_of_workers_and_processes(store):
    batches = [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9, 10]]

    def collected(workers: int, processes: int) -> dict[int, dict]:
        found = {}
        for shard in range(processes):
            dataset = regions(store)
            epoch = iterators.EpochBatchIterator(
                dataset, dataset.collater, batches, num_workers=workers, num_shards=processes, shard_id=shard, epoch=3
            )
            found |= {int(batch["id"].min()): batch for batch in epoch.next_epoch_itr(shuffle=False)}
        return found

    one = collected(0, 1)
    for several in (collected(2, 1), collected(0, 2)):
        assert several.keys() == one.keys()
        for key, batch in one.items():
            assert torch.equal(batch["label_targets"], several[key]["label_targets"])
            for name, value in batch["net_input"]["visual"].items():
                assert torch.equal(value, several[key]["net_input"]["visual"][name]), name


def test_batch_without_regions_and_an_empty_one_are_taken(store):
    ids = np.full((11, 2), -1, np.int32)
    dataset = RegionMasking(
        VisualContextDataset(text_dataset(), store, TabledImages(ids)), Masking(1.0, Replacement(0.0, 1.0), 1)
    )
    batch = batch_of(dataset, [0, 1])
    assert (batch["label_targets"] == -1).all() and not batch["net_input"]["visual"]["features"].any()
    assert dataset.collater([]) == {}
