"""A small world for VLP: sentences whose noun is what their image shows, a store of its regions, and a small BERT."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from conftest import write_image_ids, write_store
from fairseq.data import Dictionary, indexed_dataset
from small_tokenizers import make_tokenizer

from visual_grounding.features.store import FeatureStore
from visual_grounding.tasks.vision_language_pretraining import (
    VisionLanguagePretrainingConfig,
    VisionLanguagePretrainingTask,
)
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

NOUNS = ["dog", "ball", "bird", "roof"]
WORDS = ["<mask>", "a", "red", "old", "big", "sports", *NOUNS]
LABELS = ["dog", "sports ball", "bird", "roof"]
SIZES = {"train": 24, "valid": 8}
TINY = {"bert_size": 16, "bert_layers": 2, "bert_heads": 2, "bert_ffn_size": 32, "bert_positions": 24}


def make_world(folder: Path) -> Path:
    """`bin/` text with dict.txt, `store/` of 8 images with R = 2, F = 6, and one region in image 3; `ids/`.

    Image n shows LABELS[n % 4] with a score of 0.9, and the next label with 0.5, or 0.1 in odd images. Of each split
    the last sentence has no image.
    """
    labels = np.stack([np.arange(8) % 4, (np.arange(8) + 1) % 4], axis=1)
    features = np.eye(6)[labels] + 0.125 * np.arange(8)[:, None, None]
    features[3, 1] = 0
    boxes = np.tile([[0.25, 0.0, 0.75, 0.5], [0.0, 0.25, 1.0, 1.0]], (8, 1, 1))
    scores = np.stack([np.full(8, 0.9), np.where(np.arange(8) % 2, 0.1, 0.5)], axis=1)
    store = write_store(
        folder / "store", features, columns={"boxes": boxes, "labels": labels.astype(np.int32), "scores": scores},
        label_names=LABELS,
    )  # fmt: skip
    (folder / "bin").mkdir()
    (folder / "bin/dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))
    dictionary = Dictionary.load(str(folder / "bin/dict.txt"))
    digest = FeatureStore(store).keys_sha256
    rng = np.random.default_rng(0)
    for split, size in SIZES.items():
        builder = indexed_dataset.make_builder(f"{folder}/bin/{split}.bin", "mmap", len(dictionary))
        ids = rng.integers(0, 8, (size, 1)).astype(np.int32)
        ids[:2] = [[0], [5]]
        for image in ids[:, 0]:
            line = ["a", *rng.choice(["red", "old", "big"], rng.integers(0, 3)), NOUNS[image % 4]]
            builder.add_item(dictionary.encode_line(" ".join(line), add_if_not_exist=False).long())
        builder.finalize(f"{folder}/bin/{split}.idx")
        ids[-1] = -1
        write_image_ids(folder / "ids" / split, ids, digest)
    return folder


def make_task(folder: Path, **flags: object) -> VisionLanguagePretrainingTask:
    values = {"data": str(folder / "bin"), "image_features": str(folder / "store"), "image_ids": str(folder / "ids"),
              "image_tags": "words", "train_subset": "train", "seed": 1, "num_workers": 0, "save_dir": "nowhere",
              "restore_file": "checkpoint_last.pt", "continue_once": None, "finetune_from_model": None,
              "checkpoint_suffix": "", **flags}  # fmt: skip
    return VisionLanguagePretrainingTask.setup_task(VisionLanguagePretrainingConfig(**values))


def whole(task: VisionLanguagePretrainingTask, split: str = "valid", epoch: int = 1) -> dict:
    """A split as one batch, in the order of the corpus."""
    if split not in task.datasets:
        task.load_dataset(split)
    dataset = task.dataset(split)
    dataset.set_epoch(epoch)
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def flags(arch: str = "vlp_bert", **given: object) -> Namespace:
    """What `fairseq-train --arch vlp_bert` gives a model, with a tiny BERT."""
    return Namespace(arch=arch, _name=arch, **{**TINY, **given})


def small_bert(folder: Path, head: bool = True, **sizes: int) -> Path:
    """A BERT in the form of transformers, with its tokenizer, a few pieces large."""
    from transformers import BertConfig, BertForMaskedLM, BertModel

    make_tokenizer(folder, "wordpiece")
    known = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
             "max_position_embeddings": 24, "vocab_size": len(TokenizerBridge(str(folder))), **sizes}  # fmt: skip
    torch.manual_seed(5)
    kind = BertForMaskedLM if head else BertModel
    model = kind(BertConfig(**known))
    for weight in model.parameters():  # norms and biases, too, so that none is forgotten in silence
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    return folder
