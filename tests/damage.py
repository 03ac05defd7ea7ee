"""What may be wrong with a file that somebody else wrote, and whoever reads it under watch.

`damaged` makes a broken file of a sound one; `try_to_read` insists on what every reader promises: a whole result, or
one short line that a terminal can show, soon, in little memory, with nothing run that the file asks for.
"""

import copy
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import stat
import struct
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import category

import numpy as np
import torch
from fairseq.data.indexed_dataset import _code_to_dtype
from hypothesis import strategies as st

from visual_grounding.errors import InputError

SECONDS, BYTES, ROOM = 5, 400 * 2**20, 8 * 2**30  # of a reading; memory beyond what it had before; what it may claim
LETTERS = 3000  # of a message
HUGE = (-1, 0, 1, 3, 255, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**18, 10**40, -(2**63))
ODD_JSON: list[Any] = [
    None, True, False, "", "x", "\0", "\ud800", "\x1b[2J", "y" * 100_000, [], [[]], {}, {"a": 1}, [None], ["a", 3],
    0.5, -1.5, 1e308, float("nan"), float("inf"), "1", "../../etc/passwd", "/dev/zero", "\u2028\u202e", *HUGE, 10**5000,
]  # fmt: skip
ODD_BYTES = [
    b"\0", b"\x1b[2J", b"\r", b"\r\n", b"\n", b"\n\n\n", b"\t", b"\t\t\t\t", b"\xff\xfe", b"\xef\xbb\xbf", b"\x85",
    b"\xed\xa0\x80", "\u2028".encode(), "\u202e".encode(), b'"', b"'", b'"""', b"\\", b"{", b"[" * 5000, b"(" * 5000,
    b"x" * 100_000, b"nan", b"-inf", b"1e999", b"9" * 5000, b"-1", b"0", b"%s", b"../../x", b" ", b" " * 5000, b"<unk>",
    "é𐍈́".encode(), b"0x10", b"1_000", "٣".encode(), b",", b"word" * 300_000,
]  # fmt: skip
SPECIAL = ("dangling", "loop", "folder", "pipe", "zero", "gone", "empty", "long name")
DTYPES = ["<f2", "<f4", "<f8", "<i4", "<i8", "|i1", "|u1", "|O", "|V6", ">f2", "<c8", "<M8[s]", "<U5", "|S3", "|b1",
          "x", 3, [("a", "<f4")]]  # fmt: skip


class TooSlow(BaseException):
    """A reading took longer than anybody waits; no reader takes it for a broken file."""


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.sentinel),))


def forget_words(prefix: Path, every: int = 1) -> None:
    """Let binarised text be of words that its dictionary doesn't have, as text that isn't cut into its pieces is."""
    code = Path(f"{prefix}.idx").read_bytes()[17]
    numbers = np.memmap(f"{prefix}.bin", _code_to_dtype[code], "r+")
    words = np.flatnonzero(numbers > 3)[::every]  # behind <s>, <pad>, </s> and <unk>
    numbers[words] = 3


def malicious(sentinel: Path, kind: int) -> bytes:
    """A pickle, or what holds one, that makes a folder; several forms by number."""
    evil, buffer = Malicious(sentinel), io.BytesIO()
    if kind < 6:
        return pickle.dumps({"features": evil, "model": {"w": evil}}, protocol=kind)
    if kind == 6:
        np.save(buffer, np.array([evil], dtype=object), allow_pickle=True)
    elif kind == 7:
        np.savez(buffer, features=np.array([evil], dtype=object))
    else:
        torch.save({"model": {"w": evil}}, buffer, _use_new_zipfile_serialization=kind == 8)
    return buffer.getvalue()


def _flipped(whole: bytes, random: Random) -> bytes:
    content, reach = bytearray(whole), random.choice([64, 256, len(whole)])
    for _ in range(random.choice([1, 1, 2, 5, 30])):
        if content:
            content[random.randrange(min(reach, len(content)))] = random.choice(
                [0, 1, 127, 128, 255, random.randrange(256)]
            )
    return bytes(content)


