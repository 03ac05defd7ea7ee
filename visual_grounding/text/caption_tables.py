"""Captions in tables: parquet, or Arrow as Hugging Face datasets saves it; a caption a row, or a list of them."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import InputError, in_short
from ..storage.outside import open_file, read_json
from .captions import is_parquet

ENDINGS = (".parquet", ".arrow")
_ROWS = 4096
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream that was written to its end


def is_table(path: Path) -> bool:
    """Whether a path is such tables: by its name, or pattern (`data/train-*.parquet`), or as a parquet file."""
    return path.is_dir() or path.suffix in ENDINGS or is_parquet(path)


def iterate_caption_tables(
    path: Path, key_column: str | None, caption_columns: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Key and caption of each row, one by one; a list of captions, or several columns of them, give several.

    White space is one blank each time.

    Args:
        path: a file; several by a pattern, or all of a folder, by name. Of a folder that datasets saved: those that
            are of the dataset.
        key_column: text or whole numbers; keys are the images'. Of images as datasets saves them it is their `path`.
        caption_columns: text, or lists of text.

    Raises:
        InputError: there is no file, or they are of several splits, or one can't be read, is cut off, or has no such
            columns or others than these in them; a row without a key or a caption, or no row at all.
    """
    found = False
    for file in _files(path):
        at = 0
        for keys, *columns in _batches(file, key_column, caption_columns):
            for key, *captions in zip(keys, *columns):
                at += 1
                name = "" if key is None else str(key)
                if not name or any(mark in name for mark in "\t\n\r\0"):
                    raise InputError(f"{file}, row {at} should have a key in {key_column!r}, but has {key!r:.80}.")
                for column, given in zip(caption_columns, captions):
                    listed = given if isinstance(given, list) else [given]
                    words = [" ".join((caption or "").split()) for caption in listed]
                    if not words or not all(words):
                        raise InputError(
                            f"{file}, row {at} should have a caption in {column!r}, but has {given!r:.80}."
                        )
                    found = True
                    yield from ((name, caption) for caption in words)
    if not found:
        raise InputError(f"{path} should hold captions, but is empty.")


def _files(path: Path) -> list[Path]:
    """The files of a table, by name."""
    if not path.is_dir():
        try:
            files = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
        except ValueError as error:  # `**` within a name
            raise InputError(f"{path} should be a pattern of files, but: {error}.") from error
        if not files:
            raise InputError(f"{path} should be tables of captions, but there is none.")
        return files
    saved = path / "state.json"
    if saved.is_file():
        try:
            names = [str(each["filename"]) for each in read_json(saved)["_data_files"]]
            if any(os.path.basename(name) != name or not name for name in names):
                raise ValueError("its files should lie beside it")
            files = [path / name for name in names]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{saved} should be what datasets saved, but is broken: {error!r:.80}.") from error
    else:
        files = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
    if not files:
        below = ", ".join(sorted(each.name for each in path.iterdir() if each.is_dir())[:5])
        hint = f" Name one of its folders: {below}." if below else ""
        raise InputError(f"{path} should hold tables of captions ({' or '.join(ENDINGS)}), but has none.{hint}")
    kinds = sorted({f"{re.sub('[-_]?[0-9].*', '', file.stem)}*{file.suffix}" for file in files})
    if len(kinds) > 1:
        raise InputError(
            f"{path} should hold tables of one split, but has {', '.join(kinds[:5])}. Name those that are meant: "
            f"{path / kinds[0]}"
        )
    return files


def _batches(file: Path, key_column: str | None, caption_columns: Sequence[str]) -> Iterator[list[list[Any]]]:
    """Values of the column of keys and of those of captions, some rows at a time."""
    if not os.path.isfile(file):  # pathlib's own raises where a name is too long
        raise InputError(f"{file} should be a file, but isn't there, or is none.")
    try:
        if file.suffix == ".arrow":
            _check_end(file)
            # Not memory-mapped: where a broken file says that it is longer than it is, that would kill the process.
            with pa.OSFile(str(file)) as opened, pa.ipc.open_stream(opened) as stream:
                columns = _columns(stream.schema, file, key_column, caption_columns)
                for batch in stream:
                    batch.validate(full=True)  # what its places say is looked up unchecked
                    yield [_values(batch.column(name)) for name in columns]
        else:
            with pq.ParquetFile(file, page_checksum_verification=True) as table:
                key, *captions = _columns(table.schema_arrow, file, key_column, caption_columns)
                leaf = f"{key}.path" if pa.types.is_struct(table.schema_arrow.field(key).type) else key
                for batch in table.iter_batches(_ROWS, columns=[leaf, *captions]):
                    yield [_values(batch.column(name)) for name in (key, *captions)]
    except InputError:
        raise
    except Exception as error:  # ArrowInvalid, OSError, … by the damage
        raise InputError(f"{file} should be a whole table of captions, but isn't: {in_short(error)}.") from error


def _check_end(file: Path) -> None:
    """Refuse a stream that was cut off: where a batch ends, pyarrow takes it for whole."""
    with open_file(file) as stream:
        begins = stream.read(8)
        stream.seek(max(0, os.path.getsize(file) - len(_END)))
        ends = stream.read()
    if begins == b"ARROW1\0\0":
        raise InputError(f"{file} should be a stream, as datasets saves it, but is an Arrow file (Feather).")
    if ends != _END:
        raise InputError(f"{file} should be a whole table of captions, but is cut off: its end isn't there.")


def _values(column: pa.Array) -> list[Any]:
    """As Python has them; of images only the paths, as their bytes may be many."""
    of_images = pa.types.is_struct(column.type)
    return (pc.struct_field(column, "path") if of_images else column).to_pylist()  # type: ignore[no-any-return]


def _columns(schema: pa.Schema, file: Path, key_column: str | None, caption_columns: Sequence[str]) -> list[str]:
    """The names of all columns, that of keys first, once their types are what they should be."""
    sound = {"key_column": _is_key, "caption_column": _is_caption}
    chosen = [("key_column", key_column), *(("caption_column", name) for name in caption_columns or (None,))]
    for choice, name in chosen:
        what = "keys" if choice == "key_column" else "captions"
        fitting = [field.name for field in schema if sound[choice](field.type)]
        times = schema.names.count(name)
        if times != 1 or name not in fitting:
            had = f"{name!r} is {schema.field(name).type}" if times == 1 else f"there are {times or 'no'} {name!r}"
            raise InputError(
                f"{file} should have a column of {what}, one of {', '.join(fitting) or 'none that it has'}, but "
                f"{'none was named' if name is None else had}.",
                choice,
            )
    columns = [str(key_column), *caption_columns]
    if key_column in caption_columns:
        raise InputError(f"keys and captions should be two columns, but both are {key_column!r}.", *sound)
    if len(set(columns)) < len(columns):
        raise InputError(f"columns of captions should be several, but are {columns[1:]}.", "caption_column")
    return columns


def _is_key(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):  # an image, as datasets saves it
        return any(field.name == "path" and _is_text(field.type) for field in kind)
    return _is_text(kind) or pa.types.is_integer(kind)


def _is_caption(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return _is_text(kind.value_type if listed else kind)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
