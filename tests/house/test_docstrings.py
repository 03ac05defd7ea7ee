"""What docstrings promise: they are there, a forward says its shapes, and `Raises` says what is raised."""

import ast
import re

from house.source import NESTED, Definition, definitions, in_one, name_of, trees

# (B, T, D), (…, R), (n, n) or (): what stands in brackets is sizes.
SIZE = r"(?:[A-Z]\w*'?|\d+|\.\.\.|…|any|n|[a-z_]+(?: [a-z]+)*(?: [-/*] \w+)?)(?: ?[-+/*·] ?[\w']+)*"
SHAPE = re.compile(rf"\({SIZE},(?: {SIZE}(?:, {SIZE})*)?\)|\breturns: \w+ \(\)|: any\b")
ARRAYS = re.compile(r"\b(Tensor|ndarray)\b")


def undocumented(found: dict[str, ast.Module]) -> list[str]:
    """Modules and public definitions without a docstring."""
    modules = [path for path, tree in found.items() if not ast.get_docstring(tree)]
    return modules + [each.place for each in definitions(found) if each.public and not each.doc]


def forwards_without_shapes(found: dict[str, ast.Module]) -> list[str]:
    """`forward` methods whose docstring has no shape."""
    named = (each for each in definitions(found) if each.place.endswith(".forward"))
    return [each.place for each in named if not SHAPE.search(each.doc)]


