"""How well a grounded language model tells hidden words and regions, line by line."""

import math
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch.nn.functional import cross_entropy

from ..data.grounded_text import MaskedLines
from ..data.visual_batches import VisualContextDataset
from ..errors import InputError
from ..retrieval.image_ids import ImageIds
from ..tasks.grounded_lm import CAPTIONS as CAPTIONS
from .trained import Trained, batches, on_device


class Told(NamedTuple):
    """What telling the hidden words of each line took, and how far off hidden regions were.

    Shapes:
        bits: (S,) summed over a line's words;  words: (S,) how many there are
        distances: (S,) 1/F Σ_f |r_f − r̂_f|, summed over a line's regions;  regions: (S,) how many there are, 0 of a
            model that learned none

    Attributes:
        hidden: sha256 of which regions of which lines were hidden, and of their features.
    """

    bits: np.ndarray
    words: np.ndarray
    distances: np.ndarray
    regions: np.ndarray
    hidden: str


def lines_of(dataset: FairseqDataset) -> MaskedLines:
    """The lines of a split, and their masks."""
    while not isinstance(dataset, MaskedLines):
        dataset = dataset.dataset
    return dataset


def has_images(dataset: FairseqDataset) -> bool:
    """Whether lines of a split have images, in whatever order, or none by choice."""
    while not isinstance(dataset, VisualContextDataset | MaskedLines):
        dataset = dataset.dataset
    return isinstance(dataset, VisualContextDataset)


def ask_alike(datasets: list[FairseqDataset], split: str) -> MaskedLines:
    """Let all of these be asked the same words: those that were hidden where images were found, if any were.

    Returns:
        lines with these masks.

    Raises:
        InputError: they are of other lines; or images of two were found with other masks, or for whole lines.
    """
    lines = [lines_of(dataset) for dataset in datasets]
    first = lines[0]
    for other in lines[1:]:
        alike = len(first) == len(other) and np.array_equal(first.sizes, other.sizes)
        if not alike or any(not torch.equal(first[row]["tokens"], other[row]["tokens"]) for row in range(len(first))):
            raise InputError(
                f"both models should be asked the same lines, but {split} is of other ones. Name one folder for both, "
                "and models whose lines are cut alike.",
                "data",
            )
    given = [each for each in lines if each.given is not None]
    for other in given[1:]:
        differ = sum(not torch.equal(given[0][row]["hidden"], other[row]["hidden"]) for row in range(len(first)))
        if differ:
            raise InputError(
                f"images of both models should have been found with the same mask, but {differ} of {len(first)} lines "
                f"of {split} differ. Make the tables with one seed and probability.",
                "image_ids",
            )
    chosen = (given or lines)[0]
    for other in lines:
        # A finder that is asked with these lines, too, has to see the same words hidden.
        if other is not chosen:
            other.given = lambda row: chosen[row]["hidden"][:-1].numpy()
    return chosen


def ask_as(trained: Trained, dataset: FairseqDataset, table: str, split: str) -> None:
    """Ask the words that were hidden when images were found for a split, of a model without images, for instance.

    Args:
        table: of image ids.

    Raises:
        InputError: it has no mask, or that of other lines; or images were found with another one.
    """
    lines, ids = lines_of(dataset), ImageIds(table)
    if ids.mask is None:
        raise InputError(f"{table} should have been made with a mask, but wasn't.", "masks")
    ids.check_lines(len(lines), split)
    before, given = lines.given, trained.task.given_masks([ids], [lines.texts], split)
    if before is not None and any(not np.array_equal(before(row), given(row)) for row in range(len(lines))):
        raise InputError(
            f"images of {trained.path} were found with another mask than that of {table}: they would tell what is "
            "asked. Make the tables with one seed and probability, or leave the masks to those of the images.",
            "masks",
        )
    lines.given = given


def tell_hidden(trained: Trained, dataset: FairseqDataset, batch_size: int, taken: Callable[[int], object]) -> Told:
    """Tell the hidden words of every line, and the hidden regions where a model learned to.

    Args:
        taken: is told how many lines were read.

    Shapes:
        returns: (S,) each
    """
    size = len(dataset)
    bits, distances, places = np.zeros(size), np.zeros(size), [b""] * size
    counts = {name: np.zeros(size, dtype=np.int64) for name in ("words", "regions")}
    model, words = trained.model, trained.model.encoder.text.words
    with torch.no_grad():
        for batch in batches(dataset, range(len(dataset)), batch_size):
            rows = batch["id"].numpy()
            hidden = batch["hidden_words"]  # (B, T)
            counts["words"][rows] = hidden.sum(dim=1).numpy()
            net_input = on_device(trained, batch["net_input"])
            if hidden.any():
                tokens, asked = net_input["src_tokens"], hidden.to(trained.device)
                states = model.word_states(tokens, asked, net_input.get("visual"), trained.task.mask)
                scores = states @ words.T + model.word_head.bias  # (K, V)
                each = cross_entropy(scores.float(), tokens[asked], reduction="none").double() / math.log(2)
                np.add.at(bits, rows[hidden.nonzero()[:, 0].numpy()], each.cpu().numpy())
            if batch["region_side"].any():
                asked = on_device(trained, {name: batch[name] for name in ("hidden_regions", "region_side")})
                predicted = model(**net_input, mask=trained.task.mask, **asked).regions  # (J, F)
                hidden = batch["hidden_regions"] & batch["region_side"][:, None, None]  # (B, N, R)
                right = batch["net_input"]["visual"]["features"][hidden].float()  # (J, F)
                far = (predicted.float().cpu() - right).abs().mean(dim=1).double()
                np.add.at(distances, rows[hidden.nonzero()[:, 0].numpy()], far.numpy())
                counts["regions"][rows] = hidden.flatten(1).sum(dim=1).numpy()
                for row, of_line, features in zip(rows.tolist(), hidden, batch["net_input"]["visual"]["features"]):
                    said = f"{tuple(of_line.shape)}".encode() + of_line.numpy().tobytes()
                    places[row] = sha256(said + features[of_line].float().numpy().tobytes()).digest()
            taken(len(rows))
    return Told(bits, counts["words"], distances, counts["regions"], sha256(b"\n".join(places)).hexdigest())
