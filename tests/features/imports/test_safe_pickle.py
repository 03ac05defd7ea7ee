"""Pickles of arrays come through, and nothing in a pickle is ever run."""

import os
import pickle
import random
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from visual_grounding.errors import InputError
from visual_grounding.features.array_files import UnreadableArray
from visual_grounding.features.imports.safe_pickle import load_numbers

ARRAYS: dict[str, Any] = {
    "boxes": np.arange(8, dtype=np.float32).reshape(2, 4),
    "classes": np.array([3, 65535], np.uint16),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big-endian": np.array([1.5, -2], ">f8"),
    "strided": np.arange(10, dtype=np.int64)[::3],
    "none": np.zeros((0, 4), np.float16),
    "no axes": np.array(True),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_numbers_and_strings_come_through(protocol: int) -> None:
    plain = {"id": 7, "big": 1 << 70, "name": "a.jpg", "bytes": b"\x80\x00", "list": [1.5, None, True], 3: ("x",)}
    scalars = {"width": np.int64(640), "score": np.float32(0.25)}
    found = load_numbers(pickle.dumps({**ARRAYS, **plain, **scalars}, protocol=protocol), "file")
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
    assert {name: found[name] for name in plain} == {**plain, 3: ["x"]}
    assert found["width"] == 640 and found["score"] == 0.25


def test_names_of_older_numpys_and_pickles_of_python_2_are_known() -> None:
    old = pickle.dumps(ARRAYS["boxes"], protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    np.testing.assert_array_equal(load_numbers(old, "file"), ARRAYS["boxes"])
    # Python 2 wrote the bytes of an array, and its keys, as strings of bytes (opcode U: length, bytes)
    state = (
        b"(I1\n(I2\ntcnumpy\ndtype\n(U\x02f4I0\nI1\ntR(I3\nU\x01<NNNI-1\nI-1\nI0\ntbI00\nU\x08"
        + np.array([1, 2], "<f4").tobytes()
        + b"tb."
    )
    two = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR" + state
    assert load_numbers(two, "file").tolist() == [1, 2]


class Malicious:
    """Makes a file when it is loaded by pickle itself."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize(
    ("call", "name"),
    [(os.mkdir, "posix.mkdir"), (exec, "builtins.exec"), (getattr, "builtins.getattr"), (np.memmap, "numpy.memmap")],
)
def test_pickle_that_would_run_something_is_refused_by_name(tmp_path: Path, call: Any, name: str) -> None:
    arguments = {"exec": (f"open({str(tmp_path / 'ran')!r}, 'w')",), "getattr": ("", "join")}
    content = pickle.dumps({"features": Malicious(call, *arguments.get(call.__name__, (str(tmp_path / "ran"),)))})
    with pytest.raises(InputError, match=rf"^evil\.pkl should hold numbers.*asks for {name} when loaded\. Nothing was"):
        load_numbers(content, "evil.pkl")
    assert not (tmp_path / "ran").exists()
    if call is os.mkdir:  # so would pickle itself
        pickle.loads(content)
        assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (OrderedDict(a=1), "collections.OrderedDict"),
        (Path("a"), "pathlib"),
        (torch.ones(2), "torch._utils._rebuild_tensor_v2"),
        (np.array([{"code": 1}], dtype=object), "arrays of Python objects"),
        (np.array(["a"]), "arrays of type 'U1'"),
        (np.zeros(2, [("x", "f4")]), "arrays of several fields"),
        (np.array(["2020-01-01"], "M8[D]"), "arrays of type 'M8'"),
        (np.ones(2, complex), "arrays of type 'c16'"),
        ({1, 2}, "builtins.set|a set"),
        (np.dtype("f4"), "a dtype"),
        (np.ndarray, "a type"),
    ],
)
def test_what_holds_no_plain_numbers_is_refused_by_name(value: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"asks for .*({name})"):
        load_numbers(pickle.dumps(value, protocol=4), "file")


def test_stand_ins_can_not_be_abused() -> None:
    """State where an array's should be, an array that claims more than it has, encode as a way to other codecs."""
    lying = pickle.dumps(ARRAYS["boxes"]).replace(b"K\x02K\x04\x86", b"K\x63K\x63\x86")
    with pytest.raises(UnreadableArray, match=r"32 bytes for an array of \(99, 99\)"):
        load_numbers(lying, "file")
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    for content, said in (
        (reconstruct + b"(dS'__class__'\nI1\nsb.", "an odd array"),
        (b"c_codecs\nencode\n(N(dS'__defaults__'\n(S'hex'\ntstb.", "objects"),  # state of a function of ours
        (b"cnumpy\nndarray\n)\x81.", "objects"),
        (b"(icollections\nOrderedDict\n.", "objects"),
        (b"\x82\x01.", "objects"),  # by the number of an extension
        (b"P1\n.", "objects"),  # persistent
        (reconstruct + b".", "an odd array"),
        (b"c_codecs\nencode\n(S'aa'\nS'hex'\ntR.", "_codecs.encode of no bytes"),
        (b"cnumpy\ndtype\n(S'O8'\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb.", "a dtype"),
    ):
        with pytest.raises(InputError, match=f"asks for {said}"):
            load_numbers(content, "file")


def test_a_list_is_looked_at_once_however_often_it_is_named() -> None:
    named: list[Any] = [1]
    for _ in range(40):
        named = [named, named]  # 2 ** 40 paths to the 1
    assert load_numbers(pickle.dumps(named), "file")
    named[0] = named
    with pytest.raises(InputError, match="asks for a list that holds itself"):
        load_numbers(pickle.dumps(named), "file")


def test_broken_file_takes_no_more_memory_than_it_has() -> None:
    """Place 2 ** 32 - 1 of the table of what was seen, and bytes of 2 ** 40: a fuzzer finds such a file in no time."""
    tracemalloc.start()
    try:
        assert load_numbers(b"\x80\x04N" + b"r\xff\xff\xff\xff" + b".", "file") is None
        for opcode in (b"\x8e", b"\x96"):  # bytes, and an array of them
            with pytest.raises(UnreadableArray, match="broken or truncated"):
                load_numbers(b"\x80\x05" + opcode + (1 << 30).to_bytes(8, "little") + b"x.", "file")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_fuzzed_pickles_are_refused_or_unreadable() -> None:
    rng = random.Random(0)
    whole = {protocol: pickle.dumps(ARRAYS, protocol=protocol) for protocol in (0, 2, 4, 5)}
    counted = dict.fromkeys(("read", "refused", "unreadable"), 0)
    for number in range(600):
        content = bytearray(whole[(0, 2, 4, 5)[number % 4]])
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            load_numbers(bytes(content), "file")
            counted["read"] += 1
        except InputError:
            counted["refused"] += 1
        except UnreadableArray:
            counted["unreadable"] += 1
    assert min(counted.values()) > 25, counted


@pytest.mark.parametrize("content", [b"", b"\x80", b"no pickle", pickle.dumps(ARRAYS)[:-20]])
def test_broken_pickle_is_unreadable(content: bytes) -> None:
    with pytest.raises(UnreadableArray, match=r"broken or truncated: ."):
        load_numbers(content, "file")
