"""The scattering network against a direct convolution without Fourier transforms, and what it should not notice."""

import math

import numpy as np
import pytest
import torch

from visual_grounding.features.scattering import ScatteringNetwork


def picture(size: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(seed))


def naive_wavelet(side: int, scale: int, angle: float) -> np.ndarray:
    """g(u) (exp(i xi u) - c), written in space: sampled and summed over its periodic copies."""
    width, xi = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    wave, bell = np.zeros((side, side), complex), np.zeros((side, side), complex)
    for y in range(-3 * side, 3 * side):
        for x in range(-3 * side, 3 * side):
            along = x * math.cos(angle) + y * math.sin(angle)
            across = y * math.cos(angle) - x * math.sin(angle)
            g = 0.5 / (2 * math.pi * width**2) * math.exp(-(along**2 + (0.5 * across) ** 2) / (2 * width**2))
            bell[y % side, x % side] += g
            wave[y % side, x % side] += g * np.exp(1j * xi * along)
    return wave - bell * wave.sum() / bell.sum()


def naive_convolution(signal: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    total = np.zeros(signal.shape, complex)
    for y in range(len(kernel)):
        for x in range(len(kernel)):
            total += kernel[y, x] * np.roll(signal, (y, x), (0, 1))
    return total


def naive_average(signal: np.ndarray, scale: int) -> np.ndarray:
    side, width = len(signal), 0.4 * 2**scale
    row = np.zeros(side)
    for u in range(-3 * side, 3 * side):
        row[u % side] += math.exp(-0.5 * (u / width) ** 2)
    kernel = np.outer(row, row) / row.sum() ** 2
    return naive_convolution(signal, kernel).real[:: 2**scale, :: 2**scale][1:-1, 1:-1]


def test_scattering_agrees_with_direct_convolution_in_space():
    scales, angles, floor = 3, 2, 0.01
    network = ScatteringNetwork(image_size=16, scales=scales, angles=angles, floor=floor)
    images = picture(16)
    signal = np.pad(images[0].mean(dim=0).double().numpy(), 8, mode="reflect")  # (32, 32)
    bank = {
        (side, scale, a): naive_wavelet(side, scale, math.pi * a / angles)
        for side, widths in ((32, (0, 1, 2)), (16, (1,)))
        for scale in widths
        for a in range(angles)
    }
    first, second = [], []
    for j in range(scales):
        moduli = [np.abs(naive_convolution(signal, bank[32, j, a]))[:: 2**j, :: 2**j] for a in range(angles)]
        first += [naive_average(m, scales - j) for m in moduli]
        for k in range(j + 1, scales):
            for m in moduli:
                for b in range(angles):
                    deeper = np.abs(naive_convolution(m, bank[32 >> j, k - j, b]))[:: 2 ** (k - j), :: 2 ** (k - j)]
                    second.append(naive_average(deeper, scales - k))
    expected = np.log1p(np.stack(first + second) / floor)
    assert expected.shape == (network.out_channels, 2, 2) == (2 * 3 + 4 * 3, 2, 2)
    np.testing.assert_allclose(network(images)[0].numpy(), expected, atol=2e-4)


def test_scattering_of_a_uniform_picture_is_zero():
    # Every wavelet sums to 0, so a flat picture has no moduli: log(1 + 0) = 0.
    features = ScatteringNetwork()(torch.full((1, 3, 48, 48), 0.7))
    torch.testing.assert_close(features, torch.zeros(1, 216, 6, 6), atol=1e-3, rtol=0)


def test_scattering_answers_to_the_angle_and_scale_of_stripes():
    # A wave of 3/8 pi along x is the centre of scale 1 (3/4 pi / 2), angle 0: first-order channel 8 * 1 + 0.
    wave = 0.5 + 0.4 * torch.cos(0.375 * math.pi * torch.arange(48))
    upright = wave.expand(1, 3, 48, 48)
    network = ScatteringNetwork()
    assert network(upright)[0, :24, 3, 3].argmax() == 8
    assert network(upright.transpose(2, 3))[0, :24, 3, 3].argmax() == 8 + 4  # a quarter turn: 4 of 8 half-turn angles


def test_scattering_map_moves_with_the_picture():
    # The thing is 2^3 pixels further right and everything else is flat: the map moves by one place.
    thing = torch.zeros(1, 3, 48, 48)
    thing[..., 16:24, 16:24] = picture(8)
    moved = thing.roll(8, dims=3)
    network = ScatteringNetwork()
    torch.testing.assert_close(network(moved)[..., 2:], network(thing)[..., 1:-1], atol=5e-3, rtol=0)
    assert (network(moved) - network(thing)).abs().max() > 0.1


def test_scattering_ignores_inversion_and_adds_nothing_across_a_batch():
    images = torch.cat([picture(48, seed) for seed in range(6)])
    network = ScatteringNetwork()
    torch.testing.assert_close(network(1 - images), network(images), atol=1e-4, rtol=0)
    alone = torch.cat([network(image[None]) for image in images])
    torch.testing.assert_close(network(images), alone, atol=1e-5, rtol=0)


def test_scattering_learns_nothing_and_saves_nothing():
    network = ScatteringNetwork()
    assert list(network.parameters()) == [] and network.state_dict() == {}
    assert torch.equal(network(picture(48)), ScatteringNetwork()(picture(48)))


@pytest.mark.parametrize("size", [20, 8])
def test_scattering_refuses_sizes_that_its_scales_do_not_divide(size):
    with pytest.raises(ValueError, match=f"multiple of 8 from 16 on, but is {size}"):
        ScatteringNetwork(image_size=size)


def test_scattering_refuses_pictures_of_another_size():
    with pytest.raises(ValueError, match=r"\(B, 3, 48, 48\), but are \(1, 3, 64, 64\)"):
        ScatteringNetwork()(picture(64))
