"""A small world for grounded language models: lines whose noun is what their image shows, and small encoders."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from conftest import write_image_ids, write_store
from fairseq.data import Dictionary, indexed_dataset
from small_matcher import SPECIAL

from visual_grounding.features.store import FeatureStore
from visual_grounding.tasks.grounded_lm import GroundedLMConfig, GroundedLMTask
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

NOUNS = ["dog", "ball", "bird", "roof"]
WORDS = ["a", "red", "old", "big", "near", "##s", *NOUNS]
KINDS = ("bert", "albert", "distilbert", "electra", "roberta")
IMAGES, REGIONS, FEATURES = 8, 2, 6


def make_encoder(folder: Path, kind: str = "bert", size: int = 16, seed: int = 0) -> Path:
    """A folder as transformers saves it: 2 layers of random numbers, with dropout, and the tokenizer of `WORDS`."""
    from transformers import AutoConfig, AutoModel, BertTokenizerFast

    folder.mkdir(parents=True)
    (folder / "words.txt").write_text("".join(word + "\n" for word in [*SPECIAL, *WORDS]), encoding="utf-8")
    BertTokenizerFast(str(folder / "words.txt"), model_max_length=24).save_pretrained(folder)
    sizes = {"hidden_size": size, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 2 * size}
    if kind == "distilbert":
        sizes = {"dim": size, "n_layers": 2, "n_heads": 2, "hidden_dim": 2 * size}
    if kind in ("albert", "electra"):
        sizes["embedding_size"] = 8
    positions = 26 if kind == "roberta" else 24
    vocabulary = len(SPECIAL) + len(WORDS)
    pad = {"pad_token_id": 0} if kind != "roberta" else {"pad_token_id": 1}
    config = AutoConfig.for_model(kind, vocab_size=vocabulary, max_position_embeddings=positions, **pad, **sizes)
    torch.manual_seed(seed)
    model = AutoModel.from_config(config)
    for name, weight in model.named_parameters():  # norms and biases, too, so that none is forgotten in silence
        torch.nn.init.normal_(weight, 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0, std=0.2)
    model.save_pretrained(folder)
    return folder


def make_world(folder: Path) -> Path:
    """`encoder/`, a small BERT; `store/` of 8 images of 2 regions; `bin/` lines with `ids/`; `text/`, lines without.

    Image n shows NOUNS[n % 4]; of image 3 one region is there. Of each split the last line has no image.
    """
    make_encoder(folder / "encoder")
    features = np.eye(FEATURES)[np.arange(IMAGES) % 4][:, None].repeat(REGIONS, axis=1)
    features = features + 0.125 * np.arange(REGIONS)[None, :, None] + 0.0625 * np.arange(IMAGES)[:, None, None]
    features[3, 1] = 0
    digest = FeatureStore(write_store(folder / "store", features)).keys_sha256
    lines = TokenizerBridge(str(folder / "encoder")).dictionary_lines()
    rng = np.random.default_rng(0)
    for name, sizes in (("bin", {"train": 40, "valid": 12}), ("text", {"train": 20, "valid": 6})):
        (folder / name).mkdir()
        (folder / name / "dict.txt").write_text("".join(f"{line}\n" for line in lines))
        dictionary = Dictionary.load(str(folder / name / "dict.txt"))
        for split, size in sizes.items():
            ids = rng.integers(0, IMAGES, (size, 2)).astype(np.int32)
            ids[:2, 0], ids[0, 1] = [0, 5], 3
            said = [f"a {' '.join(rng.choice(WORDS[1:4], rng.integers(0, 3)))} {NOUNS[i % 4]} near" for i in ids[:, 0]]
            write_text(folder / name / split, said, dictionary)
            ids[-1] = -1
            if name == "bin":
                write_image_ids(folder / "ids" / split, ids, digest)
                mark_paired(folder / "ids" / split)
    return folder


def write_text(place: Path, lines: list[str], dictionary: Dictionary) -> None:
    """Lines of pieces, binarised."""
    builder = indexed_dataset.make_builder(f"{place}.bin", "mmap", len(dictionary))
    for line in lines:
        builder.add_item(dictionary.encode_line(line, add_if_not_exist=False).long())
    builder.finalize(f"{place}.idx")


def mark_paired(table: Path) -> None:
    """Let a table say that its images are the lines' own."""
    meta = (table / "meta.json").read_text()
    assert '"signature": "' in meta
    start = meta.index('"signature": "') + len('"signature": "')
    (table / "meta.json").write_text(meta[:start] + "retrieve|method:paired|" + meta[start:])


def make_task(folder: Path, images: bool = True, **flags: object) -> GroundedLMTask:
    """The task over `bin/` and its images."""
    values = {"data": str(folder / "bin"), "train_subset": "train", "seed": 1, "num_workers": 0, "save_dir": "nowhere",
              "restore_file": "checkpoint_last.pt", "continue_once": None, "finetune_from_model": None,
              "checkpoint_suffix": "", "max_pieces": 20}  # fmt: skip
    if images:
        values |= {"image_features": str(folder / "store"), "image_ids": str(folder / "ids")}
    return GroundedLMTask.setup_task(GroundedLMConfig(**{**values, **flags}))


def whole(task: GroundedLMTask, split: str = "valid", epoch: int = 1) -> dict:
    """A split as one batch, in the order of the corpus."""
    if split not in task.datasets:
        task.load_dataset(split)
    dataset = task.dataset(split)
    dataset.set_epoch(epoch)
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def model_flags(folder: Path, **given: object) -> Namespace:
    """What `fairseq-train --arch grounded_albert` gives a model."""
    return Namespace(
        arch="grounded_albert", _name="grounded_albert", grounded_text_encoder=str(folder / "encoder"), **given
    )
