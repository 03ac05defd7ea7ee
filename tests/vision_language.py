"""A small world for VLP: sentences whose noun is what their image shows, a store of its regions, and a small BERT."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from conftest import write_image_ids, write_store
from fairseq import options
from fairseq.data import Dictionary, indexed_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main as fairseq_train
from small_tokenizers import make_tokenizer

from visual_grounding.features.store import FeatureStore
from visual_grounding.tasks.grounded_translation import GroundedTranslationConfig, GroundedTranslationTask
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


def whole(task: VisionLanguagePretrainingTask | GroundedTranslationTask, split: str = "valid", epoch: int = 1) -> dict:
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


GERMAN = {"a": "ein", "red": "roter", "old": "alter", "big": "großer"}
MISSING = dict(zip(NOUNS, ["Hund", "Ball", "Vogel", "Dach"]))


def make_translation_world(folder: Path, lines: str | None = None) -> Path:
    """Beside what `make_world` wrote, `bin/` text of a translation: its noun is told by the image alone.

    Args:
        lines: of the source dictionary, where it isn't that of the text.
    """
    (folder / "bin/dict.en.txt").write_text(lines or (folder / "bin/dict.txt").read_text(), encoding="utf-8")
    words = [*GERMAN.values(), *MISSING.values()]
    (folder / "bin/dict.de.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    given = Dictionary.load(str(folder / "bin/dict.txt"))
    sides = {language: Dictionary.load(str(folder / f"bin/dict.{language}.txt")) for language in ("en", "de")}
    for split in SIZES:
        text = indexed_dataset.make_dataset(str(folder / "bin" / split), "mmap")
        for language, dictionary in sides.items():
            place = f"{folder}/bin/{split}.en-de.{language}"
            builder = indexed_dataset.make_builder(f"{place}.bin", "mmap", len(dictionary))
            for number in range(len(text)):
                *line, noun = given.string(text[number]).split()
                if language == "de":
                    line = [*(GERMAN[word] for word in line), MISSING[noun]]
                builder.add_item(dictionary.encode_line(" ".join(line), add_if_not_exist=False).long())
            builder.finalize(f"{place}.idx")
    return folder


def translation_task(folder: Path, images: bool = True, **flags: object) -> GroundedTranslationTask:
    places = {"image_features": str(folder / "store"), "image_ids": str(folder / "ids"), "image_tags": "words"}
    values = {"data": str(folder / "bin"), "source_lang": "en", "target_lang": "de", "train_subset": "train",
              "dataset_impl": None, "required_seq_len_multiple": 1, "save_dir": "nowhere", "seed": 1,
              "restore_file": "checkpoint_last.pt", "continue_once": None, "finetune_from_model": None,
              "checkpoint_suffix": "", **(places if images else {}), **flags}  # fmt: skip
    return GroundedTranslationTask.setup_task(GroundedTranslationConfig(**values))


def train_in_process(
    world: Path,
    save_dir: Path,
    task: str,
    arch: str,
    criterion: str,
    *more: object,
    images: bool = True,
    epochs: int = 2,
    validate: bool = False,
) -> None:
    """`fairseq-train` in this process: it takes a second where a fresh one takes ten."""
    words = [
        world / "bin", "--task", task, "--arch", arch, "--criterion", criterion, "--optimizer", "adam", "--lr", 0.01,
        "--batch-size", 8, "--max-epoch", epochs, "--cpu", "--save-dir", save_dir, "--no-progress-bar",
        "--num-workers", 0, "--clip-norm", 1, *([] if validate else ["--disable-validation"]), *more,
    ]  # fmt: skip
    if images:
        words += ["--image-features", world / "store", "--image-ids", world / "ids", "--image-tags", "words"]
    if task == "grounded_translation":
        words += ["--source-lang", "en", "--target-lang", "de"]
    parser = options.get_training_parser()
    fairseq_train(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(word) for word in words])))
