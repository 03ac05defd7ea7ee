"""Read a pickle without running anything: numbers, strings, lists, dicts and plain numpy arrays, and nothing else.

A pickle is a program: it names functions and calls them. Here the only names that it can say are those by which numpy
writes an array, and none of them reaches numpy's own code: what stands behind them is below, and keeps bytes until
their size is checked. Any other name is refused, before anything is called.
"""

import io
import math
import pickle
from typing import Any

import numpy as np

from ...errors import InputError, in_short
from ..array_files import UnreadableArray

_KINDS = "biuf"  # bool, whole, unsigned, floating: what a feature file can mean
_REASON = 160  # letters of a reason, in a list of unreadable images
_OBJECTS = (pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.PERSID, pickle.BINPERSID, pickle.EXT1,
            pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER)  # fmt: skip
_INSIDE = object()  # stands for a container while what is in it is looked at


class _Refused(Exception):
    """The pickle asks for something else; the message is its name."""


class _DType:
    """A type of numbers, as numpy writes it: `dtype("f4", False, True)`, then its byte order."""

    def __init__(self, code: str = "", *_: object) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) > 4 and state[1] in ("<", ">", "|", "=")):
            raise _Refused("an odd type of numbers")
        if state[2] is not None or state[3] is not None or state[4] is not None:
            raise _Refused("arrays of several fields")
        self.order = state[1]

    def plain(self) -> np.dtype:
        """The real type.

        Raises:
            _Refused: it isn't one of plain numbers.
        """
        if not (isinstance(self.code, str) and self.code[:1] in _KINDS and self.code[1:].isdecimal()):
            raise _Refused(f"arrays of type {self.code!r}")
        try:
            return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]
        except TypeError as error:
            raise _Refused(f"arrays of type {self.code!r}") from error


class _Array:
    """An array under construction: what `_reconstruct` gives, until its shape, type and bytes are known."""

    def __init__(self, *_: object) -> None:
        self.value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        try:
            _, shape, dtype, by_column, content = state
        except (TypeError, ValueError) as error:
            raise _Refused("an odd array") from error
        self.value = _as_array(content, dtype, shape, "F" if by_column else "C")


def _as_array(content: Any, dtype: Any, shape: Any, order: str = "C") -> np.ndarray:
    if not isinstance(dtype, _DType):
        raise _Refused("an array without a type")
    if isinstance(content, list):
        raise _Refused("arrays of Python objects")
    kind = dtype.plain()
    if isinstance(content, str):
        content = content.encode("latin1")  # as Python 2 wrote bytes
    if not isinstance(content, bytes | bytearray) or not isinstance(shape, tuple):
        raise _Refused("an odd array")
    if not all(isinstance(side, int) and side >= 0 for side in shape):
        raise _Refused("an odd array")
    if len(content) != kind.itemsize * math.prod(shape):
        raise UnreadableArray(f"broken or truncated: {len(content)} bytes for an array of {shape}")
    return np.frombuffer(content, kind).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: Any, content: Any = b"") -> Any:
    return _as_array(content, dtype, ())[()]


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any = "C", *_: object) -> np.ndarray:
    """Numpy's way since protocol 5."""
    return _as_array(content, dtype, shape, order)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _Refused("_codecs.encode of no bytes")
    return text.encode("latin1")


def _no_bytes(*content: Any) -> bytes:
    """Empty bytes, for which Python 3 writes `bytes()` for Python 2."""
    if content:
        raise _Refused("bytes of something")
    return b""


class _NoClass:
    """What `_reconstruct` is asked to make; it is never made."""


_KNOWN = {
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _NoClass,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    ("builtins", "bytes"): _no_bytes,
    **{
        (f"numpy.{core}.{module}", name): stand_in
        for core in ("core", "_core")
        for module, name, stand_in in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


def _refuse(unpickler: Any) -> None:
    raise _Refused("objects")


def _build(unpickler: Any) -> None:
    """Give an array or a type its state; whatever else is on the stack has none."""
    if not isinstance(unpickler.stack[-2], _Array | _DType):
        raise _Refused("objects")
    _OWN[pickle.BUILD[0]](unpickler)


def _bytes(unpickler: Any) -> None:
    """Bytes of a written length, where the library would make room for them before it looks whether they are there."""
    length = int.from_bytes(unpickler.read(8), "little")
    content = unpickler.read(length)
    if len(content) != length:
        raise UnreadableArray("broken or truncated: it ends too early")
    unpickler.append(content)


_OWN: dict[int, Any] = pickle._Unpickler.dispatch  # type: ignore[attr-defined, unused-ignore]


class _Numbers(pickle._Unpickler):
    """Python's own unpickler in Python: the one in C allocates a table as long as a broken file says, up to all memory.

    Only numpy's way of writing arrays is left of what can make objects: a call of ours, then its state.
    """

    dispatch = {
        **_OWN,
        **dict.fromkeys((code[0] for code in _OBJECTS), _refuse),
        pickle.BUILD[0]: _build,
        pickle.BYTEARRAY8[0]: _bytes,
    }

    def find_class(self, module: str, name: str) -> Any:
        """What a name stands for: one of ours."""
        if (module, name) not in _KNOWN:
            raise _Refused(f"{module}.{name}")
        return _KNOWN[module, name]


def load_numbers(content: bytes, where: str) -> Any:
    """What a pickle holds.

    Args:
        where: the file, for messages.

    Raises:
        InputError: it asks for anything but plain arrays; nothing was run.
        UnreadableArray: it is broken or cut off.
    """
    try:
        return _finished(_Numbers(io.BytesIO(content), encoding="latin1").load(), {})
    except _Refused as error:
        raise InputError(
            f"{where} should hold numbers, strings and plain arrays alone, but asks for {error} when loaded. Nothing "
            "was run. Save its arrays with numpy.savez, where you trust it."
        ) from error
    except UnreadableArray:
        raise
    except Exception as error:  # a broken pickle fails in any way: EOFError, IndexError, MemoryError, …
        raise UnreadableArray(f"broken or truncated: {in_short(error, _REASON)}") from error


def _finished(value: Any, seen: dict[int, Any]) -> Any:
    """The same with real arrays in place of those under construction.

    Args:
        seen: containers by their identity: one that is named a million times is one.

    Raises:
        _Refused: something in it isn't a number, a string or an array, or it holds itself.
    """
    if isinstance(value, _Array):
        if value.value is None:
            raise _Refused("an odd array")
        return value.value
    if isinstance(value, dict | list | tuple):
        if id(value) not in seen:
            seen[id(value)] = _INSIDE
            if isinstance(value, dict):
                seen[id(value)] = {_finished(key, seen): _finished(each, seen) for key, each in value.items()}
            else:
                seen[id(value)] = [_finished(each, seen) for each in value]
        if seen[id(value)] is _INSIDE:
            raise _Refused("a list that holds itself")
        return seen[id(value)]
    if value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray | np.generic):
        return value
    raise _Refused(f"a {type(value).__name__.lstrip('_').lower()}")
