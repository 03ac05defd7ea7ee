"""The layout of an unfinished output, as the writer makes it and everybody else reads it."""

from pathlib import Path

import numpy as np
import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.shards import ShardedArtefact
from visual_grounding.storage.unfinished import Unfinished


def test_layout_is_read_as_it_is_written(tmp_path: Path) -> None:
    artefact = ShardedArtefact(tmp_path / "out", "test", {"seed": 1}, 10, 4, {"a": ((), "int32")})
    for shard in list(artefact.missing())[:2]:
        artefact.write(shard, {"a": np.arange(shard.start, shard.stop)}, {"first": shard.start})
    unfinished = Unfinished(tmp_path / "out")
    assert unfinished.folder == tmp_path / "out.partial"
    assert unfinished.plan() == {"format": "test", "seed": 1, "rows": 10, "shard_size": 4}
    assert (unfinished.done(), unfinished.shard_count()) == ({0, 1}, 3)
    assert unfinished.read(unfinished.marker(1)) == {"first": 4}
    assert unfinished.claimed() == (tmp_path / "out.partial/files/a.npy").stat().st_size == 128 + 40


def test_the_root_of_all_folders_is_no_output() -> None:
    for root in ("/", "/tmp/.."):
        with pytest.raises(InputError, match=rf"^{root} should be a folder of its own, but is the root of all"):
            Unfinished(root)


def test_layout_of_nothing_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = Unfinished(tmp_path / "out")
    assert (unfinished.done(), unfinished.shard_count(), unfinished.claimed()) == (set(), None, 0)
    with pytest.raises(InputError, match=r"plan\.json should say what was done before, but is broken: .*No such file"):
        unfinished.plan()
    monkeypatch.chdir(tmp_path)
    assert Unfinished(".").folder == tmp_path.with_name(tmp_path.name + ".partial")


@pytest.mark.parametrize("plan", ["{", "[]", "{}", '{"rows": "x", "shard_size": 1}', '{"rows": 9, "shard_size": 0}'])
def test_count_of_shards_is_unknown_where_the_plan_is_broken(tmp_path: Path, plan: str) -> None:
    unfinished = Unfinished(tmp_path / "out")
    unfinished.progress.mkdir(parents=True)
    unfinished.plan_file.write_text(plan)
    assert unfinished.shard_count() is None
