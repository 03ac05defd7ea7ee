"""A small text with its vokens, binarised, and a language model of it."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import options
from fairseq.data import Dictionary, indexed_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main as fairseq_train
from small_tokenizers import make_tokenizer
from small_vokens import change_vokens, write_vokens

from visual_grounding.tasks.voken_lm import VokenLMConfig, VokenLMTask

LINES = {
    "train": ["A dog runs.", "", "Two birds sit on the roof, singing!", "the ball's red", "runs running"] * 3,
    "valid": ["The dogs run over a roof.", "a red bird", ""],
}
TINY = {"bert_size": 16, "bert_layers": 2, "bert_heads": 2, "bert_ffn_size": 32, "bert_positions": 16}
SPARSE = 11  # every so many pieces there is one without a voken


def make_voken_world(folder: Path, family: str = "wordpiece", size: int = 7, label: str = "token") -> Path:
    """`tokenizer/`, `vokens/<split>` and `bin/` of both splits; the n-th piece of all has voken n % size, or none."""
    tokenizer = make_tokenizer(folder / "tokenizer", family)
    for split, lines in LINES.items():
        made = write_vokens(folder / "vokens" / split, lines, tokenizer, size, label=label)
        vokens = np.load(made / "vokens.npy")
        vokens[::SPARSE] = -1
        change_vokens(made, vokens)
        binarise_vokens(made, folder / "bin" / split)
    return folder


def binarise_vokens(vokens: Path, prefix: Path) -> None:
    """What `fairseq-preprocess --only-source` makes of an artefact's pieces, and its dictionary."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    (prefix.parent / "dict.txt").write_bytes((vokens / "dict.txt").read_bytes())
    dictionary = Dictionary.load(str(prefix.parent / "dict.txt"))
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", len(dictionary))
    for line in (vokens / "tokens.txt").read_text(encoding="utf-8").split("\n")[:-1]:
        builder.add_item(dictionary.encode_line(line, add_if_not_exist=False).long())
    builder.finalize(f"{prefix}.idx")


def voken_task(folder: Path, **flags: Any) -> VokenLMTask:
    """The task over such a text."""
    values = {"data": str(folder / "bin"), "vokens": str(folder / "vokens"), "tokens_per_sample": 12, "seed": 1,
              "train_subset": "train", "save_dir": "nowhere", "restore_file": "checkpoint_last.pt",
              "continue_once": None, "finetune_from_model": None, "checkpoint_suffix": "", **flags}  # fmt: skip
    return VokenLMTask.setup_task(VokenLMConfig(**values))


def model_flags(arch: str = "voken_bert", **given: Any) -> Namespace:
    """What `fairseq-train --arch voken_bert` gives a model, with tiny sizes."""
    return Namespace(arch=arch, _name=arch, **{**TINY, **given})


def whole_split(task: VokenLMTask, split: str = "valid", epoch: int = 1) -> dict[str, Any]:
    """A split as one batch, in the order of the text."""
    if split not in task.datasets:
        task.load_dataset(split)
    dataset = task.dataset(split)
    dataset.set_epoch(epoch)
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def train_language_model(world: Path, save_dir: Path, *more: object, arch: str = "voken_bert") -> None:
    """`fairseq-train` in this process."""
    parser = options.get_training_parser()
    words = [str(word) for word in language_model_flags(world, save_dir, *more, arch=arch)]
    fairseq_train(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words)))


def language_model_flags(world: Path, save_dir: Path, *more: object, arch: str = "voken_bert") -> list[object]:
    """The flags of `fairseq-train`."""
    sizes = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]
    return [
        world / "bin", "--task", "voken_lm", "--vokens", world / "vokens", "--tokens-per-sample", 12, "--arch", arch,
        *sizes, "--criterion", "voken_classification", "--optimizer", "adam", "--lr", 0.01, "--batch-size", 2,
        "--max-epoch", 2, "--cpu", "--save-dir", save_dir, "--no-progress-bar", "--log-format", "json",
        "--num-workers", 0, "--clip-norm", 1, *more,
    ]  # fmt: skip
