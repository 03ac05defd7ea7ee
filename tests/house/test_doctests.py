"""Examples in docstrings are true."""

import doctest
import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from conftest import REPOSITORY
from house.source import PACKAGE


def examples() -> dict[str, int]:
    """Module -> how many examples stand in its file, where there are any."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE))
    return {name: count for name, count in found.items() if count}


def run_examples(module: ModuleType) -> doctest.TestResults:
    """How many examples of a module fail, and how many there are; what fails is printed."""
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(module):
        runner.run(test)
    return runner.summarize(verbose=False)


def test_files_with_examples_are_found() -> None:
    assert len(examples()) > 25 and examples()["visual_grounding.storage.signature"] >= 4


@pytest.mark.parametrize("name", examples())
def test_all_examples_of_a_file_are_run_and_true(name: str) -> None:
    assert run_examples(import_module(name)) == (0, examples()[name])


def scripts_with_examples() -> list[Path]:
    """Of recipes and benchmarks, which are no package."""
    paths = [path for folder in ("examples", "benchmarks", "scripts") for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted(path for path in paths if ">>>" in path.read_text(encoding="utf-8"))


def test_scripts_with_examples_are_found() -> None:
    assert len(scripts_with_examples()) > 10


@pytest.mark.parametrize("path", scripts_with_examples(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_all_examples_of_a_script_are_run_and_true(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))  # for what it imports from beside it
    spec = spec_from_file_location(f"examples_of_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look for their module there
    spec.loader.exec_module(module)
    count = len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert run_examples(module) == (0, count)


def test_an_example_that_is_wrong_is_found() -> None:
    assert run_examples(ModuleType("wrong", ">>> 1 + 1\n3\n\n>>> 1 + 2\n3\n")) == (1, 2)
