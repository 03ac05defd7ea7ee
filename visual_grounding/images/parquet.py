"""Images as bytes in a column of parquet files, as Hugging Face datasets writes them: {bytes, path}, or plain bytes."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from ..errors import InputError, in_short
from ..storage.outside import open_file
from .keys import is_sound_key
from .parquet_rows import ParquetRows, open_parquet

_TAIL = 8  # length of the footer, and "PAR1"
_KEY_ROWS = 1 << 16
_IMAGE = "image bytes: binary, or a struct {bytes, path} as Hugging Face datasets writes it"


class _Column(NamedTuple):
    """Where images are: the column, its leaf of bytes, and its leaf of paths where there is one."""

    name: str
    bytes: str
    path: str | None


class ParquetImages:
    """One image a row; see `ImageSource`.

    Args:
        paths: the files, in order.
        root: the folder that keys FILE:ROW are relative to.
        image_column: which column holds the images; None where only one can.
        key_column: a column of unique names or numbers; None for the paths in the images' struct if they are unique
            and fit into a key list, else FILE:ROW, counted from 0.

    Attributes:
        note: why the paths beside the images aren't the keys; empty where they are, or where there are none.

    Raises:
        InputError: a file is broken, or has no such columns, or it isn't clear which is meant.
        ValueError: there is no file.
    """

    def __init__(
        self, paths: Sequence[Path], root: Path, image_column: str | None = None, key_column: str | None = None
    ) -> None:
        digest = hashlib.sha256()
        rows_of_groups = []
        column: _Column | None = None
        for path in paths:
            file = open_parquet(path)
            schema, groups = _read_footer(file, path)
            digest.update(_footer_bytes(path))
            found = _image_column(schema, path, image_column if column is None else column.name)
            if column is None:
                column = found
            elif found != column:
                raise InputError(
                    f"Column {column.name} of {path} is {_type(schema, column.name)}, unlike in {paths[0]}."
                )
            if key_column is not None:
                _check_key_column(schema, path, key_column)
            rows_of_groups.append(groups)
        if column is None:
            raise ValueError("there must be a file at least")
        self._rows = ParquetRows(paths, column.bytes, rows_of_groups)
        self.note = ""
        if key_column is not None:
            self.keys: Sequence[str] = _named(paths, key_column)
        else:
            self.keys = self._paths_or_places(paths, root, column, [sum(groups) for groups in rows_of_groups])
        for key in self.keys:
            digest.update(key.encode("utf-8", "surrogateescape") + b"\n")
        self.digest = digest.hexdigest()

    def read(self, row: int) -> bytes:
        """The bytes of one image."""
        return self._rows.read(row)

    def _paths_or_places(
        self, paths: Sequence[Path], root: Path, column: _Column, rows: Sequence[int]
    ) -> Sequence[str]:
        if column.path is not None:
            keys = ["" if key is None else str(key) for key in _values(paths, column.path)]
            named = sum(map(bool, keys))
            sound = len(set(filter(is_sound_key, keys)))
            if sound == len(keys):
                return keys
            if named:
                self.note = (
                    f"{column.path} has {sound} different paths that can be keys in {len(keys)} rows, so keys are "
                    "FILE:ROW. A key column would give others."
                )
        names = [os.path.relpath(path, root) for path in paths]
        return [f"{name}:{row}" for name, count in zip(names, rows, strict=True) for row in range(count)]


def _read_footer(file: pq.ParquetFile, path: Path) -> tuple[pa.Schema, list[int]]:
    """The columns, and the number of rows in each row group."""
    try:
        metadata = file.metadata
        groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        schema = file.schema_arrow
    except Exception as error:
        raise InputError(
            f"{path} should be a whole parquet file, but isn't: {in_short(error)}. Copy it again."
        ) from error
    if min(groups, default=0) < 0:
        raise InputError(f"{path} should be a whole parquet file, but has a row group of {min(groups)} rows.")
    return schema, groups


def _footer_bytes(path: Path) -> bytes:
    """What a file says about itself: its columns, and the place and size of each piece of them."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - _TAIL)
        length = int.from_bytes(file.read(4), "little")
        file.seek(size - _TAIL - length)
        return file.read(length + _TAIL)


def _image_column(schema: pa.Schema, path: Path, wanted: str | None) -> _Column:
    columns = {field.name: _as_images(field) for field in schema}
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise InputError(f"{path} should have columns of different names, but has several {twice[0]!r}.")
    if wanted is not None:
        if wanted not in columns:
            raise InputError(f"{path} has no image column {wanted}; it has {_described(schema)}.", "image_column")
        chosen = columns[wanted]
        if chosen is None:
            raise InputError(f"Column {wanted} of {path} should hold {_IMAGE}; but is {_type(schema, wanted)}.")
        return chosen
    fitting = [column for column in columns.values() if column is not None]
    if not fitting:
        raise InputError(f"{path} should have a column of {_IMAGE}; but it has {_described(schema)}.")
    if len(fitting) > 1:
        raise InputError(
            f"{path} has {len(fitting)} columns that may hold images: {', '.join(column.name for column in fitting)}. "
            "Choose one.",
            "image_column",
        )
    return fitting[0]


def _as_images(field: pa.Field) -> _Column | None:
    if _is_bytes(field.type):
        return _Column(field.name, field.name, None)
    if not types.is_struct(field.type):
        return None
    inner = {child.name: child.type for child in field.type}
    if "bytes" not in inner or not _is_bytes(inner["bytes"]):
        return None
    has_path = "path" in inner and _is_text(inner["path"])
    return _Column(field.name, f"{field.name}.bytes", f"{field.name}.path" if has_path else None)


def _check_key_column(schema: pa.Schema, path: Path, name: str) -> None:
    if name not in schema.names:
        raise InputError(f"{path} has no key column {name}; it has {_described(schema)}.", "key_column")
    kind = schema.field(schema.names.index(name)).type
    if not (_is_text(kind) or types.is_integer(kind)):
        raise InputError(f"Column {name} of {path} should hold names or whole numbers, but is {kind}.")


def _named(paths: Sequence[Path], column: str) -> list[str]:
    keys = []
    for number, key in enumerate(_values(paths, column)):
        if key is None:
            raise InputError(f"Column {column} should have a key in each row, but row {number} (from 0) has none.")
        keys.append(str(key))
    return keys


def _values(paths: Sequence[Path], leaf: str) -> Iterator[Any]:
    """All values of a column that isn't the images."""
    for path in paths:
        try:
            for batch in open_parquet(path).iter_batches(_KEY_ROWS, columns=[leaf], use_threads=False):
                column = batch.column(0)
                yield from (column.flatten()[0] if types.is_struct(column.type) else column).to_pylist()
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"Column {leaf} of {path} can't be read: {in_short(error)}. Copy the file again."
            ) from error


def _is_bytes(kind: pa.DataType) -> bool:
    return str(kind).partition("[")[0] in ("binary", "large_binary", "binary_view", "fixed_size_binary")


def _is_text(kind: pa.DataType) -> bool:
    return str(kind.value_type if types.is_dictionary(kind) else kind) in ("string", "large_string", "string_view")


def _type(schema: pa.Schema, name: str) -> str:
    return next(" ".join(str(field.type).split())[:80] for field in schema if field.name == name)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{name} ({_type(schema, name)[:40]})" for name in dict.fromkeys(schema.names)) or "none"
