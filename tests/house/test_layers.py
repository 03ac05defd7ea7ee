"""What import-linter checks is about every room, one that is new included; that it holds, `lint-imports` says."""

import tomllib
from pathlib import Path

from conftest import REPOSITORY
from house.source import PACKAGE

WITH_FAIRSEQ = {
    "tasks",
    "models",
    "criterions",
    "data",
    "probes",
    "fairseq_plugin",
}  # all others work where there is only torch


def rooms(package: Path) -> set[str]:
    """Folders and files right below a package, as modules."""
    folders = {path.parent.name for path in package.glob("*/*.py")}
    return folders | {path.stem for path in package.glob("*.py") if path.name != "__init__.py"}


def linted(text: str) -> set[str]:
    """Rooms that mustn't import fairseq, by `pyproject.toml`."""
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    (sources,) = [each["source_modules"] for each in contracts if each.get("forbidden_modules") == ["fairseq"]]
    return {source.removeprefix("visual_grounding.") for source in sources}


def test_every_room_that_needs_no_fairseq_is_linted() -> None:
    assert len(rooms(PACKAGE)) > 15 and rooms(PACKAGE) > WITH_FAIRSEQ
    assert linted((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")) == rooms(PACKAGE) - WITH_FAIRSEQ


def test_a_room_that_was_left_out_is_found(tmp_path: Path) -> None:
    for name in ("__init__.py", "one.py", "two/__init__.py", "notes/three.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    contract = '[[tool.importlinter.contracts]]\nsource_modules = ["visual_grounding.two"]\n'
    assert rooms(tmp_path) - linted(contract + 'forbidden_modules = ["fairseq"]') == {"one"}
