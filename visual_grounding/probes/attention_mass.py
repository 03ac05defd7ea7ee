"""Where a decoder over text and regions looks (VTLM Fig. 2): its cross-attention while it reads the references.

Any model whose decoder attends to regions (`attends_to_regions`, `models/text_and_regions_decoder.py`) can be asked.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.models import MODEL_REGISTRY

from ..analysis.attention_mass import mass_on_boxes, mass_on_regions
from ..data.visual_batches import VisualContextDataset
from ..errors import InputError
from .trained import Trained, batches, check_sizes, on_device


class Watched(NamedTuple):
    """The cross-attention of B sentences to what their encoder gives.

    Attributes:
        rows: their numbers.
        attention: (layers, B, U, L + M), mean of the heads.
        there: (B, U) target tokens that are no padding.
        padding_mask: (B, L + M), True = padding or absent.
        regions: M, the last positions.
    """

    rows: list[int]
    attention: np.ndarray
    there: np.ndarray
    padding_mask: np.ndarray
    regions: int


class Shares(NamedTuple):
    """Attention on regions in S sentences, in their order.

    Attributes:
        on_regions: (layers, U) each, U of the sentence.
        visible: of each sentence how many positions of text, and how many regions, are there.
    """

    on_regions: list[np.ndarray]
    visible: list[tuple[int, int]]


class Looked(NamedTuple):
    """Where one sentence's tokens look in its images.

    Attributes:
        tokens: U symbols of the reference, its end included.
        on_regions: (layers, U) share of the attention that falls on regions.
        on_boxes: (layers, U, N, R) what of that falls on each.
        boxes: (N, R, 4) corners in 0..1.
        keys: of the N images; "" for none.
    """

    tokens: list[str]
    on_regions: np.ndarray
    on_boxes: np.ndarray
    boxes: np.ndarray
    keys: list[str]


def check_attends(trained: Trained) -> None:
    """Refuse a model whose attention on regions can't be watched.

    Raises:
        InputError: its decoder attends to no regions, or it was trained without images.
    """
    if not getattr(trained.model, "attends_to_regions", False):
        known = sorted(name for name, model in MODEL_REGISTRY.items() if getattr(model, "attends_to_regions", False))
        raise InputError(
            f"the decoder of {trained.path} should attend to regions, but its architecture is {trained.arch}, whose "
            f"decoder attends to text alone. Those that do: {', '.join(known) or 'none'}.",
            "checkpoint",
        )
    if not trained.sees:
        raise InputError(
            f"{trained.path} was trained without images, so its attention has no regions to fall on.", "checkpoint"
        )


def watch(
    trained: Trained, dataset: FairseqDataset, rows: Sequence[int], split: str, batch_size: int
) -> Iterator[Watched]:
    """The cross-attention of each layer while the references are read, batch by batch.

    Raises:
        InputError: a sentence is longer than the model can read or write.
    """
    check_sizes(trained, dataset, rows, split)
    model, pad = trained.model, trained.task.target_dictionary.pad()
    for batch in batches(dataset, rows, batch_size):
        sample = on_device(trained, batch)
        with torch.no_grad():
            encoded = model.encoder.forward_torchscript(sample["net_input"])
            _, extra = model.decoder(
                sample["net_input"]["prev_output_tokens"], encoder_out=encoded, watch_attention=True
            )
        yield Watched(
            batch["id"].tolist(),
            torch.stack(extra["cross_attention"]).float().cpu().numpy(),
            batch["target"].ne(pad).numpy(),
            encoded["encoder_padding_mask"][0].cpu().numpy(),
            encoded["region_padding_mask"][0].shape[1],
        )


def shares_of(
    trained: Trained,
    dataset: FairseqDataset,
    split: str,
    batch_size: int,
    done: Callable[[int], object] = bool,
) -> Shares:
    """Shares of all tokens of a split.

    Args:
        done: is told how many sentences are read, batch by batch.
    """
    found: dict[int, tuple[np.ndarray, tuple[int, int]]] = {}
    for seen in watch(trained, dataset, range(len(dataset)), split, batch_size):
        length = seen.padding_mask.shape[1] - seen.regions
        for place, row in enumerate(seen.rows):
            weights = seen.attention[:, place, seen.there[place]]  # (layers, U, L + M)
            there = ~seen.padding_mask[place]
            visible = int(there[:length].sum()), int(there[length:].sum())
            found[row] = mass_on_regions(weights, seen.regions), visible
        done(len(seen.rows))
    on_regions, visible_parts = zip(*(found[row] for row in range(len(dataset))))
    return Shares(list(on_regions), list(visible_parts))


def look(trained: Trained, dataset: Any, row: int, split: str) -> Looked:
    """Where the tokens of one sentence's reference look in its images.

    Raises:
        InputError: there is no such sentence, the store has no boxes, or the sentence has no image.
    """
    if not 0 <= row < len(dataset):
        raise InputError(
            f"the sentence should be one of the {len(dataset)} of {split}, 0 to {len(dataset) - 1}, but is {row}.",
            "sentence",
        )
    if not isinstance(dataset, VisualContextDataset) or "boxes" not in getattr(dataset.store, "columns", ()):
        raise InputError(
            f"boxes are needed to draw where {trained.path} looks, but {trained.settings.image_features} has none. "
            "docs/regions.md says how to make a store with boxes.",
            "image_features",
        )
    item = dataset[row]
    (images,) = dataset.choice.rows(np.array([row]), [item], 1)  # (N,)
    (seen,) = watch(trained, dataset, [row], split, 1)
    present = seen.there[0]
    length = seen.attention.shape[-1] - seen.regions
    weights = seen.attention[:, 0, present]  # (layers, U, L + M)
    if seen.padding_mask[0, length:].all():
        raise InputError(f"sentence {row} of {split} has no image to look at. Choose another.", "sentence")
    visual = dataset.collater([item])["net_input"]["visual"]
    boxes = visual["boxes"][0].float().numpy()  # (N, R, 4)
    symbols = [trained.task.target_dictionary[token] for token in item["target"].tolist()]
    keys = [dataset.store.key(int(image)) if image >= 0 else "" for image in images]
    return Looked(
        symbols, mass_on_regions(weights, seen.regions), mass_on_boxes(weights, *boxes.shape[:2]), boxes, keys
    )
