"""Region features turned and shortened by a fixed linear map, such as a PCA that was fitted elsewhere."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from ...errors import InputError, check_at_least_one
from ...storage.artefact import sha256_of_file
from ...storage.weights import read_weights

_PARTS = ("mean", "components", "block_std")


class Projection(nn.Module):
    """Bring blocks to one scale, join them, and project.

        y = A (x - mu),  x = [x_1 / s_1; ...; x_m / s_m]

    x_i -> what was pooled from the i-th map, s_i -> `block_std`, mu -> `mean`, A -> `components`, one a row.

    Args:
        origin: what messages call it.
        digest: tells it from others.

    Shapes:
        mean: (C,);  components: (F, C);  block_std: (m,)
        blocks: m of (n, C_i), whose sizes add up to C
        returns: (n, F)
    """

    mean: torch.Tensor
    components: torch.Tensor
    block_std: torch.Tensor

    def __init__(
        self, mean: torch.Tensor, components: torch.Tensor, block_std: torch.Tensor, origin: str, digest: str
    ) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("components", components)
        self.register_buffer("block_std", block_std)
        self.origin = origin
        self.digest = digest

    @property
    def size(self) -> int:
        """F, numbers of a region."""
        return len(self.components)

    def check(self, sizes: Sequence[int], names: Sequence[str]) -> None:
        """Refuse features of other blocks.

        Args:
            sizes: C_i of each map.
            names: of the maps, for the message.

        Raises:
            InputError: their number or their sum differs.
        """
        if len(sizes) != len(self.block_std) or sum(sizes) != len(self.mean):
            said = ", ".join(f"{name} ({size})" for name, size in zip(names, sizes))
            raise InputError(
                f"{self.origin} is for {len(self.block_std)} maps with {len(self.mean)} numbers together, but the maps "
                f"are {said}: {len(sizes)} with {sum(sizes)}.",
                "feature_pca",
                "feature_maps",
            )

    def forward(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """Project.

        Shapes:
            blocks: m of (n, C_i)
            returns: (n, F)
        """
        scaled = [block / scale for block, scale in zip(blocks, self.block_std)]
        return (torch.cat(scaled, dim=1) - self.mean) @ self.components.T


def read_projection(path: str | Path, size: int | None = None) -> Projection:
    """Read one.

    Args:
        path: a .safetensors with mean (C,), components (any, C) and block_std (maps,).
        size: keep only the first so many components; None for all.

    Raises:
        InputError: the file isn't such a projection, or has fewer components.
    """
    path = Path(path)
    parts = read_weights(path, finite=True)
    shapes = {name: tuple(parts[name].shape) if name in parts else None for name in _PARTS}
    mean, components, block_std = (parts.get(name, torch.empty(0, 0, 0)).float() for name in _PARTS)
    if (mean.dim(), components.dim(), block_std.dim()) != (1, 2, 1) or components.shape[1] != len(mean):
        found = ", ".join(f"{name} {shape or 'missing'}" for name, shape in shapes.items())
        raise InputError(
            f"{path} should have mean (C,), components (any, C) and block_std (maps,), but has {found}.", "feature_pca"
        )
    if not (block_std > 0).all():
        raise InputError(f"{path} should have a block_std above 0, but has {block_std.tolist()}.", "feature_pca")
    if size is not None:
        check_at_least_one(feature_size=size)
        if size > len(components):
            raise InputError(
                f"{size} numbers a region are asked for, but {path} has {len(components)} components.",
                "feature_size",
                "feature_pca",
            )
    return Projection(mean, components[:size].clone(), block_std, str(path), sha256_of_file(path))
