"""Small trained translators, made without fairseq's commands: checkpoints as fairseq-train writes them, in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import write_image_ids, write_store
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import preprocess
from omegaconf import OmegaConf

from visual_grounding.storage.artefact import sha256_of_file

ANIMALS, TIERE = ("doggy", "kitty"), ("Hund", "Katze")


def write_world(folder: Path, sentences: int = 24, mask: str = "<mask>", seed: int = 0) -> Path:
    """Sentences about one of two animals, each with a picture of it: `text/`, `bin/`, `store/`, `ids/<split>`.

    A third of the training sentences hide the animal's name. It is cut into two pieces; the test text is whole.
    """
    rng = np.random.default_rng(seed)
    kind = np.arange(12) % 2
    boxes = np.array([[0, 0, 0.5, 1], [0.5, 0.5, 1, 1]], np.float32)
    columns = {"boxes": np.tile(boxes, (12, 1, 1)), "labels": np.tile(kind[:, None], 2)}
    features = np.tile(np.where(kind, 2.0, -2.0)[:, None, None], (1, 2, 6)) + rng.normal(size=(12, 2, 6)) / 4
    store = write_store(folder / "store", features, columns=columns)
    (folder / "text").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        kinds = np.arange(sentences) % 2
        ids = np.array([rng.choice(np.flatnonzero(kind == each)) for each in kinds], np.int32)[:, None]
        write_image_ids(folder / "ids" / split, ids, sha256_of_file(store / "keys.txt"))
        rest = [" ".join(rng.choice(["a", "b", "c"], rng.integers(1, 4))) for _ in kinds]
        hidden = [split == "train" and number % 3 == 0 for number in range(sentences)]
        names = [mask if gone else f"{ANIMALS[each][:3]}@@ {ANIMALS[each][3:]}" for each, gone in zip(kinds, hidden)]
        texts = {
            "en": [f"the {name} {words} ." for name, words in zip(names, rest)],
            "words": [f"the {ANIMALS[each]} {words} ." for each, words in zip(kinds, rest)],
            "de": [f"{TIERE[each]} {words} ." for each, words in zip(kinds, rest)],
        }
        for name, lines in texts.items():
            (folder / "text" / f"{split}.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    binarise(folder)
    return folder


def binarise(folder: Path, source: str = "en", target: str = "de", *more: str) -> None:
    """`text/` to `bin/`, as fairseq-preprocess does."""
    flags = ["-s", source, "-t", target, "--destdir", folder / "bin", "--workers", 1, *more]
    for split in ("train", "valid", "test"):
        flags += [f"--{split}pref", folder / "text" / split]
    preprocess.main(options.get_preprocessing_parser().parse_args(list(map(str, flags))))


SIZES = ["--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 32,
         "--encoder-attention-heads", 2, "--decoder-attention-heads", 2]  # fmt: skip


def train(path: Path, *flags: object, updates: int = 0, lr: float = 0.02, seed: int = 1) -> Path:
    """Flags of fairseq-train to a checkpoint, after updates on all training sentences at a time."""
    parser = options.get_training_parser()
    words = [*map(str, flags), "--optimizer", "adam", "--seed", str(seed)]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words))
    torch.manual_seed(seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    criterion = task.build_criterion(cfg.criterion)
    if updates:
        learn(task, model, criterion, updates, lr)
    save(path, cfg, task, model)
    return path


def learn(task: Any, model: Any, criterion: Any, updates: int, lr: float) -> None:
    """All training sentences, again and again; what is masked is masked anew."""
    task.load_dataset("train")
    dataset = task.dataset("train")
    optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=lr)
    model.train()
    for epoch in range(1, updates + 1):
        dataset.set_epoch(epoch)
        batch = dataset.collater([dataset[row] for row in range(len(dataset))])
        optimizer.zero_grad()
        loss, size, _ = criterion(model, batch)
        (loss / size).backward()
        optimizer.step()


def save(path: Path, cfg: Any, task: Any, model: Any) -> None:
    """What fairseq's trainer writes, without what training goes on from."""
    history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
    configuration = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    states = {"model": model.state_dict(), "task_state": task.state_dict(), "extra_state": {}}
    torch.save({"args": None, "cfg": configuration, "optimizer_history": history, **states}, path)


def translator(folder: Path, path: Path, *more: object, arch: str, images: bool = True, updates: int = 0) -> Path:
    """A checkpoint of a translator of `write_world`."""
    seeing = ["--image-features", folder / "store", "--image-ids", folder / "ids"] if images else []
    words = [folder / "bin", "--task", "grounded_translation", "-s", "en", "-t", "de", "--arch", arch, *SIZES, *seeing]
    return train(path, *words, "--criterion", "cross_entropy", "--dropout", "0", *more, updates=updates)
