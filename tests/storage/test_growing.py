"""Shards of any number and size: killed anywhere, a rerun gives the same bytes, also of several ranks."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from faults.steps import killed_at_each_step

from visual_grounding.errors import InputError
from visual_grounding.storage import growing, shards
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.growing import GrowingArtefact
from visual_grounding.storage.ranks import Rank

LINES = [["one", "two"], [], ["three"]]  # of each shard
PUBLISHED = ["lines.txt", "meta.json", "offsets.npy", "values.npy"]


def open_out(out: Path, rank: Rank | None = None, **plan: object) -> GrowingArtefact:
    arrays = {"values": ((2,), "int32"), "lengths": ((), "int64")}
    return GrowingArtefact(out, "test", {"seed": 1, **plan}, arrays, ["lines.txt"], ["values"], rank)


def add(artefact: GrowingArtefact, number: int) -> None:
    lines = LINES[number]
    values = np.full((3 * len(lines), 2), number)
    artefact.add(number, {"values": values, "lengths": [3] * len(lines)}, {"lines.txt": lines}, {"lines": len(lines)})


def publish(artefact: GrowingArtefact) -> None:
    artefact.end(len(LINES))
    count = sum(note["lines"] for note in artefact.notes(lines=int))
    artefact.join_array("values", 3 * count)
    lengths = (np.concatenate([[0], np.cumsum(np.concatenate(list(artefact.blocks("lengths"))))]),)
    artefact.add_array("offsets", (count + 1,), "int64", lengths)
    artefact.join_text("lines.txt")
    artefact.publish({"lines": count})


def make(out: Path) -> None:
    artefact = open_out(out)
    if not artefact.finished:
        for number in range(len(LINES)):
            if artefact.lacks(number):
                add(artefact, number)
        publish(artefact)


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_growing_artefact_joins_its_shards(tmp_path):
    make(tmp_path / "out")
    assert sorted(content_of(tmp_path / "out")) == PUBLISHED
    assert np.load(tmp_path / "out/values.npy").tolist() == [[0, 0]] * 6 + [[2, 2]] * 3
    assert np.load(tmp_path / "out/offsets.npy").tolist() == [0, 3, 6, 9]
    assert (tmp_path / "out/lines.txt").read_text() == "one\ntwo\nthree\n"
    assert not (tmp_path / "out.partial").exists() and open_out(tmp_path / "out").finished


def test_what_is_joined_and_added_comes_with_the_digest_of_its_file(tmp_path):
    artefact = open_out(tmp_path / "out")
    for number in range(len(LINES)):
        add(artefact, number)
    artefact.end(len(LINES))
    added = artefact.add_array("offsets", (2,), "int64", [np.arange(2)])
    said = {
        "values.npy": artefact.join_array("values", 9),
        "offsets.npy": added,
        "lines.txt": artefact.join_text("lines.txt"),
    }
    assert said == {name: sha256_of_file(artefact.files / name) for name in said}


def test_growing_artefact_continues_to_the_same_bytes_when_killed_at_any_step(tmp_path):
    make(tmp_path / "whole")
    steps = [
        (os, "fsync"),
        (growing, "array_header"),
        (shards, "write_json"),
        (Path, "rename"),
        (shards.shutil, "rmtree"),
    ]
    killed, out = 0, [tmp_path / "out1"]
    for killed in killed_at_each_step(lambda: make(out[-1]), *steps):
        make(out[-1])
        assert content_of(out[-1]) == content_of(tmp_path / "whole")
        out.append(tmp_path / f"out{killed + 1}")
    assert killed > 30


def test_growing_artefact_of_two_ranks_is_the_same(tmp_path):
    make(tmp_path / "one")
    ranks = [open_out(tmp_path / "two", Rank(number, 2, "job")) for number in (0, 1)]
    for number in range(len(LINES)):
        assert [rank.lacks(number) for rank in ranks] == [number % 2 == 0, number % 2 == 1]
        add(ranks[number % 2], number)
    with ThreadPoolExecutor() as pool:  # each waits for the other
        for done in [pool.submit(publish, rank) for rank in ranks]:
            done.result()
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@pytest.mark.parametrize("counts", [(2, 3), (3, 2)])
def test_ranks_that_read_more_or_less_are_refused_and_none_waits_for_ever(tmp_path, counts):
    """Whoever read less would wait for the finished output, and the other for shards that nobody makes."""
    ranks = [open_out(tmp_path / "out", Rank(number, 2, "job")) for number in (0, 1)]

    def read(rank: GrowingArtefact, count: int) -> None:
        for number in range(count):
            if rank.lacks(number):
                add(rank, number)
        rank.end(count)
        rank.notes(lines=int)
        rank.publish({})

    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(read, *each) for each in zip(ranks, counts)]
        said = [str(job.exception(timeout=60)) for job in jobs]
    refused = [each for each in said if "all ranks should read the same text, but" in each]
    assert len(refused) == 2 or (len(refused) == 1 and any("begun with a longer text" in each for each in said)), said
    assert not (tmp_path / "out").exists()


def test_growing_artefact_does_only_what_is_missing(tmp_path):
    artefact = open_out(tmp_path / "out")
    add(artefact, 1)
    again = open_out(tmp_path / "out")
    assert [again.lacks(number) for number in range(3)] == [True, False, True]
    assert again.done_with(1)["lines"] == 0 and again.done_with(0) is None


def test_growing_artefact_of_a_shorter_text_is_refused(tmp_path):
    artefact = open_out(tmp_path / "out")
    add(artefact, 2)
    with pytest.raises(InputError, match="begun with a longer text: it has 3 parts, this one only 2"):
        artefact.end(2)


def test_growing_artefact_whose_shard_vanished_is_refused(tmp_path):
    artefact = open_out(tmp_path / "out")
    add(artefact, 0)
    (tmp_path / "out.partial/shards/000000.lines.txt").write_text("one")
    with pytest.raises(InputError, match="doesn't hold what was written there before"):
        open_out(tmp_path / "out")


def test_growing_artefact_whose_header_says_fewer_rows_is_refused(tmp_path):
    """Its file has the size that it had."""
    artefact = open_out(tmp_path / "out")
    add(artefact, 0)
    path = tmp_path / "out.partial/shards/000000.lengths.npy"
    path.write_bytes(path.read_bytes().replace(b"(2,)", b"(1,)"))
    with pytest.raises(InputError, match=r"doesn't hold what was written there before. Delete .*out\.partial"):
        open_out(tmp_path / "out")


def test_growing_artefact_of_other_choices_is_refused(tmp_path):
    make(tmp_path / "out")
    with pytest.raises(InputError, match="seed was 1, now 2"):
        open_out(tmp_path / "out", seed=2)


def test_growing_artefact_refuses_arrays_of_another_shape(tmp_path):
    artefact = open_out(tmp_path / "out")
    with pytest.raises(ValueError, match=r"shard 0 of values should have rows \(2,\), but has shape \(1, 3\)"):
        artefact.add(0, {"values": np.zeros((1, 3)), "lengths": []}, {"lines.txt": []})
    with pytest.raises(RuntimeError, match="nobody said how many shards"):
        list(artefact.shards())
    add(artefact, 0)
    artefact.end(1)
    with pytest.raises(InputError, match="should have 7 rows of values in its parts, but has 6: it was damaged"):
        artefact.join_array("values", 7)
