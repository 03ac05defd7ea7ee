"""The heat map: an example by hand, a naive twin, its relation to the retriever's cosine, its peak."""

import numpy as np
import pytest
import torch
from PIL import Image
from small_retriever import make_retriever

from visual_grounding.analysis.heat_map import heat_map, peak, stretch, upsample
from visual_grounding.analysis.overlay import draw_overlay
from visual_grounding.errors import InputError
from visual_grounding.features.framing import Box


def test_heat_map_by_hand():
    # v = (0.8, -0.6, 0.1), its 2 largest entries are the first and the third.
    # Cells (1, 5, 2) and (-1, 9, 10): 0.8 * 1 + 0.1 * 2 = 1.0 and 0.8 * -1 + 0.1 * 10 = 0.2.
    cells = torch.tensor([[1.0, 5.0, 2.0], [-1.0, 9.0, 10.0]])
    text = torch.tensor([0.8, -0.6, 0.1])
    torch.testing.assert_close(heat_map(cells, text, 2), torch.tensor([1.0, 0.2]))
    # All channels: the inner product. 0.8 - 3 + 0.2 = -2 and -0.8 - 5.4 + 1 = -5.2.
    torch.testing.assert_close(heat_map(cells, text, 3), torch.tensor([-2.0, -5.2]))


def naive_heat_map(cells, text, channels):
    largest = sorted(range(len(text)), key=lambda u: -text[u])[:channels]
    return [sum(float(text[u]) * float(cell[u]) for u in largest) for cell in cells]


@pytest.mark.parametrize("channels", [1, 4, 11])
def test_heat_map_agrees_with_a_naive_loop(channels):
    generator = torch.Generator().manual_seed(0)
    cells, texts = torch.randn(3, 9, 11, generator=generator), torch.randn(3, 11, generator=generator)
    expected = [naive_heat_map(cells[i], texts[i], channels) for i in range(3)]
    torch.testing.assert_close(heat_map(cells, texts, channels), torch.tensor(expected))


def test_heat_map_of_a_linear_retriever_averages_to_the_score_of_the_mean(tmp_path):
    """Why a retriever of pooled features can be looked into: its tower is linear."""
    retriever = make_retriever(tmp_path / "retriever")
    grid = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(1))
    text = retriever.encode_text(["w1 w2", "w3"])
    present = torch.zeros(2, 1, dtype=torch.bool)
    with torch.no_grad():
        whole = retriever.embedding.image(grid.mean(dim=1, keepdim=True), present)
        expected = (whole * text).sum(dim=-1)
    torch.testing.assert_close(heat_map(retriever.encode_cells(grid), text, 8).mean(dim=-1), expected)


def test_cells_of_a_weldon_retriever_are_images_of_one_region(tmp_path):
    # Weldon of one region x is its mean of the highest plus that of the lowest: W (2 A x) + b.
    retriever = make_retriever(tmp_path / "retriever", pooling="weldon")
    tower = retriever.embedding.image
    grid = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = 2 * tower.regions(grid) @ tower.projection.weight.T + tower.projection.bias
    torch.testing.assert_close(retriever.encode_cells(grid), expected)


def test_cells_of_another_size_are_refused(tmp_path):
    retriever = make_retriever(tmp_path / "retriever")
    with pytest.raises(InputError, match="trained on regions with 6 numbers, but these have 7"):
        retriever.encode_cells(torch.zeros(1, 4, 7))


def test_peak_is_where_the_upsampled_map_is_highest():
    generator = torch.Generator().manual_seed(3)
    for side in (2, 3, 7):
        grid = torch.randn(side, side, generator=generator)
        size = side * 11  # odd: every cell has a pixel in its middle
        large = upsample(grid, size, size)
        x, y = peak(grid)
        assert large[int(y * size), int(x * size)] == pytest.approx(float(large.max()), abs=1e-5)
        assert float(large.max()) == pytest.approx(float(grid.max()), abs=1e-5)


def test_upsampling_by_hand():
    # Centres of 2 cells lie at pixels 0.5 and 2.5 of 4: 0, a quarter, three quarters, 1 in between; edges stay.
    torch.testing.assert_close(
        upsample(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), 1, 4), torch.tensor([[0, 0.25, 0.75, 1]])
    )


def test_stretching_ends_at_0_and_1():
    torch.testing.assert_close(stretch(torch.tensor([[2.0, 4.0], [3.0, 2.0]])), torch.tensor([[0.0, 1.0], [0.5, 0.0]]))
    assert not stretch(torch.full((2, 2), 7.0)).any()


def test_the_peak_is_a_ring_around_its_place():
    drawn = np.asarray(draw_overlay(Image.new("RGB", (100, 80)), torch.zeros(1, 1), Box(0, 0, 1, 1), peak=(0.7, 0.25)))
    white, black = ((drawn == level).all(axis=2) for level in (255, 0))
    for ring, radius in ((white, 5), (black, 6)):
        ys, xs = np.nonzero(ring)
        assert (xs.min(), xs.max(), ys.min(), ys.max()) == (70 - radius, 70 + radius, 20 - radius, 20 + radius)
