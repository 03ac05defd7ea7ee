"""One job writes an output: others are refused, its ranks share the work, and no lock outlives its process."""

import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run_command

from visual_grounding.errors import InputError
from visual_grounding.storage import writers as writers_module
from visual_grounding.storage.artefact import read_meta
from visual_grounding.storage.ranks import Rank
from visual_grounding.storage.shards import ShardedArtefact
from visual_grounding.storage.writers import Writers

# Writes 10 rows in 5 shards as rank NUMBER of WORLD, and does what it is told before one of its steps.
PROGRAM = """
import os, signal, sys, time
import numpy as np
from visual_grounding.errors import InputError
from visual_grounding.storage import writers
from visual_grounding.storage.ranks import Rank
from visual_grounding.storage.shards import ShardedArtefact

out, number, world, job, how = sys.argv[1:]
writers.POLL_SECONDS, writers.START_SECONDS = 0.01, 2.0 if how == "impatient" else 300.0
rank = Rank(int(number), int(world), job)

def die():
    while not artefact._writers.others():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

try:
    artefact = ShardedArtefact(out, "test", {"seed": 1}, 10, 2, {"a": ((), "int32")}, rank)
    if how == "hold":
        print("holding", flush=True)
        sys.stdin.read()
    if not artefact.finished:
        for shard in artefact.missing():
            if how == f"die before {shard.number}":
                die()
            rows = np.arange(shard.start, shard.stop)
            artefact.write(shard, {"a": rows * rows}, {"rank": int(number)})
        notes = artefact.notes()
        if how == "die before publishing":
            die()
        artefact.add_lines("keys.txt", map(str, range(10)))
        artefact.publish({"shards": len(notes)})
    assert os.path.exists(os.path.join(out, "meta.json"))
except InputError as error:
    print(error)
    sys.exit(2)
"""


def start(out: Path, number: int = 0, world: int = 1, job: str = "job", how: str = "") -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    arguments = [str(out), str(number), str(world), job, how]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def make(out: Path, rank: Rank | None = None) -> ShardedArtefact:
    return ShardedArtefact(out, "test", {"seed": 1}, 10, 2, {"a": ((), "int32")}, rank)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_second_process_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    first = start(tmp_path / "out", how="hold", job="first")
    assert first.stdout is not None and first.stdout.readline() == "holding\n"
    lock = tmp_path / "out.partial/locks/rank-0"
    message = (
        f"out.partial is being written by another process: {first.pid} on host {socket.gethostname()} "
        f"(it holds the lock {lock}). Wait until it has finished, stop it, or choose another folder."
    )
    with pytest.raises(InputError, match=re.escape(message)):
        make(tmp_path / "out")
    with pytest.raises(InputError, match=re.escape(message)):  # a rank of another job
        make(tmp_path / "out", Rank(1, 2, "second"))
    with pytest.raises(InputError, match=re.escape(message)):  # the same rank once more
        make(tmp_path / "out", Rank(0, 1, "first"))
    assert end(first)[0] == 0  # undisturbed
    assert make(tmp_path / "out").finished
    assert not (tmp_path / "out.partial").exists()


def test_second_command_is_refused_with_status_2(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.ones((3, 4), np.float32))
    (tmp_path / "keys.txt").write_text("a\nb\nc\n")
    first = Writers.join(tmp_path / "store.partial", Rank(0, 1, "first"))
    flags = ["--arrays", tmp_path / "f.npy", "--keys", tmp_path / "keys.txt", "--out", tmp_path / "store"]
    done = run_command("visual-grounding", "import", *flags)
    assert done.returncode == 2
    said = f"visual-grounding import: {tmp_path / 'store.partial'} is being written by another process: {os.getpid()} "
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1
    first.leave()
    assert run_command("visual-grounding", "import", *flags).returncode == 0


def test_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    first = start(tmp_path / "out", how="hold")
    assert first.stdout is not None and first.stdout.readline() == "holding\n"
    first.kill()
    end(first)
    assert json.loads((tmp_path / "out.partial/locks/rank-0").read_text())["pid"] == first.pid
    assert not make(tmp_path / "out").finished


def test_writer_in_the_same_process_continues_and_frees_the_lock_with_the_last(tmp_path: Path) -> None:
    first, second = make(tmp_path / "out"), make(tmp_path / "out")
    del first
    third = start(tmp_path / "out")
    assert end(third)[0] == 2
    del second
    assert end(start(tmp_path / "out"))[0] == 0


