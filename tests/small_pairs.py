"""A small world of sentences in three languages, with images whose regions have boxes and labels."""

import shutil
from pathlib import Path

import numpy as np
from conftest import write_image_ids, write_store
from fairseq import options
from fairseq_cli import preprocess

from visual_grounding.storage.artefact import sha256_of_file

KINDS = ("bat", "ball", "dog")
LAST = {"en": ("bat", "bat", "dog"), "de": ("Schläger", "Fledermaus", "Hund"), "fr": ("batte", "souris", "chien")}
SIZES = {"train": 48, "valid": 12, "test": 12}
REGIONS, SIZE = 3, 6


def write_images(folder: Path) -> str:
    """24 images of three kinds: a region that says the kind, one of noise without a label, one that some lack."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(24, REGIONS, SIZE)) * 0.1
    kind = np.arange(24) % 3
    features[np.arange(24), 0, kind] += 4
    features[:, 2, 4] += 4
    features[::4, 2] = 0  # absent
    labels = np.stack([kind, np.full(24, -1), np.full(24, 3)], axis=1).astype(np.int32)
    labels[::4, 2] = -1
    corners = rng.uniform(0, 0.5, (24, REGIONS, 2))
    boxes = np.concatenate([corners, corners + 0.4], axis=-1).astype(np.float32)
    boxes[::4, 2] = 0
    scores = np.where(features.any(axis=-1), 0.9, 0).astype(np.float16)
    columns = {"boxes": boxes, "labels": labels, "scores": scores}
    store = write_store(folder / "store", features, columns=columns, label_names=[*KINDS, "ground"])
    return sha256_of_file(store / "keys.txt")


def write_pairs(folder: Path) -> Path:
    """`text/`, `bin/` with en-de and en-fr and one dictionary, `store/`, `ids/<split>` and `ids/<split>.<pair>`.

    "a b bat" is a bat of two kinds, which the image alone tells; words before it are copied.
    """
    digest = write_images(folder)
    (folder / "text").mkdir()
    rng = np.random.default_rng(1)
    for split, size in SIZES.items():
        kinds = rng.integers(0, 3, size)
        images = np.array([rng.choice(np.arange(24)[np.arange(24) % 3 == kind]) for kind in kinds])
        if split == "train":
            images[5] = -1  # a sentence without an image
        for name in (split, f"{split}.en-de", f"{split}.en-fr"):
            write_image_ids(folder / "ids" / name, images[:, None].astype(np.int32), digest)
        words = [" ".join(rng.choice(["a", "b", "c", "d"], rng.integers(2, 6))) for _ in kinds]
        for language, last in LAST.items():
            lines = "".join(f"{start} {last[kind]}\n" for start, kind in zip(words, kinds))
            (folder / "text" / f"{split}.{language}").write_text(lines, encoding="utf-8")
    every = [(folder / f"text/train.{language}").read_text(encoding="utf-8") for language in LAST]
    for language in ("xx", "yy"):  # one dictionary of all languages
        (folder / f"text/all.{language}").write_text("".join(every), encoding="utf-8")
    text, bin_folder = folder / "text", folder / "bin"
    binarise("xx", "yy", folder / "dictionary", "--trainpref", text / "all", "--joined-dictionary", "--dict-only")
    dictionary = folder / "dictionary/dict.xx.txt"
    for target in ("de", "fr"):
        binarise(
            "en", target, bin_folder, "--srcdict", dictionary, "--joined-dictionary",
            *(part for split in SIZES for part in (f"--{split}pref", text / split)),
        )  # fmt: skip
    shutil.rmtree(folder / "dictionary")
    return folder


def binarise(source: str, target: str, destination: Path, *more: object) -> None:
    """fairseq-preprocess in this process."""
    flags = ["-s", source, "-t", target, "--destdir", destination, "--workers", 1, *more]
    preprocess.main(options.get_preprocessing_parser().parse_args([str(flag) for flag in flags]))
