"""Write images into whatever they may come in."""

import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def picture(height: int = 6, width: int = 8, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def write_parquet(
    path: Path, images: Sequence[bytes | None], paths: Sequence[str | None] | None = None, group: int = 2, **more: Any
) -> Path:
    """As Hugging Face datasets writes images: a struct {bytes, path}, a few rows in a row group."""
    paths = [None] * len(images) if paths is None else paths
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    rows = [None if image is None else {"bytes": image, "path": name} for image, name in zip(images, paths)]
    pq.write_table(pa.table({"image": pa.array(rows, kind), **more}), path, row_group_size=group)
    return path
