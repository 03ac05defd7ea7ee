"""Names in a retriever's folder, whatever kind of retriever it is."""

import shutil
from pathlib import Path

from ..errors import InputError
from ..text.words import DICTIONARY

RETRIEVER = "retriever"
VERSION = 1
CONFIG, WEIGHTS, TEXT_ENCODER = "config.json", "model.safetensors", "text_encoder"


def begin_folder(folder: Path) -> None:
    """Make a retriever's folder, or take an older retriever out of it.

    Raises:
        InputError: it holds something else.
        OSError: it can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others = {path.name for path in folder.iterdir()} - {CONFIG, WEIGHTS, TEXT_ENCODER, DICTIONARY}
    if others and not (folder / WEIGHTS).exists():
        raise InputError(
            f"--out {folder} should be a new folder or that of a retriever, but it holds {len(others)} other things, "
            f"such as {min(others)}. Choose another --out."
        )
    for name in (CONFIG, WEIGHTS, DICTIONARY):  # the description first: what is left is no retriever
        (folder / name).unlink(missing_ok=True)
    if (folder / TEXT_ENCODER).exists():
        shutil.rmtree(folder / TEXT_ENCODER)
