"""Captions in tables: parquet, or Arrow as Hugging Face datasets saves it; a caption a row, or a list of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, in_short

ENDINGS = (".parquet", ".arrow")
_ROWS = 4096


def is_table(path: Path) -> bool:
    """Whether a path is called like such a table, or is a folder of them."""
    return path.suffix in ENDINGS or bool(_files(path))


def iterate_caption_tables(path: Path, key_column: str | None, caption_column: str | None) -> Iterator[tuple[str, str]]:
    """Key and caption of each row, one by one; a list of captions gives several. White space is one blank each time.

    Args:
        path: a file, or a folder of them, which are read by name.
        key_column: text or whole numbers; keys are the images'.
        caption_column: text, or lists of text.

    Raises:
        InputError: a file can't be read, or has no such columns or others than these in them, a row without a key or a
            caption, or no row at all.
    """
    files, found = _files(path) or [path], False
    for file in files:
        at = 0
        for table in _batches(file, key_column, caption_column):
            for key, captions in zip(table[0], table[1]):
                at += 1
                name = "" if key is None else str(key)
                if not name or any(mark in name for mark in "\t\n"):
                    raise InputError(f"{file}, row {at} should have a key in {key_column!r}, but has {key!r:.80}.")
                listed = captions if isinstance(captions, list) else [captions]
                words = [" ".join(caption.split()) for caption in listed if caption is not None]
                if not words or not all(words):
                    raise InputError(
                        f"{file}, row {at} should have a caption in {caption_column!r}, but has {captions!r:.80}."
                    )
                found = True
                yield from ((name, caption) for caption in words)
    if not found:
        raise InputError(f"{path} should hold captions, but is empty.")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(file for file in path.iterdir() if file.suffix in ENDINGS)


def _batches(file: Path, key_column: str | None, caption_column: str | None) -> Iterator[tuple[list[Any], list[Any]]]:
    """Values of both columns, some rows at a time."""
    try:
        if file.suffix == ".arrow":
            with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
                key, caption = _columns(stream.schema, file, key_column, caption_column)
                for batch in stream:
                    yield batch.column(key).to_pylist(), batch.column(caption).to_pylist()
        else:
            with pq.ParquetFile(file, page_checksum_verification=True) as table:
                key, caption = _columns(table.schema_arrow, file, key_column, caption_column)
                for batch in table.iter_batches(_ROWS, columns=[key, caption]):
                    yield batch.column(key).to_pylist(), batch.column(caption).to_pylist()
    except InputError:
        raise
    except Exception as error:  # ArrowInvalid, OSError, … by the damage
        raise InputError(f"{file} should be a whole table of captions, but isn't: {in_short(error)}.") from error


def _columns(schema: pa.Schema, file: Path, key_column: str | None, caption_column: str | None) -> tuple[str, str]:
    """The names of both columns, once their types are what they should be."""
    sound = {"key_column": _is_key, "caption_column": _is_caption}
    chosen = {"key_column": key_column, "caption_column": caption_column}
    for choice, name in chosen.items():
        what = "keys" if choice == "key_column" else "captions"
        fitting = [field.name for field in schema if sound[choice](field.type)]
        if schema.names.count(name) != 1 or name not in fitting:
            had = f"{name!r} is {schema.field(name).type}" if schema.names.count(name) == 1 else f"there is no {name!r}"
            raise InputError(
                f"{file} should have a column of {what}, one of {', '.join(fitting) or 'none that it has'}, but "
                f"{'none was named' if name is None else had}.",
                choice,
            )
    return str(key_column), str(caption_column)


def _is_key(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)


def _is_caption(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
