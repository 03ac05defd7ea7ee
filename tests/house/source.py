"""The package as its authors wrote it: definitions with their docstrings, read without importing anything."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conftest import REPOSITORY

PACKAGE = REPOSITORY / "visual_grounding"
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Definition:
    """A class, function or method.

    Attributes:
        place: `features/store.py:FeatureStore.gather`.
        node: its syntax.
        public: no part of its name begins with an underscore, and it stands in no function.
    """

    place: str
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    public: bool

    @property
    def doc(self) -> str:
        """Its docstring, or nothing."""
        return ast.get_docstring(self.node) or ""

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return isinstance(self.node, ast.ClassDef)

    def decorated(self, *names: str) -> bool:
        """Whether a decorator has one of these names."""
        return any(name_of(decorator) in names for decorator in self.node.decorator_list)


def name_of(node: ast.AST) -> str:
    """The last part of a dotted name, of what a call calls as well; nothing for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def trees(folder: Path = PACKAGE) -> dict[str, ast.Module]:
    """Path inside the folder -> syntax, of every file."""
    paths = sorted(folder.rglob("*.py"))
    return {str(path.relative_to(folder)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def definitions(found: dict[str, ast.Module]) -> list[Definition]:
    """Every class, function and method, nested ones in functions left out."""
    return [each for path, tree in found.items() for each in _definitions(tree, f"{path}:", True)]


def _definitions(parent: ast.AST, prefix: str, public: bool) -> Iterator[Definition]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            open_to_all = public and (not node.name.startswith("_") or node.name == "__call__")
            yield Definition(prefix + node.name, node, open_to_all)
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node, f"{prefix}{node.name}.", open_to_all)
        elif isinstance(node, ast.If | ast.Try | ast.With):  # a definition under a condition
            yield from _definitions(node, prefix, public)


def in_one(source: str) -> dict[str, ast.Module]:
    """`trees` of a single file that doesn't exist, for counter-examples."""
    return {"example.py": ast.parse(source)}
