"""The tables of image ids that `--image-ids` names: which folder is meant, and what all of a split say."""

import os
from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from ..retrieval.image_ids import IMAGE_IDS, ImageIds
from ..storage.artefact import kind_of


def check_root(root: str, split: str) -> None:
    """Refuse a table where the folder that holds one for each split is meant.

    Raises:
        InputError: it is one.
    """
    if kind_of(root) == IMAGE_IDS and not os.path.isdir(os.path.join(root, split)):
        parent, name = os.path.split(os.path.normpath(root))
        raise InputError(
            f"--image-ids should be a folder with one table for each split, such as DIR/{split}, but {root} is itself "
            f"a table. If it is that of the split {name}, give the folder it lies in: --image-ids {parent or '.'}"
        )


def load_image_ids(
    folders: Sequence[str], images_per_sentence: int, times: Sequence[int]
) -> tuple[np.ndarray, list[ImageIds]]:
    """Image ids of one split, or of several that are concatenated.

    Args:
        folders: the tables.
        images_per_sentence: N; 0 for as many as all of them have.
        times: how often each is repeated.

    Shapes:
        returns: ids (S, N), the best N of each table; and the tables

    Raises:
        InputError: a table is missing or broken, or has fewer than N images a sentence.
    """
    if images_per_sentence < 0:
        raise InputError(f"--images-per-sentence should be 0 (all) or more, but is {images_per_sentence}.")
    tables = [ImageIds(folder) for folder in folders]
    wanted = images_per_sentence or min(table.ids.shape[1] for table in tables)
    for table in tables:
        if table.ids.shape[1] < wanted:
            raise InputError(
                f"--images-per-sentence is {wanted}, but {table.folder} has {table.ids.shape[1]} images a sentence. "
                f"Retrieve more with: visual-grounding retrieve … -n {wanted} --out {table.folder}"
            )
    blocks = [table.ids[:, :wanted] for table, count in zip(tables, times) for _ in range(count)]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks), tables