def _cut(whole: bytes, random: Random) -> bytes:
    return whole[: random.randrange(len(whole) + 1)]


def _grown(whole: bytes, random: Random) -> bytes:
    return random.choice(
        [whole + whole, whole + b"\0" * 512, whole + random.choice(ODD_BYTES), whole + random.randbytes(64)]
    )


def _moved(whole: bytes, random: Random) -> bytes:
    """A piece taken out, doubled, or put elsewhere."""
    start, stop = sorted(random.randrange(len(whole) + 1) for _ in range(2))
    rest, place = whole[:start] + whole[stop:], random.randrange(start + 1)
    return random.choice([rest, whole[:stop] + whole[start:], rest[:place] + whole[start:stop] + rest[place:]])


def _inserted(whole: bytes, random: Random) -> bytes:
    place, taken = random.randrange(len(whole) + 1), random.choice([0, 0, 1, 3])
    return whole[:place] + random.choice(ODD_BYTES) + whole[place + taken :]


def _renumbered(whole: bytes, random: Random) -> bytes:
    """A number of a text is another one."""
    found = list(re.finditer(random.choice([rb"-?\d+(\.\d+)?", rb"\d+"]), whole))
    if not found:
        return _inserted(whole, random)
    match = random.choice(found)
    other = random.choice([*map(str, HUGE), "nan", "inf", "1e999", "1e308", "0.5", "x", "", "9" * 5000]).encode()
    return whole[: match.start()] + other + whole[match.end() :]


def _noise(whole: bytes, random: Random) -> bytes:
    return random.choice([b"", whole[: random.choice([4, 8, 12])]]) + random.randbytes(random.choice([1, 40, 4096]))


def odd_json(content: Any, random: Random) -> Any:
    """The same content, one of whose values, wherever it stands, is another, missing or called otherwise."""
    content = copy.deepcopy(content)
    if not isinstance(content, dict | list) or not content:
        return random.choice(ODD_JSON)
    holder = content
    while True:
        place = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if isinstance(holder[place], dict | list) and holder[place] and random.random() < 0.6:
            holder = holder[place]
            continue
        what = random.random()
        if what < 0.15:
            del holder[place]
        elif what < 0.25 and isinstance(holder, dict):
            holder[random.choice(["x", "", "y" * 500, "\x1b[2J"])] = holder.pop(place)
        else:
            holder[place] = random.choice(ODD_JSON)
        return content


def _json(whole: bytes, random: Random) -> bytes:
    if random.random() < 0.1:
        depth = random.choice([100, 990, 5000, 100_000])
        return random.choice([b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth])
    try:
        content = json.loads(whole)
    except ValueError:  # lines of it
        lines = whole.splitlines(keepends=True)
        place = random.randrange(len(lines))
        changed = odd_json(json.loads(lines[place]), random)
        return b"".join([*lines[:place], _dumped(changed) + b"\n", *lines[place + 1 :]])
    for _ in range(random.choice([1, 1, 2])):
        content = odd_json(content, random)
    return _dumped(content)


def _dumped(content: Any) -> bytes:
    try:
        return json.dumps(content).encode()
    except ValueError:  # a number too long to be written in decimals
        return b"9" * 5000


