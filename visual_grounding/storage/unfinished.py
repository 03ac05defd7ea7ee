"""What lies in an output that isn't finished, `OUT.partial/`: the one place that knows.

files/                what will be published: every array in its full size from the start, filled shard by shard
shards/               where the number of rows isn't known beforehand: each shard's files, 000007.name, joined in files/
progress/plan.json    the plan: every choice and input that decides the bytes
progress/000007.json  shard 7 is done; in it, what was noted with the shard
locks/                who writes (`writers.py`)
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, in_short
from .artefact import PARTIAL
from .outside import read_json


class Shard(NamedTuple):
    """Rows `start` to `stop` (exclusive) of an artefact's arrays: what is done between two points of saving."""

    number: int
    start: int
    stop: int


class Unfinished:
    """The folder that an output grows in, whether it is there or not. Reads only.

    Args:
        out: where the finished artefact will be; `.` and `..` go by their real names.

    Attributes:
        out: the same, by its name.
        folder: OUT.partial.
        files, shards, progress, plan_file: in it, as above.

    Raises:
        InputError: `out` is the root of all folders.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out) if Path(out).name not in ("", "..") else Path(out).resolve()
        if not self.out.name:
            raise InputError(f"{out} should be a folder of its own, but is the root of all. Choose one in it.", "out")
        self.folder = self.out.with_name(self.out.name + PARTIAL)
        self.files = self.folder / "files"
        self.shards = self.folder / "shards"
        self.progress = self.folder / "progress"
        self.plan_file = self.progress / "plan.json"

    def marker(self, shard: int) -> Path:
        """The file that says that a shard is done."""
        return self.progress / f"{shard:06d}.json"

    def done(self) -> set[int]:
        """Numbers of the shards that are done."""
        return {int(path.stem) for path in self.progress.glob("*.json") if path.stem.isdecimal()}

    def plan(self) -> dict[str, Any]:
        """The plan, with the format.

        Raises:
            InputError: it is broken, or isn't there.
        """
        return self.read(self.plan_file)

    def shard_count(self) -> int | None:
        """How many shards the output will have; None where its plan doesn't tell."""
        try:
            plan = self.plan()
            return -(-plan["rows"] // plan["shard_size"])
        except (InputError, KeyError, TypeError, ArithmeticError):
            return None

    def read(self, path: Path) -> dict[str, Any]:
        """The plan, or what was noted with a shard.

        Raises:
            InputError: it is broken.
        """
        try:
            content = read_json(path)
            if isinstance(content, dict):
                return content
            reason = f"it holds a {type(content).__name__}"
        except (OSError, ValueError) as error:
            reason = in_short(error)
        raise InputError(f"{path} should say what was done before, but is broken: {reason}. Delete {self.folder}.")

    def claimed(self) -> int:
        """Bytes that it took from the disk already, as far as they will be published."""
        found = (path for folder in (self.files, self.shards) for path in folder.rglob("*"))
        sizes = [path.stat() for path in found if path.is_file()]
        return sum(min(size.st_blocks * 512, size.st_size) for size in sizes)


def shards_of(rows: int, shard_size: int) -> Iterator[Shard]:
    """Cut rows into shards."""
    for number, start in enumerate(range(0, rows, shard_size)):
        yield Shard(number, start, min(start + shard_size, rows))
