"""Shard by shard: killed anywhere, a rerun gives the same bytes, and a partial never looks finished."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage import shards as shards_module
from visual_grounding.storage.artefact import read_meta
from visual_grounding.storage.shards import Shard, ShardedArtefact

# Two arrays of 10 rows in shards of 4, 4, 2. A step is a write to an array, a JSON file made whole, or a folder
# removed. Every run is a forked process that exits, as a kill would, at its step `kill_at`: before it, or with the file
# half-written.
PROGRAM = """
import os, sys
import numpy as np
from visual_grounding.storage import shards

steps = kill_at = 0

def step():
    global steps
    steps += 1
    if steps == kill_at:
        os._exit(9)

def before(function):
    def stepping(*arguments, **options):
        step()
        return function(*arguments, **options)
    return stepping

whole_json = shards.write_json
def write_json(path, content):
    step()
    if steps + 1 == kill_at:
        path.with_name(path.name + ".tmp").write_text("{ha")
    step()
    whole_json(path, content)

class HalfWritten(np.ndarray):
    def tobytes(self):
        content = super().tobytes()
        return content[: len(content) // 2] if steps + 1 == kill_at else content

contiguous = np.ascontiguousarray
np.ascontiguousarray = lambda *arguments, **options: contiguous(*arguments, **options).view(HalfWritten)
shards.write_json = write_json
os.fdatasync = before(os.fdatasync)
shards.shutil.rmtree = before(shards.shutil.rmtree)

def make(out):
    arrays = {"a": ((3,), "float32"), "b": ((), "int32")}
    artefact = shards.ShardedArtefact(out, "test", {"seed": 1}, rows=10, shard_size=4, arrays=arrays)
    if not artefact.finished:
        for shard in artefact.missing():
            rng = np.random.default_rng(shard.number)
            rows = shard.stop - shard.start
            block = {"a": rng.normal(size=(rows, 3)), "b": rng.integers(0, 99, rows)}
            artefact.write(shard, block, {"first": int(block["b"][0])})
        artefact.add_lines("keys.txt", map(str, range(10)))
        artefact.publish({"sum": sum(note["first"] for note in artefact.notes())})

for line in sys.stdin:
    out, number = line.split()
    child = os.fork()
    if child == 0:
        kill_at = int(number)
        make(out)
        os._exit(100 + steps)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
KILLED = 9
STEPS = 19  # 2 folders cleared, plan 2, 3 shards of 4 (2 arrays, marker 2), meta 2, 1 folder removed


def run_program(runs: list[tuple[Path, int]]) -> list[int]:
    """Exit status of each run: 9 where it was killed, else 100 + its steps."""
    lines = "".join(f"{out} {kill_at}\n" for out, kill_at in runs)
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=lines, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return [int(line) for line in done.stdout.split()]


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make(
    out: Path, plan: dict | None = None, rows: int = 5, shard_size: int = 2, kind: str = "test"
) -> ShardedArtefact:
    return ShardedArtefact(out, kind, plan or {"seed": 1}, rows, shard_size, {"a": ((2,), "float32")})


def fill(artefact: ShardedArtefact, shard: Shard) -> None:
    artefact.write(shard, {"a": np.full((shard.stop - shard.start, 2), shard.number + 1)})


def test_artefact_continues_to_the_same_bytes_when_killed_at_any_step(tmp_path: Path) -> None:
    kills = range(1, STEPS + 1)
    first = run_program([(tmp_path / "whole", 0), *((tmp_path / f"killed{kill_at}", kill_at) for kill_at in kills)])
    assert first == [100 + STEPS, *[KILLED] * STEPS]
    expected = content_of(tmp_path / "whole")
    assert sorted(expected) == ["a.npy", "b.npy", "keys.txt", "meta.json"]
    assert expected["keys.txt"] == b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    for kill_at in range(1, STEPS):
        with pytest.raises(InputError, match=r"only .*\.partial exists|there is no"):
            read_meta(tmp_path / f"killed{kill_at}", "test")
    assert content_of(tmp_path / f"killed{STEPS}") == expected  # killed after the rename: it is whole

    second = run_program([(tmp_path / f"killed{kill_at}", 0) for kill_at in kills])
    assert all(status >= 100 for status in second)
    assert second[-2] < second[10] < second[0]  # the later it was killed, the less is left to do
    for kill_at in kills:
        assert content_of(tmp_path / f"killed{kill_at}") == expected
        assert not (tmp_path / f"killed{kill_at}.partial").exists()


def test_artefact_does_only_what_is_missing_when_rerun(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    shards = list(artefact.missing())
    assert shards == [Shard(0, 0, 2), Shard(1, 2, 4), Shard(2, 4, 5)]
    fill(artefact, shards[1])
    again = make(tmp_path / "out")
    assert [shard.number for shard in again.missing()] == [0, 2]
    for shard in again.missing():
        fill(again, shard)
    again.publish({})
    np.testing.assert_array_equal(np.load(tmp_path / "out/a.npy")[:, 0], [1, 1, 2, 2, 3])
    assert make(tmp_path / "out").finished


def test_notes_come_back_in_order_also_from_an_earlier_run(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    for shard in reversed(list(artefact.shards())):
        artefact.write(shard, {"a": np.zeros((shard.stop - shard.start, 2))}, {"number": shard.number})
    assert [note["number"] for note in make(tmp_path / "out").notes()] == [0, 1, 2]


def test_artefact_names_the_choice_that_differs_when_it_is_unfinished(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out", {"pool": "mean", "seed": 1})
    fill(artefact, next(artefact.missing()))
    with pytest.raises(InputError, match=r"out\.partial was made with other choices \(pool was 'mean', now 'max'\)"):
        make(tmp_path / "out", {"pool": "max", "seed": 1})
    with pytest.raises(InputError, match=r"shard_size was 2, now 3"):
        make(tmp_path / "out", {"pool": "mean", "seed": 1}, shard_size=3)


def test_artefact_says_in_words_what_a_digest_is_of(tmp_path: Path) -> None:
    digests = {name: digit * 64 for name, digit in (("text_sha256", "0"), ("stop_words_sha256", "1"), ("arrays", "2"))}
    plan = {**digests, "boxes": "bbox", "exclude_sha256": None}
    artefact = make(tmp_path / "out", plan)
    fill(artefact, next(artefact.missing()))
    now = {**dict.fromkeys(digests, "f" * 64), "boxes": "e" * 64, "exclude_sha256": "d" * 64}
    with pytest.raises(InputError) as refused:
        make(tmp_path / "out", now)
    assert (
        "(other arrays; boxes was 'bbox', now '" + "e" * 64 + "'; other images to exclude; other stop words; another "
        "text). Choose another folder" in str(refused.value)
    )


def test_artefact_names_the_choice_that_differs_when_it_is_finished(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    for shard in artefact.missing():
        fill(artefact, shard)
    artefact.publish({})
    with pytest.raises(InputError, match=r"out was made with other choices \(rows was 5, now 6\)"):
        make(tmp_path / "out", rows=6)
    with pytest.raises(
        InputError, match=r"out should be of kind vokens, but is of kind test\. Choose another folder\.$"
    ):
        make(tmp_path / "out", {"pool": "max"}, rows=6, kind="vokens")


def test_artefact_starts_again_by_another_plan_when_no_shard_was_finished(tmp_path: Path) -> None:
    make(tmp_path / "out", rows=500)
    artefact = make(tmp_path / "out", {"seed": 2})
    for shard in artefact.missing():
        fill(artefact, shard)
    artefact.publish({})
    assert np.load(tmp_path / "out/a.npy").shape == (5, 2)


def test_artefact_starts_again_when_its_result_was_deleted_before_the_rest_was_cleaned(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    for shard in artefact.missing():
        fill(artefact, shard)
    (tmp_path / "out.partial/files").rename(tmp_path / "elsewhere")
    assert len(list(make(tmp_path / "out").missing())) == 3


def test_artefact_refuses_a_folder_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/photo.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match=r"out exists and isn't a finished test\. Choose another folder"):
        make(tmp_path / "out")
    assert (tmp_path / "out/photo.jpg").exists()


def test_artefact_refuses_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"exists and isn't a finished test"):
        make(Path("."))


def test_publish_refuses_when_shards_are_missing(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    fill(artefact, next(artefact.missing()))
    with pytest.raises(RuntimeError, match=r"shards \[1, 2\] are missing, 2 in all"):
        artefact.publish({})
    assert not (tmp_path / "out").exists()


def test_write_refuses_a_block_of_another_shape(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    with pytest.raises(ValueError, match=r"shard 0 of a should have shape \(2, 2\), but has \(3, 2\)"):
        artefact.write(Shard(0, 0, 2), {"a": np.zeros((3, 2))})


def test_array_header_is_plain_when_sizes_are_numpy_integers(tmp_path: Path) -> None:
    artefact = ShardedArtefact(tmp_path / "out", "test", {}, 1, 1, {"a": ((np.int64(2),), "float32")})
    artefact.write(Shard(0, 0, 1), {"a": np.ones((1, 2))})
    assert np.load(tmp_path / "out.partial/files/a.npy").shape == (1, 2)


def test_full_disk_is_told_at_the_start_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import sys, resource, pathlib\n"
        "from visual_grounding.storage.shards import ShardedArtefact\n"
        "from visual_grounding.errors import InputError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try: ShardedArtefact(sys.argv[1], 'test', {}, 1000, 10, {'a': ((1000,), 'float32')})\n"
        "except InputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "out")], capture_output=True, text=True)
    assert "out.partial can't be written: File too large" in done.stdout, done.stderr
    assert not (tmp_path / "out.partial/files").exists()


def test_full_disk_while_writing_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artefact = make(tmp_path / "out")
    shards = list(artefact.missing())
    fill(artefact, shards[0])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(InputError, match=r"a\.npy can't be written: No space left on device\. What is done stays"):
            fill(artefact, shards[1])
    with monkeypatch.context() as patch:
        patch.setattr(shards_module, "write_json", full)
        with pytest.raises(InputError, match=r"000001\.json can't be written: No space left on device"):
            fill(artefact, shards[1])
    for shard in shards[1:]:
        fill(artefact, shard)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"keys\.txt can't be written: No space left on device"):
            artefact.add_lines("keys.txt", ["a"])
        with pytest.raises(InputError, match=r"out can't be written: No space left on device"):
            artefact.publish({})
    assert not (tmp_path / "out").exists()
    again = make(tmp_path / "out")
    assert list(again.missing()) == []
    again.publish({})
    assert make(tmp_path / "out").finished


def test_output_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"out\.partial can't be written: Not a directory"):
        make(tmp_path / "file/out")


def test_artefact_names_what_is_broken_in_a_partial(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    for shard in artefact.missing():
        artefact.write(shard, {"a": np.zeros((shard.stop - shard.start, 2))}, {"empty": 1})
    marker = tmp_path / "out.partial/progress/000001.json"
    for content, message in (
        ('{"empty": -1}', r"000001\.json should have a count as 'empty', but has -1\. Delete its folder"),
        ("{}", r"000001\.json should have a count as 'empty', but has nothing"),
        (
            "[1]",
            r"000001\.json should say what was done before, but is broken: it holds a list\. Delete .*out\.partial",
        ),
        ("{", r"000001\.json should say what was done before, but is broken: Expecting"),
    ):
        marker.write_text(content)
        with pytest.raises(InputError, match=message):
            artefact.notes(empty=int)
    os.truncate(tmp_path / "out.partial/files/a.npy", 130)
    with pytest.raises(InputError, match=r"files doesn't hold what was written there before\. Delete .*out\.partial"):
        make(tmp_path / "out")
    (tmp_path / "out.partial/progress/plan.json").write_text("x")
    with pytest.raises(InputError, match=r"plan\.json should say what was done before, but is broken"):
        make(tmp_path / "out")


@pytest.mark.parametrize("late", [False, True])
def test_a_damaged_header_is_found_before_anything_is_published(tmp_path: Path, late: bool) -> None:
    """Of the same size, so that lengths tell nothing; in an earlier run's files, or while this one goes on."""
    artefact = make(tmp_path / "out")
    shards = list(artefact.missing())
    fill(artefact, shards[0])
    path = tmp_path / "out.partial/files/a.npy"
    if late:
        for shard in shards[1:]:
            fill(artefact, shard)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"<f", b">f", 1))
    assert path.read_bytes() != whole and path.stat().st_size == len(whole)
    with pytest.raises(InputError, match=r"files doesn't hold what was written there before\. Delete .*out\.partial"):
        artefact.publish({}) if late else make(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_artefact_refuses_a_finished_output_whose_array_was_cut_short(tmp_path: Path) -> None:
    artefact = make(tmp_path / "out")
    for shard in artefact.missing():
        fill(artefact, shard)
    artefact.publish({})
    os.truncate(tmp_path / "out/a.npy", 130)
    with pytest.raises(InputError, match=r"out/a\.npy should be a plain \.npy array, but can't be read"):
        make(tmp_path / "out")


@pytest.mark.parametrize("number", [0, 1])
def test_one_rank_of_a_job_says_that_nothing_is_to_be_done(tmp_path, monkeypatch, capsys, number):
    artefact = ShardedArtefact(tmp_path / "out", "test", {}, 1, 1, {"a": ((2,), "float32")})
    for shard in artefact.missing():
        artefact.write(shard, {"a": np.zeros((1, 2), np.float32)}, {})
    artefact.publish({})
    for name, value in (("RANK", number), ("WORLD_SIZE", 2), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", 1)):
        monkeypatch.setenv(name, str(value))
    assert ShardedArtefact(tmp_path / "out", "test", {}, 1, 1, {"a": ((2,), "float32")}).finished
    assert ("nothing was done" in capsys.readouterr().err) == (number == 0)