def _npy(whole: bytes, random: Random) -> bytes:
    """An array with other things in its header, or of other numbers."""
    array = np.load(io.BytesIO(whole))
    if random.random() < 0.4:
        buffer = io.BytesIO()
        with np.errstate(all="ignore"):
            kind = random.choice(["<f2", "<f4", "<f8", "<i4", "<i8", "|u1", "|b1", "<c8", "|S3", "<U5"])
            other = random.choice(
                [
                    lambda: array.astype(kind),
                    lambda: array.T,
                    lambda: array[:0],
                    lambda: array[1:],
                    lambda: array[..., :1],
                    lambda: np.concatenate([array, array]),
                    lambda: array.reshape(-1),
                    lambda: np.full_like(array, random.choice([0, 1, 127])),
                    lambda: np.array(3),
                    lambda: np.full(array.shape, np.nan, array.dtype) if array.dtype.kind == "f" else -array - 1,
                    lambda: (
                        np.full(array.shape, np.iinfo(array.dtype).max) if array.dtype.kind in "iu" else array * 1e9
                    ),
                ]
            )()
        np.save(buffer, other)
        return buffer.getvalue()
    shape = random.choice(
        [array.shape, tuple(random.choice(HUGE) for _ in range(random.randrange(5))), "(", 0.5, [3], None]
    )
    fields = {"descr": random.choice(DTYPES), "fortran_order": random.choice([False, True, 3]), "shape": shape}
    header = repr(fields)
    header = random.choice([header, header, header[:-3], header + " " * 30 + "\n", "(" * 300 + ")" * 300, "{" * 9000])
    size = random.choice([len(header), len(header), 2**16 - 1]) & 0xFFFF
    version = random.choice([b"\x01\x00", b"\x01\x00", b"\x09\x09"])
    return b"\x93NUMPY" + version + struct.pack("<H", size) + header.encode() + whole[128:]