def arrays_without_shapes(found: dict[str, ast.Module]) -> list[str]:
    """Public functions that take a tensor or an array, and don't say its shape."""
    missing = []
    for each in definitions(found):
        if not each.public or each.is_class:
            continue
        arguments = each.node.args
        hints = [argument.annotation for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        plain = [ast.unparse(hint) for hint in hints if hint is not None]
        # What is behind a name (a state_dict) has as many shapes as names.
        takes = any(ARRAYS.search(hint) and not hint.startswith(("dict[", "Mapping[", "Callable[")) for hint in plain)
        if takes and not SHAPE.search(each.doc):
            missing.append(each.place)
    return missing


OURS = {"InputError", "UnreadableImage"}  # a library's errors can't be seen in our source


def raised(each: Definition) -> set[str]:
    """Names of the exceptions that leave a function's own body, or a class's `__init__`."""
    node: ast.AST | None = each.node
    if isinstance(node, ast.ClassDef):
        node = next((part for part in node.body if name_of_function(part) == "__init__"), None)
    return {name for name in leaving(node) if name[:1].isupper()} if node is not None else set()


def leaving(node: ast.AST) -> set[str]:
    """Names of what is raised below a piece of syntax and isn't caught there by that name."""
    if isinstance(node, ast.Raise):
        return {name_of(node.exc)} if node.exc is not None else set()
    if isinstance(node, ast.Try):
        caught = {name for handler in node.handlers if handler.type for name in names_in(handler.type)}
        inside = {name for part in node.body for name in leaving(part)}
        rest = [*node.handlers, *node.orelse, *node.finalbody]
        left = set() if "Exception" in caught else inside - caught
        return left | {name for part in rest for name in leaving(part)}
    parts = [part for part in ast.iter_child_nodes(node) if not isinstance(part, NESTED)]
    return {name for part in parts for name in leaving(part)}


def names_in(node: ast.AST) -> set[str]:
    return {name_of(part) for part in ast.walk(node)}


def name_of_function(node: ast.AST) -> str:
    return node.name if isinstance(node, ast.FunctionDef) else ""


def promised(doc: str) -> set[str]:
    """Names that a docstring's `Raises:` has, or a sentence with "raises NAME"."""
    section = re.search(r"^Raises:\n((?:[ ]+.*\n?|\n)+)", doc, re.MULTILINE)
    names = set(re.findall(r"^ {4}(\w+):", section.group(1), re.MULTILINE)) if section else set()
    return names | set(re.findall(r"\braises (\w+)", doc))


def silent_raises(found: dict[str, ast.Module]) -> list[str]:
    """Public definitions that raise an error of the user's, or of the caller's, without saying so."""
    missing = []
    every = definitions(found)
    classes = {each.place: each.doc for each in every if each.is_class}
    for each in every:
        if each.public or each.place.endswith(".forward"):
            said = promised(each.doc) | promised(classes.get(each.place.rpartition(".")[0], ""))
            unsaid = (raised(each) & {*OURS, "ValueError"}) - said
            missing += [f"{each.place} raises {name}" for name in sorted(unsaid)]
    return missing


def stale_raises(found: dict[str, ast.Module]) -> list[str]:
    """Definitions that promise an error of ours which neither they raise nor anything of the package that they call."""
    every = definitions(found)
    raising: dict[str, set[str]] = {}  # error -> last names of what may raise it
    for each in every:
        for name in raised(each):
            raising.setdefault(name, set()).update(last_names(each))
    calls = {each.place: called(each) for each in every}
    changed = True
    while changed:
        changed = False
        for each in every:
            for names in raising.values():
                if not last_names(each) <= names and calls[each.place] & names:
                    names.update(last_names(each))
                    changed = True
    stale = []
    for each in every:
        if each.decorated("abstractmethod", "overload") or is_stub(each):
            continue
        for name in sorted(promised(each.doc) & OURS):
            if not last_names(each) <= raising.get(name, set()):
                stale.append(f"{each.place} promises {name}")
    return stale


def last_names(each: Definition) -> set[str]:
    """What a caller calls it by: its own name, or its class's where it runs when the class or an object is called."""
    *_, owner, name = ["", *each.place.rpartition(":")[2].split(".")]
    return {owner} if name in ("__init__", "__call__", "forward", "__new__") and owner else {name}


def called(each: Definition) -> set[str]:
    """Names that a definition calls, or merely mentions: a function may be handed on."""
    names = {name_of(part) for part in ast.walk(each.node) if isinstance(part, ast.Call | ast.Attribute | ast.Name)}
    return names


def is_stub(each: Definition) -> bool:
    """A protocol's method: nothing behind its docstring but an ellipsis."""
    rest = [
        part for part in each.node.body if not isinstance(part, ast.Expr) or not isinstance(part.value, ast.Constant)
    ]
    return not rest


def test_modules_and_public_definitions_have_docstrings() -> None:
    assert len(definitions(trees())) > 500
    assert undocumented(trees()) == []


def test_every_forward_says_its_shapes() -> None:
    assert sum(each.place.endswith(".forward") for each in definitions(trees())) > 20
    assert forwards_without_shapes(trees()) == []


def test_public_functions_of_arrays_say_their_shapes() -> None:
    assert arrays_without_shapes(trees()) == []


def test_public_definitions_say_what_they_raise() -> None:
    assert sum("InputError" in raised(each) for each in definitions(trees())) > 100
    assert silent_raises(trees()) == []


def test_raises_are_not_stale() -> None:
    assert stale_raises(trees()) == []


def test_the_package_has_no_assert() -> None:
    """A user can run Python with -O, and would meet an AssertionError without -O."""
    assert asserts(trees()) == []


def asserts(found: dict[str, ast.Module]) -> list[str]:
    """Places of `assert`."""
    return [
        f"{path}:{part.lineno}"
        for path, tree in found.items()
        for part in ast.walk(tree)
        if isinstance(part, ast.Assert)
    ]


EXAMPLE = '''
"""A module."""

from torch import Tensor, nn


class Undocumented:
    def shown(self): ...
    def _hidden(self): ...


class Layer(nn.Module):
    """A layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Computes."""
        assert x.dim() == 2
        if len(x) > 3:
            raise InputError("too many")
        return x


class Good(nn.Module):
    """Another."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, D) -> (B, D).

        Raises:
            InputError: too many.
        """
        raise InputError("too many")


def shapeless(features: np.ndarray) -> int:
    """Counts.

    Raises:
        InputError: never.
    """
    return 1


def through(x: Tensor) -> Tensor:
    """x (B, D) -> the same.

    Raises:
        InputError: as `Good`.
    """
    return Good()(x)
'''


def test_each_check_finds_its_counter_example() -> None:
    found = in_one(EXAMPLE)
    assert undocumented(found) == ["example.py:Undocumented", "example.py:Undocumented.shown"]
    assert forwards_without_shapes(found) == ["example.py:Layer.forward"]
    assert arrays_without_shapes(found) == ["example.py:Layer.forward", "example.py:shapeless"]
    assert silent_raises(found) == ["example.py:Layer.forward raises InputError"]
    assert stale_raises(found) == ["example.py:shapeless promises InputError"]  # but not `through`
    assert asserts(found) == ["example.py:17"]
