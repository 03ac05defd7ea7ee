"""Parts from outside by name: in a package, in a file by itself, or as an entry point."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from small_retriever import make_retriever

from visual_grounding import extensions
from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.extensions import is_extension
from visual_grounding.retrieval.finder import find_class
from visual_grounding.retrieval.joint_embedding import JointEmbeddingRetriever
from visual_grounding.retrieval.retriever import Retriever

FILE = '''
from visual_grounding.retrieval.joint_embedding import JointEmbeddingRetriever
from visual_grounding.retrieval.paired import PairedFinder

class Leaky(PairedFinder):
    """Finds what it was told."""

class Nearest(JointEmbeddingRetriever):
    """As ours."""
'''


@pytest.fixture
def single(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that lies in no package."""
    (tmp_path / "single_file_of_parts.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "single_file_of_parts"
    sys.modules.pop("single_file_of_parts", None)


def test_finder_in_a_file_by_itself_is_a_method(single: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{single}:Leaky"
    assert find_class(name).method == name
    with pytest.raises(SystemExit, match="0"):
        main(["retrieve", "--method", name, "--help"])
    assert "--keys" in capsys.readouterr().out  # its own flags


def test_retriever_in_a_file_by_itself_is_loaded(single: str, tmp_path: Path) -> None:
    ours = make_retriever(tmp_path / "retriever")
    config = tmp_path / "retriever/config.json"
    config.write_text(config.read_text().replace('"joint_embedding"', f'"{single}:Nearest"'))
    found = Retriever.load(tmp_path / "retriever")
    assert type(found).__name__ == "Nearest" and isinstance(found, JointEmbeddingRetriever)
    assert found.kind == f"{single}:Nearest" and found.joint_size == ours.joint_size


def test_what_a_file_by_itself_lacks_is_named(single: str) -> None:
    with pytest.raises(InputError, match=f"the method {single}:Tight can't be loaded: .* has no attribute 'Tight'"):
        find_class(f"{single}:Tight")
    with pytest.raises(InputError, match="the method no_such_file:Leaky can't be loaded: No module named 'no_such"):
        find_class("no_such_file:Leaky")


@pytest.mark.parametrize("group", ["finders", "retrievers", "backbones"])
def test_only_names_of_modules_and_of_entry_points_are_extensions(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "package.module:Name", f"visual_grounding.{group}")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry])
    assert is_extension("package.module:Name", group) and is_extension("mine", group)
    assert not any(
        is_extension(name, group) for name in ("module", ":Name", "a-b:Name", "module:", "a..b:Name", "a:b:c")
    )
    assert is_extension("timm:resnet18", group) is (group != "backbones")  # there the word is a library's
