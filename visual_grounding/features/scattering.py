"""A feature network that needs no weights: wavelet scattering (Bruna and Mallat 2013).

Fixed wavelets, modulus, twice: what a trained network's first layers look like, computed instead of learned. It knows
shapes and textures, no classes and no colours. For tests, the quickstart, and machines that can download nothing.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class ScatteringNetwork(nn.Module):
    """Map pictures to local averages of wavelet moduli, compressed by a logarithm.

        S1[j, a] = |x * psi_ja| * phi_J                         j < J, A angles a
        S2[j, a, k, b] = ||x * psi_ja| * psi_kb| * phi_J        j < k < J
        y = log(1 + S1 / f), log(1 + S2 / f)

    x -> the mean of the three colours, phi_J -> a Gaussian of 2^J pixels, psi_ja -> a Morlet wavelet of 2^j pixels
    along angle a, f -> `floor`, the modulus below which there is only noise. A modulus of scale j is kept at every
    2^j-th place, the output at every 2^J-th. S0 = x * phi_J tells only how light the picture is, so it is left out.

    Shapes:
        images: (B, 3, image_size, image_size) in 0..1
        returns: (B, C, image_size / 2^J, image_size / 2^J), C = A J + A^2 J (J - 1) / 2

    Raises:
        ValueError: `image_size` is no multiple of 2^J, or too small, or the images have another size.
    """

    def __init__(self, image_size: int = 48, scales: int = 3, angles: int = 8, floor: float = 0.01) -> None:
        super().__init__()
        stride = 2**scales
        if image_size % stride or image_size < 2 * stride:
            raise ValueError(f"image_size must be a multiple of {stride} from {2 * stride} on, but is {image_size}.")
        self.image_size, self.scales, self.angles, self.floor = image_size, scales, angles, floor
        self.out_channels = angles * scales + angles**2 * scales * (scales - 1) // 2
        self.margin = stride  # mirrored at the border, so that the left edge doesn't touch the right one
        size = image_size + 2 * self.margin
        for level in range(scales):  # resolution: every 2^level-th place
            side = size >> level
            bank = [
                [morlet(side, j - level, math.pi * a / angles) for a in range(angles)] for j in range(level, scales)
            ]
            self.register_buffer(f"wavelets_{level}", torch.stack([torch.stack(row) for row in bank]), persistent=False)
            rows = window(side, scales - level)[1:-1]  # without the margin
            self.register_buffer(f"window_{level}", rows, persistent=False)

    @torch.no_grad()
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the logarithmic scattering map.

        Shapes:
            images: (B, 3, image_size, image_size) in 0..1
            returns: (B, C, image_size / 2^J, image_size / 2^J)

        Raises:
            ValueError: the images have another size.
        """
        if images.shape[1:] != (3, self.image_size, self.image_size):
            expected = (3, self.image_size, self.image_size)
            raise ValueError(f"images must be (B, {', '.join(map(str, expected))}), but are {tuple(images.shape)}.")
        return torch.cat([self._scatter(part) for part in images.split(4)])  # small enough for a processor's cache

    def _scatter(self, images: torch.Tensor) -> torch.Tensor:
        """`forward` for a few pictures; the same shapes."""
        grey = F.pad(images.mean(dim=1, keepdim=True), [self.margin] * 4, mode="reflect")  # (B, 1, side, side)
        spectrum = torch.fft.fft2(grey)
        first, second = [], []
        for j in range(self.scales):
            moduli = self._moduli(spectrum, 0, j)  # (B, A, side / 2^j, side / 2^j)
            first.append(self._average(moduli, j))
            again = torch.fft.fft2(moduli)[:, :, None] if j + 1 < self.scales else moduli
            for k in range(j + 1, self.scales):
                second.append(self._average(self._moduli(again, j, k), k).flatten(1, 2))  # (B, A A, h, h)
        return torch.log1p(torch.cat(first + second, dim=1) / self.floor)

    def _moduli(self, spectrum: torch.Tensor, level: int, scale: int) -> torch.Tensor:
        """Convolve with one scale's wavelets of all angles, keep every 2^scale-th place.

        Shapes:
            spectrum: (..., 1, side, side) at `level`
            returns: (..., A, side', side') at level `scale`
        """
        bank = getattr(self, f"wavelets_{level}")[scale - level]  # (A, side, side)
        return torch.fft.ifft2(filter_and_fold(spectrum, bank, 2 ** (scale - level))).abs()

    def _average(self, moduli: torch.Tensor, level: int) -> torch.Tensor:
        """Convolve with the Gaussian, keep every 2^J-th place of the picture, drop the margin.

        Shapes:
            moduli: (..., side, side) at `level`
            returns: (..., image_size / 2^J, image_size / 2^J)
        """
        rows = getattr(self, f"window_{level}")  # (h, side)
        return rows @ moduli @ rows.T


