"""What an encoder of text and regions returns, and its order in beam search."""

from typing import Any

import pytest
import torch
from small_text_and_regions import SmallEncoder, small_batch, small_dictionary


def encoded(images: bool = True) -> dict[str, Any]:
    """Of the batch of three."""
    batch = small_batch()
    torch.manual_seed(1)
    encoder = SmallEncoder(small_dictionary())
    return {"encoder": encoder, **encoder(batch["src_tokens"], visual=batch["visual"] if images else None)}


def test_output_is_text_first_and_regions_last() -> None:
    out, batch = encoded(), small_batch()
    assert out["encoder_out"][0].shape == (5 + 6, 3, 16)
    mask = out["encoder_padding_mask"][0]
    assert torch.equal(mask[:, 1:5], batch["src_tokens"] == 1)
    assert torch.equal(mask[:, 5:], batch["visual"]["padding_mask"].flatten(1))
    assert torch.equal(out["region_padding_mask"][0], mask[:, 5:])
    assert out["source_positions"][0].tolist() == [[1, 2, 3, 4], [-1, 2, 3, 4], [-1, -1, 3, 4]]
    assert out["encoder_embedding"] == out["encoder_states"] == out["src_lengths"] == []


def test_output_without_images_has_no_regions() -> None:
    out = encoded(images=False)
    assert out["encoder_out"][0].shape == (5, 3, 16) and out["region_padding_mask"][0].shape == (3, 0)


def test_masks_of_another_size_are_refused() -> None:
    encoder = SmallEncoder(small_dictionary())
    text, regions = torch.zeros(2, 3, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.bool)
    for x in (torch.zeros(6, 2, 16), torch.zeros(7, 3, 16)):
        with pytest.raises(ValueError, match=r"but that of the text is \(2, 3\) and that of the regions \(2, 4\)"):
            encoder.text_and_regions_out(x, text, regions, torch.zeros(2, 3).long())


def test_output_follows_the_order_of_beam_search() -> None:
    out = encoded()
    encoder = out.pop("encoder")
    states = [torch.randn(11, 3, 16)]
    order = torch.tensor([2, 0, 0, 1])
    reordered = encoder.reorder_encoder_out({**out, "encoder_states": states}, order)
    assert set(reordered) == set(out)
    for name in ("encoder_out", "encoder_states"):
        before = {**out, "encoder_states": states}[name][0]
        assert torch.equal(reordered[name][0], before[:, order])
    for name in ("encoder_padding_mask", "region_padding_mask", "source_positions", "src_tokens"):
        assert torch.equal(reordered[name][0], out[name][0][order])
    assert reordered["src_lengths"] == []