def test_ranks_write_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    assert end(start(tmp_path / "one"))[0] == 0
    expected = content_of(tmp_path / "one")
    np.testing.assert_array_equal(np.load(tmp_path / "one/a.npy"), np.arange(10) ** 2)
    for world in (2, 7):  # 7: two ranks have no shard
        out = tmp_path / f"ranks{world}"
        ranks = [start(out, number, world) for number in range(world)]
        assert [end(rank)[0] for rank in ranks] == [0] * world
        assert content_of(out) == expected
        assert not out.with_name(out.name + ".partial").exists()


@pytest.mark.parametrize(
    ("number", "how", "message"),
    [
        (1, "die before 3", "rank 0 waited for the shards of rank 1, which ended before that. What is done stays"),
        (0, "die before publishing", "rank 1 waited for the finished output of rank 0, which ended before that"),
    ],
)
def test_ranks_stop_when_another_dies_and_any_number_continues(
    tmp_path: Path, number: int, how: str, message: str
) -> None:
    ranks = [start(tmp_path / "out", n, 2, how=how if n == number else "") for n in range(2)]
    ended = [end(rank) for rank in ranks]
    assert ended[number][0] == -9
    status, out, err = ended[1 - number]
    assert status == 2 and message in out
    assert err == f"rank {1 - number} waits for rank {number}.\n"
    with pytest.raises(InputError, match=r"only .*out\.partial exists"):
        read_meta(tmp_path / "out", "test")
    ranks = [start(tmp_path / "out", number, 3, job="other") for number in range(3)]
    assert [end(rank)[0] for rank in ranks] == [0, 0, 0]
    assert end(start(tmp_path / "one"))[0] == 0
    assert content_of(tmp_path / "out") == content_of(tmp_path / "one")


def test_rank_stops_when_another_never_starts(tmp_path: Path) -> None:
    status, out, _ = end(start(tmp_path / "out", 0, 2, how="impatient"))
    assert status == 2
    assert "rank 0 waited for the shards of rank 1, which hasn't started for 2 s" in out


def test_rank_that_starts_after_all_is_published_finds_it_finished(tmp_path: Path) -> None:
    assert end(start(tmp_path / "out"))[0] == 0
    assert end(start(tmp_path / "out", 1, 2))[0] == 0
    assert not (tmp_path / "out.partial").exists()


def test_rank_refuses_another_plan_while_others_work(tmp_path: Path) -> None:
    first = start(tmp_path / "out", 0, 2, how="hold")
    assert first.stdout is not None and first.stdout.readline() == "holding\n"
    with pytest.raises(InputError, match=r"was made with other choices \(seed was 1, now 2\)"):
        ShardedArtefact(tmp_path / "out", "test", {"seed": 2}, 10, 2, {"a": ((), "int32")}, Rank(1, 2, "job"))
    first.kill()
    first.communicate()


def test_finished_output_leaves_a_live_writers_folder_alone(tmp_path: Path) -> None:
    assert end(start(tmp_path / "out"))[0] == 0
    partial = tmp_path / "out.partial"
    lock = Writers.join(partial, Rank(0, 1, "still cleaning"))
    assert end(start(tmp_path / "out"))[0] == 0
    assert (partial / "locks/rank-0").exists()
    lock.leave()
    assert end(start(tmp_path / "out"))[0] == 0
    assert not partial.exists()


def test_file_system_without_locks_warns_one_process_and_refuses_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(InputError, match=r"ranks\.partial is on a file system without file locks, which several ranks"):
        make(tmp_path / "ranks", Rank(0, 2, "job"))
    artefact = make(tmp_path / "out")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "warning: " in err and "make sure that no other process writes it" in err
    for shard in artefact.missing():
        artefact.write(shard, {"a": np.zeros(2)})
    artefact.publish({})
    assert make(tmp_path / "out").finished


def test_folder_of_locks_is_made_again_when_it_vanishes_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = os.mkdir, []

    def removed_by_whoever_publishes(path: Path, *mode: int) -> None:
        if Path(path).name == "locks" and len(failed) < 3:
            failed.append(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        real(path, *mode)

    monkeypatch.setattr(os, "mkdir", removed_by_whoever_publishes)
    assert Writers.join(tmp_path / "out.partial", Rank(0, 1, "job")).still_holds()
    assert len(failed) == 3
    with pytest.raises(InputError, match=r"/proc/out\.partial can't be written: No such file or directory"):
        make(Path("/proc/out"))


def test_locks_are_asked_for_again_when_their_folder_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = fcntl.flock, []

    def remove_once(file: int, how: int) -> None:
        if not removed:
            removed.append(True)
            (tmp_path / "out.partial/locks/gate").unlink()
            (tmp_path / "out.partial/locks").rmdir()
        real(file, how)

    monkeypatch.setattr(writers_module.fcntl, "flock", remove_once)
    writers = Writers.join(tmp_path / "out.partial", Rank(0, 1, "job"))
    assert removed and writers.still_holds()
