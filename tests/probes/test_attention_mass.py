"""A decoder's attention on regions, watched while it reads the references."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from small_watched import NAME, watched

from visual_grounding.errors import InputError
from visual_grounding.probes.attention_mass import check_attends, look, shares_of
from visual_grounding.probes.trained import Trained, load_split, load_trained
from visual_grounding.storage.artefact import sha256_of_file


def load(path: Path, **changes: object) -> Trained:
    return load_trained(path, "grounded_translation", torch.device("cpu"), changes)


@pytest.fixture(scope="module")
def checkpoint(animals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watched(animals, tmp_path_factory.mktemp("watched") / "watched.pt")


@pytest.fixture(scope="module")
def gaps(animals: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two images a sentence, of which some have one and some none; half of the images have one region."""
    folder = tmp_path_factory.mktemp("gaps")
    features = np.random.default_rng(3).normal(size=(12, 2, 6))
    features[::2, 1] = 0
    store = write_store(folder / "store", features, columns={"boxes": np.ones((12, 2, 4), np.float32)})
    ids = np.random.default_rng(4).integers(0, 12, size=(24, 2))
    ids[::3, 1], ids[5], ids[11] = -1, -1, -1
    write_image_ids(folder / "ids/test", ids.astype(np.int32), sha256_of_file(store / "keys.txt"))
    return {"image_features": str(store), "image_ids": str(folder / "ids")}


def sentence_by_sentence(trained: Trained, split: str) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """The naive twin: share of each layer's tokens (layers, U), words and regions, without batches or padding."""
    dataset = load_split(trained, split)
    for row in range(len(dataset)):
        inputs = dataset.collater([dataset[row]])["net_input"]
        _, extra = trained.model(**inputs, watch_attention=True)
        words = inputs["src_tokens"].shape[1] + 1  # the small encoder puts a mark before them
        shares = [[sum(map(float, token[words:])) for token in layer[0]] for layer in extra["cross_attention"]]
        yield np.array(shares), (words, int((~inputs["visual"]["padding_mask"]).sum()))


def test_shares_are_those_of_a_naive_loop(checkpoint: Path, gaps: dict[str, str]) -> None:
    trained = load(checkpoint, **gaps)
    told: list[int] = []
    found = shares_of(trained, load_split(trained, "test"), "test", 5, told.append)
    with torch.no_grad():
        expected = list(sentence_by_sentence(trained, "test"))
    assert found.visible == [visible for _, visible in expected]
    assert [row for row in range(24) if not found.visible[row][1]] == [5, 11]
    for ours, (theirs, _) in zip(found.on_regions, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert sum(told) == 24 and {shares.shape[0] for shares in found.on_regions} == {2}


def test_one_sentence_is_looked_at_token_by_token(checkpoint: Path, animals: Path) -> None:
    trained = load(checkpoint)
    dataset = load_split(trained, "test")
    found = look(trained, dataset, 3, "test")
    reference = (animals / "text/test.de").read_text(encoding="utf-8").splitlines()[3]
    assert found.tokens == [*reference.split(), "</s>"]
    assert found.on_boxes.shape == (2, len(found.tokens), 1, 2)
    shares = shares_of(trained, dataset, "test", 24)
    assert found.on_regions == pytest.approx(shares.on_regions[3], abs=1e-5)
    assert found.on_boxes.sum(axis=(2, 3)) == pytest.approx(np.ones((2, len(found.tokens))))
    assert found.boxes.tolist() == [[[0, 0, 0.5, 1], [0.5, 0.5, 1, 1]]]
    row = np.load(animals / "ids/test/ids.npy")[3, 0]
    assert found.keys == [(animals / "store/keys.txt").read_text().splitlines()[row]]


def test_sentences_that_cannot_be_looked_at_are_refused(checkpoint: Path, gaps: dict[str, str], tmp_path: Path) -> None:
    trained = load(checkpoint, **gaps)
    dataset = load_split(trained, "test")
    with pytest.raises(InputError, match="one of the 24 of test, 0 to 23, but is 24"):
        look(trained, dataset, 24, "test")
    with pytest.raises(InputError, match="sentence 5 of test has no image to look at"):
        look(trained, dataset, 5, "test")
    assert look(trained, dataset, 0, "test").keys[1] == ""
    plain = write_store(tmp_path / "plain", np.ones((12, 2, 6)))
    trained = load(checkpoint, **{**gaps, "image_features": str(plain)})
    with pytest.raises(
        InputError, match=r"boxes are needed to draw .* but .*plain has none\. docs/regions.md"
    ) as refused:
        look(trained, load_split(trained, "test"), 0, "test")
    assert refused.value.choices == ("image_features",)


def test_models_that_attend_to_no_regions_are_refused_by_name(checkpoint: Path, animals: Path) -> None:
    check_attends(load(checkpoint))
    message = (
        rf"architecture is visual_aware_transformer, whose decoder attends to text alone\. Those that do: .*{NAME}"
    )
    with pytest.raises(InputError, match=message):
        check_attends(load(animals / "seeing.pt"))
    blind = watched(animals, checkpoint.parent / "blind.pt", images=False)
    with pytest.raises(InputError, match=r"blind.pt was trained without images, so its attention has no regions"):
        check_attends(load(blind))
