"""Masks in words and tags, and whose images there are: how often, where, and by what they are decided."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from vision_language import make_task, make_world, whole

from visual_grounding.data.image_tags import ImageTags
from visual_grounding.data.masked_pairs import MaskedPairs
from visual_grounding.data.paired_images import OwnOrOtherImages
from visual_grounding.data.visual_batches import VisualContextDataset
from visual_grounding.data.word_masking import Masking, WordMasking
from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.masking import MASK_ALONE

PAD, EOS, MASK = 1, 2, 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def many(world: Path, fixed: bool = False, probability: float = 0.15) -> MaskedPairs:
    """400 sentences of 3 to 8 words beside the images of the world."""
    dictionary = Dictionary.load(str(world / "bin/dict.txt"))
    rng = np.random.default_rng(3)
    lines = [torch.tensor([*rng.integers(5, 14, rng.integers(3, 9)), EOS]) for _ in range(400)]
    store = FeatureStore(world / "store")
    choice = OwnOrOtherImages(rng.integers(0, 8, (400, 1)), 1, fixed, "train")
    tags = ImageTags(store.label_names, dictionary.symbols, "dict.txt", "words", 0.3)
    text = LanguagePairDataset(lines, np.array([len(line) for line in lines]), dictionary, left_pad_source=False)
    masking = WordMasking(Masking(probability, MASK_ALONE, None if fixed else 1), MASK, range(MASK, MASK + 1))
    return MaskedPairs(VisualContextDataset(text, store, choice, tags=tags), dictionary, choice, masking)


def by_item(batch: dict, key: str) -> dict[int, list[int]]:
    """Rows without padding at their end, under their items' numbers."""
    values = {"words": batch["net_input"]["src_tokens"], "tags": batch["net_input"]["visual"]["tags"]}.get(key)
    values = batch[key] if values is None else values
    return {int(item): row.tolist() for item, row in zip(batch["id"], values)}


@pytest.mark.parametrize("probability", [0.15, 0.5])
def test_words_and_tags_are_masked_at_the_rate_and_by_the_mask_alone(world, probability):
    dataset = many(world, probability=probability)
    batch = dataset.collater([dataset[index] for index in range(400)])
    assert sorted(batch["net_input"]["visual"]) == ["boxes", "features", "padding_mask", "tags"]  # no label, no score
    plain = dataset.dataset.collater([dataset[index] for index in range(400)])
    for shown, hidden, own in (
        (batch["net_input"]["src_tokens"], batch["target"], plain["net_input"]["src_tokens"]),
        (batch["net_input"]["visual"]["tags"], batch["tag_target"], plain["net_input"]["visual"]["tags"]),
    ):
        masked = hidden != PAD
        assert (shown[masked] == MASK).all() and torch.equal(shown[~masked], own[~masked])
        assert torch.equal(hidden[masked], own[masked]) and not (hidden == EOS).any()
        candidates = int(((own != PAD) & (own != EOS)).sum())
        spread = np.sqrt(candidates * probability * (1 - probability))
        assert candidates > 500 and abs(int(masked.sum()) - candidates * probability) < 5 * spread


def test_masks_depend_on_seed_epoch_and_item_alone(world):
    dataset = many(world)
    several = dataset.collater([dataset[index] for index in range(400)])
    for index in (0, 7, 399):
        alone = dataset.collater([dataset[index]])
        for key in ("words", "target", "tags", "tag_target"):
            ((item, row),) = by_item(alone, key).items()
            other = by_item(several, key)[item]
            assert other[: len(row)] == row and set(other[len(row) :]) <= {PAD}
    dataset.set_epoch(2)
    again = dataset.collater([dataset[index] for index in range(400)])
    assert by_item(again, "target") != by_item(several, "target") and not torch.equal(
        again["paired"], several["paired"]
    )
    dataset.set_epoch(1)
    assert by_item(dataset.collater([dataset[index] for index in range(400)]), "target") == by_item(several, "target")


def test_masks_of_words_and_of_tags_are_drawn_apart(world):
    dataset = many(world, probability=0.5)
    batch = dataset.collater([dataset[index] for index in range(400)])
    words, tags = batch["target"][:, 0] != PAD, batch["tag_target"][:, 0] != PAD
    there = batch["net_input"]["visual"]["tags"][:, 0] != PAD
    both = int((words & tags)[there].sum())
    assert abs(both - int(there.sum()) / 4) < 5 * np.sqrt(int(there.sum()) * 3 / 16)


def test_in_validation_nothing_changes_with_the_epoch(world):
    dataset = many(world, fixed=True)
    batches = []
    for epoch in (1, 2):
        dataset.set_epoch(epoch)
        batches.append(dataset.collater([dataset[index] for index in range(400)]))
    for key in ("target", "tag_target", "paired"):
        assert torch.equal(batches[0][key], batches[1][key])
    assert dataset.can_reuse_epoch_itr_across_epochs and not many(world).can_reuse_epoch_itr_across_epochs


def test_other_images_bring_their_own_regions_and_tags(world):
    task = make_task(world, mask_prob=1e-9)
    batch = whole(task, "train")
    names, features = FeatureStore(world / "store").label_names, FeatureStore(world / "store").features
    own = task.dataset("train").choice.ids[batch["id"].numpy(), 0]
    others = 0
    for row, (image, paired) in enumerate(zip(own, batch["paired"].tolist())):
        shown = batch["net_input"]["visual"]["features"][row, 0].numpy()
        if image < 0:
            assert paired == -1
            continue
        assert (shown == features[image]).all() == bool(paired)
        others += not paired
        (seen,) = [n for n in range(8) if (shown == features[n]).all()]
        tags = batch["net_input"]["visual"]["tags"][row]
        words = [names[seen % 4], *([] if seen % 2 else [names[(seen + 1) % 4]])]
        assert task.dictionary.string(tags[tags != PAD]) == " ".join(words)
    assert 0 < others < len(own) - 1


def test_sentence_whose_image_has_no_regions_is_not_asked_for_its_pair(world, tmp_path):
    task = make_task(world, image_order="blank")
    batch = whole(task)
    assert (batch["paired"] == -1).all() and (batch["target"] != PAD).any()
    assert batch["net_input"]["visual"]["padding_mask"].all()


def test_without_tags_there_is_no_target_of_tags(world):
    batch = whole(make_task(world, image_tags=None))
    assert "tag_target" not in batch and "tags" not in batch["net_input"]["visual"]
    dataset = make_task(world)
    dataset.load_dataset("valid")
    assert dataset.dataset("valid").collater([]) == {}
