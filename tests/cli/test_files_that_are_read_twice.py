"""A pipe is empty the second time, and its digest that of nothing: where a file is read twice it is refused at once."""

import os
from pathlib import Path

import pytest
from cli.test_absurd_numbers import commands, run, world  # noqa: F401 - a fixture

READ_TWICE = [
    ("evaluate", "--hypothesis"),
    ("evaluate", "--twin"),
    ("evaluate", "--reference"),
    ("evaluate contrastive", "--correct"),
    ("evaluate contrastive", "--incorrect"),
    ("evaluate contrastive", "--reference"),
    ("retrieve keyword", "--captions"),
    ("retrieve scene", "--captions"),
    ("retrieve scene", "--word-vectors"),
    ("retrieve object", "--nouns"),
    ("prepare pieces", "--text"),
]


@pytest.mark.parametrize(("name", "flag"), READ_TWICE)
def test_a_pipe_is_refused_where_a_file_is_read_twice(
    world: Path,  # noqa: F811
    tmp_path: Path,
    name: str,
    flag: str,
) -> None:
    os.mkfifo(tmp_path / "pipe.vec")
    words = commands(world)[name]
    words[words.index(flag) + 1] = tmp_path / "pipe.vec"
    verb = "retrieve" if name.startswith("retrieve") else name
    status, said = run(verb, [*words, "--out", tmp_path / "out"])
    assert status == 2 and not (tmp_path / "out").exists()
    assert "pipe.vec should be" in said and "a pipe or a device" in said