def _safetensors(whole: bytes, random: Random) -> bytes:
    length = struct.unpack("<Q", whole[:8])[0]
    if random.random() < 0.15:
        return struct.pack("<Q", random.choice([0, 1, 2**20, 2**62, 2**64 - 1])) + whole[8:]
    header = json.loads(whole[8 : 8 + length])
    if random.random() < 0.5:  # another type, of the same bytes or not
        name = random.choice([name for name in header if name != "__metadata__"])
        header[name]["dtype"] = random.choice(
            [
                "F64",
                "F16",
                "BF16",
                "I64",
                "I32",
                "I8",
                "U8",
                "U16",
                "U64",
                "BOOL",
                "F8_E4M3",
                "F8_E5M2",
                "F4",
                "C64",
                "x",
            ]
        )
        size = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
        header[name]["shape"] = random.choice(
            [header[name]["shape"], [size], [size // 2], [size // 8], [], [0], [2**62, 4]]
        )
        new = _dumped(header)
    else:
        new = _dumped(odd_json(header, random))
    return struct.pack("<Q", len(new)) + new + whole[8 + length :]


def _pickled(whole: bytes, random: Random) -> bytes:
    """What `torch.save` or a pickle holds, one of whose values is something else."""
    zipped, plain = whole[:2] == b"PK", False
    try:
        content = torch.load(io.BytesIO(whole), weights_only=True)
    except Exception:
        content, plain = pickle.loads(whole), True
    buffer = io.BytesIO()
    changed = _other_value(content, random)
    if plain:
        return pickle.dumps(changed, protocol=random.randrange(6))
    torch.save(changed, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def _other_value(content: Any, random: Random) -> Any:
    odd: list[Any] = [
        *(None, 3, -1, 10**30, True, 0.5, float("nan"), "x", "\x1b[2J", "y" * 100_000, b"bytes", np.ones(3)),
        *([], {}, [1, "a"], (), {3: 4}, {None: 1}, torch.ones(2), torch.ones(()), torch.ones(0)),
        torch.nn.Parameter(torch.ones(2)),
        *(torch.ones(3, dtype=kind) for kind in (torch.complex64, torch.int8, torch.float8_e4m3fn, torch.bool)),
        torch.ones(2, 3).to_sparse(), torch.full((3,), torch.nan), torch.ones(1).expand(2**40),
        torch.empty(2**40, device="meta"),
    ]  # fmt: skip
    if not isinstance(content, dict | list) or not content or random.random() < 0.1:
        return random.choice(odd)
    holder = content = copy.deepcopy(content)
    while True:
        place = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inside = holder[place]
        inside = vars(inside) if isinstance(inside, Namespace) else inside  # a model's settings, in a checkpoint
        if isinstance(inside, dict | list) and inside and random.random() < 0.8:
            holder = inside
            continue
        if random.random() < 0.1:
            del holder[place]
        elif isinstance(holder, dict) and random.random() < 0.1:
            holder[random.choice([None, 3, "x", "y" * 500])] = holder.pop(place)
        else:
            holder[place] = random.choice(odd)
        return content


ANY: list[Callable[[bytes, Random], bytes]] = [_flipped, _flipped, _cut, _grown, _moved, _inserted, _noise]
TEXT: list[Callable[[bytes, Random], bytes]] = [
    _inserted,
    _inserted,
    _inserted,
    _renumbered,
    _renumbered,
    _moved,
    _cut,
    _flipped,
    _noise,
]
OF_SUFFIX: dict[str, list[Callable[[bytes, Random], bytes]]] = {
    ".json": [_json] * 12 + TEXT[3:],
    ".jsonl": [_json] * 8 + TEXT,
    ".npy": [_npy] * 8 + ANY,
    ".safetensors": [_safetensors] * 8 + ANY,
    ".pt": [_pickled] * 12 + ANY,
    ".pkl": [_pickled] * 6 + ANY,
    **dict.fromkeys((".txt", ".tsv", ".csv", ".xml", ".conll", ".vec"), TEXT),
}


@st.composite
def damaged(draw: Any, whole: bytes, suffix: str, sentinel: Path) -> bytes:
    """A broken file made of a sound one, by what its name says that it is."""
    random = Random(draw(st.integers(0, 2**32 - 1)))
    kinds = OF_SUFFIX.get(suffix, ANY)
    kind = draw(st.integers(0, len(kinds)))
    if kind == len(kinds):
        return malicious(sentinel, random.randrange(10))
    return kinds[kind](whole, random)


def replace_by(path: Path, special: str) -> None:
    """Put something that is no plain file, or none that can be opened, in a file's place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    if special == "dangling":
        path.symlink_to(path.with_name("is not here"))
    elif special == "loop":
        path.symlink_to(path.name)
    elif special == "folder":
        path.mkdir()
    elif special == "pipe":
        os.mkfifo(path)
    elif special == "zero":
        path.symlink_to("/dev/zero")
    elif special == "empty":
        path.touch()
    elif special == "long name":
        path.symlink_to("x" * 255 + "/" + "y" * 255)


@contextmanager
def watched(folder: Path, seconds: float = SECONDS) -> Iterator[None]:
    """End a reading that takes too long, also where a library waits for a pipe, and refuse it too much memory."""
    done = threading.Event()

    def open_pipes() -> None:
        if done.wait(seconds - 1):
            return
        for path in folder.rglob("*"):
            if stat.S_ISFIFO(path.lstat().st_mode):
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    def too_slow(*_: object) -> None:
        raise TooSlow(f"it took more than {seconds} seconds")

    watch = threading.Thread(target=open_pipes, daemon=True)
    before, limits = signal.signal(signal.SIGALRM, too_slow), resource.getrlimit(resource.RLIMIT_AS)
    claimed = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (claimed + ROOM, limits[1]))
    watch.start()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        done.set()
        watch.join()


def check_message(message: str) -> None:
    """One line, not long, that a terminal shows as it is."""
    assert 20 < len(message) < LETTERS, f"a message of {len(message)} letters: {message[:300]}"
    odd = {letter for letter in message if category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not odd, f"a message with {odd}: {message[:300]!r}"


def try_to_read(read: Callable[[], Any], folder: Path) -> bool:
    """It works, or says in plain words why not; soon and in little memory. True where it works."""
    peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    works = False
    with watched(folder):
        try:
            read()
            works = True
        except InputError as error:
            check_message(str(error))
    took, grew = time.monotonic() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024
    assert took < SECONDS - 1, f"it took {took:.1f} s"
    assert grew < BYTES, f"it took {grew / 2**20:.0f} MiB"
    return works
