"""Code is checked by the same tools before a commit and in the tests: other versions of them disagree about it."""

import re

from conftest import REPOSITORY


def test_ruff_before_a_commit_is_that_of_the_tests() -> None:
    hooks = (REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pinned = (REPOSITORY / "scripts/constraints.txt").read_text(encoding="utf-8")
    before_commits = re.findall(r"ruff-pre-commit\n\s+rev: v(\S+)$", hooks, re.M)
    assert before_commits == re.findall(r"^ruff==(\S+)$", pinned, re.M) and before_commits