def filter_and_fold(spectrum: torch.Tensor, bank: torch.Tensor, step: int) -> torch.Tensor:
    """The spectrum of every `step`-th place of a filtered signal: the mean of `step` x `step` blocks of the product.

    Block by block, so that the whole product, the largest tensor of all, is never made.

    Shapes:
        spectrum: (..., 1, side, side);  bank: (A, side, side)
        returns: (..., A, side / step, side / step)
    """
    side = spectrum.shape[-1] // step
    blocks = [slice(i * side, (i + 1) * side) for i in range(step)]
    total = torch.zeros((), device=spectrum.device)
    for rows in blocks:
        for columns in blocks:
            total = total + spectrum[..., rows, columns] * bank[..., rows, columns]
    return total / step**2


def _bell(side: int, width: float, slant: float, angle: float, centre: float) -> torch.Tensor:
    """The Fourier transform of a Gaussian times exp(i centre u), u along `angle`, made periodic.

    `width` is the Gaussian's standard deviation along `angle`, width / slant the one across it.

    Shapes:
        returns: (side, side)
    """
    frequency = 2 * math.pi * torch.fft.fftfreq(side, dtype=torch.float64)
    total = torch.zeros(side, side, dtype=torch.float64)
    for down in range(-2, 3):
        for right in range(-2, 3):
            y, x = frequency[:, None] + 2 * math.pi * down, frequency[None, :] + 2 * math.pi * right
            along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
            total += torch.exp(-0.5 * width**2 * ((along - centre) ** 2 + (across / slant) ** 2))
    return total


def morlet(side: int, scale: int, angle: float) -> torch.Tensor:
    """The Fourier transform of a Morlet wavelet: a wave of frequency 3/4 pi 2^-scale under a Gaussian, minus its mean.

        psi(u) = g(u) (exp(i xi u) - c),  c such that psi sums to 0

    Shapes:
        returns: (side, side) float32
    """
    width, slant, frequency = 0.8 * 2.0**scale, 0.5, 0.75 * math.pi * 2.0**-scale
    wave, bell = (_bell(side, width, slant, angle, centre) for centre in (frequency, 0.0))
    return (wave - bell * wave[0, 0] / bell[0, 0]).to(torch.float32)


def window(side: int, scale: int) -> torch.Tensor:
    """Weights of a periodic Gaussian average of standard deviation 0.4 2^scale round every 2^scale-th place.

    Shapes:
        returns: (side / 2^scale, side) float32, rows sum to 1
    """
    distance = torch.arange(side, dtype=torch.float64) - torch.arange(0, side, 2**scale)[:, None]
    turns = side * torch.arange(-2, 3)[:, None, None]
    bell = torch.exp(-0.5 * ((distance + turns) / (0.4 * 2**scale)) ** 2).sum(dim=0)
    return (bell / bell.sum(dim=1, keepdim=True)).to(torch.float32)
