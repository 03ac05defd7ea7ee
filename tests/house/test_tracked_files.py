"""What git tracks is files: checking out a link where a folder is that git ignores deletes the folder."""

import subprocess

from conftest import REPOSITORY


def test_no_link_is_tracked() -> None:
    if not (REPOSITORY / ".git").exists():  # an unpacked archive has no list of what is tracked
        return
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    links = [line for line in listed.stdout.splitlines() if line.startswith("120000 ")]
    assert not links, "take them out with git rm --cached: " + ", ".join(links)
