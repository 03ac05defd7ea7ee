"""A small world of understanding: pairs of sentences, words and tags, beside images that tell the answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from conftest import write_image_ids, write_store
from small_grounded import FEATURES, NOUNS, make_encoder

from visual_grounding.features.store import FeatureStore
from visual_grounding.tasks.grounded_sentence_prediction import (
    GroundedSentencePredictionConfig,
    GroundedSentencePredictionTask,
)
from visual_grounding.tasks.grounded_tagging import GroundedTaggingConfig, GroundedTaggingTask
from visual_grounding.text.example_files import asked_of, write_examples
from visual_grounding.text.labelled_text import CLASSES, TAGS, VALUES, Example, joined_words
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

COLOURS = ["red", "old", "big"]
SIZES = {"train": 36, "valid": 12}
IMAGES = 6


def make_world(folder: Path) -> Path:
    """`encoder/`, `store/` of 6 images, `ids/`, and the example folders `pairs/`, `values/`, `words/`, `tags/`.

    Image n is of colour n % 3. Pairs are of a sentence with image 0…5 and one with another; a pair's class is whether
    the second is red, its value the colour of the first, a word's class whether that is red, and the tag of a
    noun its colour. No text tells any of it.
    """
    make_encoder(folder / "encoder")
    features = np.eye(FEATURES)[np.arange(IMAGES) % 3][:, None] + 0.0625 * np.arange(IMAGES)[:, None, None]
    digest = FeatureStore(write_store(folder / "store", features)).keys_sha256
    bridge = TokenizerBridge(str(folder / "encoder"))
    rng = np.random.default_rng(0)
    made: dict[str, dict[str, list[Example]]] = {name: {} for name in ("pairs", "values", "words", "tags")}
    for split, size in SIZES.items():
        first, second = rng.integers(0, IMAGES, (2, size))
        for name, suffix in (("first", ""), ("second", ".second")):
            ids = (first if name == "first" else second)[:, None].astype(np.int32)
            write_image_ids(folder / "ids" / f"{split}{suffix}", ids, digest)
        for name in made:
            made[name][split] = [example_of(name, *pair, rng) for pair in zip(first.tolist(), second.tolist())]
    for name, splits in made.items():
        kind = {"values": VALUES, "tags": TAGS}.get(name, CLASSES)
        asked = asked_of(kind, splits["train"], bridge)
        write_examples(folder / name, splits, asked, bridge, "test", dict, lambda _: None)
    return folder


def example_of(kind: str, first: int, second: int, rng: Any) -> Example:
    """One example whose first sentence has image `first`, and its second, where it has one, image `second`."""
    one, other = (["a", *rng.choice(["near", "roofs"], rng.integers(0, 3)), str(rng.choice(NOUNS))] for _ in range(2))
    text, spans = joined_words(one)
    if kind == "pairs":
        return Example((text, " ".join(other)), ("red" if second % 3 == 0 else "other",))
    if kind == "values":
        return Example((text, " ".join(other)), (str(first % 3),))
    if kind == "words":
        return Example((text,), (str(int(first % 3 == 0)),), spans[-1:])
    return Example((text,), ("O",) * (len(one) - 1) + (f"B-{COLOURS[first % 3]}",), spans)


def make_task(folder: Path, name: str = "pairs", images: bool = True, **flags: object) -> Any:
    """The task over an example folder, and images."""
    values = {"data": str(folder / name), "train_subset": "train", "seed": 1, "num_workers": 0, "save_dir": "nowhere",
              "restore_file": "checkpoint_last.pt", "continue_once": None, "finetune_from_model": None,
              "checkpoint_suffix": "", "max_pieces": 20}  # fmt: skip
    if images:
        values |= {"image_features": str(folder / "store"), "image_ids": str(folder / "ids")}
    if name == "tags":
        return GroundedTaggingTask.setup_task(GroundedTaggingConfig(**{**values, **flags}))
    return GroundedSentencePredictionTask.setup_task(GroundedSentencePredictionConfig(**{**values, **flags}))


def forget_digests(folder: Path) -> None:
    """Make a folder one from before `prepare` noted its files' digests, so that a test may change them."""
    meta = json.loads((folder / "meta.json").read_text())
    for of in meta["splits"].values():
        of.pop("files", None)
    (folder / "meta.json").write_text(json.dumps(meta))


def whole(task: Any, split: str = "valid") -> dict:
    """A split as one batch, in the order of its files."""
    if split not in task.datasets:
        task.load_dataset(split)
    dataset = task.dataset(split)
    return dataset.collater([dataset[index] for index in range(len(dataset))])
