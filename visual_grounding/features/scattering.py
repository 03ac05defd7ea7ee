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

        S0 = x * phi_J
        S1[j, a] = |x * psi_ja| * phi_J                         j < J, A angles a
        S2[j, a, k, b] = ||x * psi_ja| * psi_kb| * phi_J        j < k < J
        y = log(1 + S1 / f), log(1 + S2 / f)

    x -> the mean of the three colours, phi_J -> a Gaussian, psi_ja -> a Morlet wavelet, of width 2^j along angle a.
    A path is computed at the resolution that its wavelets leave (every 2^(j-1)-th place), the output at every 2^J-th.
    S0 tells only how light the picture is, so it is left out. `floor` f is the modulus below which there is only noise.

    Shapes:
        images: (B, 3, image_size, image_size) in 0..1
        returns: (B, C, image_size / 2^J, image_size / 2^J), C = A J + A^2 J (J - 1) / 2

    Raises:
        ValueError: `image_size` is no multiple of 2^(J+1), or the images have another size.
    """

    def __init__(self, image_size: int = 64, scales: int = 4, angles: int = 8, floor: float = 0.01) -> None:
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
            bank = [morlet(side, j - level, math.pi * a / angles) for j in range(scales) for a in range(angles)]
            self.register_buffer(f"wavelets_{level}", torch.stack(bank), persistent=False)  # (J A, side, side)
            self.register_buffer(f"smoothing_{level}", gaussian(side, scales - level), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the logarithmic scattering map.

        Shapes:
            images: (B, 3, image_size, image_size) in 0..1
            returns: (B, C, image_size / 2^J, image_size / 2^J)
        """
        if images.shape[1:] != (3, self.image_size, self.image_size):
            expected = (3, self.image_size, self.image_size)
            raise ValueError(f"images must be (B, {', '.join(map(str, expected))}), but are {tuple(images.shape)}.")
        grey = F.pad(images.mean(dim=1, keepdim=True), [self.margin] * 4, mode="reflect").squeeze(1)
        spectrum = torch.fft.fft2(grey)[:, None]  # (B, 1, side, side)
        first, second = [], []
        for j in range(self.scales):
            moduli, level = self._moduli(spectrum, 0, j)  # (B, A, side_j, side_j)
            again = torch.fft.fft2(moduli)
            first.append(self._average(again, level))
            for k in range(j + 1, self.scales):
                deeper, deeper_level = self._moduli(again[:, :, None], level, k)  # (B, A, A, side_k, side_k)
                second.append(self._average(torch.fft.fft2(deeper), deeper_level).flatten(1, 2))
        return torch.log1p(torch.cat(first + second, dim=1) / self.floor)

    def _moduli(self, spectrum: torch.Tensor, level: int, scale: int) -> tuple[torch.Tensor, int]:
        """Convolve with all angles of one scale, and keep the places that its bandwidth asks for.

        Shapes:
            spectrum: (..., 1, side, side) at `level`
            returns: (..., A, side', side'), and its level
        """
        bank = getattr(self, f"wavelets_{level}")[scale * self.angles : (scale + 1) * self.angles]  # (A, side, side)
        target = max(level, scale - 1)
        return torch.fft.ifft2(fold(spectrum * bank, 2 ** (target - level))).abs(), target

    def _average(self, spectrum: torch.Tensor, level: int) -> torch.Tensor:
        """Convolve with the Gaussian, keep every 2^J-th place of the picture, drop the margin.

        Shapes:
            spectrum: (..., side, side) at `level`
            returns: (..., image_size / 2^J, image_size / 2^J)
        """
        smooth = fold(spectrum * getattr(self, f"smoothing_{level}"), 2 ** (self.scales - level))
        return torch.fft.ifft2(smooth).real[..., 1:-1, 1:-1]


def fold(spectrum: torch.Tensor, step: int) -> torch.Tensor:
    """The spectrum of every `step`-th place of a signal: the mean of the spectrum's `step` x `step` blocks.

    Shapes:
        spectrum: (..., side, side)
        returns: (..., side / step, side / step)
    """
    side = spectrum.shape[-1] // step
    return spectrum.unflatten(-1, (step, side)).unflatten(-3, (step, side)).mean(dim=(-4, -2))


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


def gaussian(side: int, scale: int) -> torch.Tensor:
    """The Fourier transform of a Gaussian of standard deviation 0.4 2^scale that sums to 1.

    Shapes:
        returns: (side, side) float32
    """
    bell = _bell(side, 0.4 * 2.0**scale, 1.0, 0.0, 0.0)
    return (bell / bell[0, 0]).to(torch.float32)
