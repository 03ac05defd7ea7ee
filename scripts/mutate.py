"""Would the tests notice? Changes one place of the code at a time, and runs the fast tests of its room.

    python scripts/mutate.py --sample 320 --seed 1 --out mutants.jsonl --jobs 2    # given again, it goes on
    python scripts/mutate.py --sample 320 --seed 1 --out mutants.jsonl --own       # the tests of the room alone, first
    python scripts/mutate.py --again mutants.jsonl --out again.jsonl               # those that survived, once more
    python scripts/mutate.py --out mutants.jsonl --show                            # what came of them, as a table

A mutant is a sign, a comparison, a number, a flag, a condition, a statement or a keyword argument: changed or gone. The
sample is drawn from all places of the rooms at equal chance; text, messages, logging and annotations aren't places. A
mutant is run in a copy of the repository, in a process forked from one that has imported torch and fairseq: first the
file's doctests and the test that mirrors it, then the others of the room, then what the room is run by. It is killed by
a test that fails or that takes five minutes.
"""

import argparse
import ast
import gc
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).resolve().parents[1]
# The rooms, and the tests beside their own that run them.
ROOMS = {
    "modules": ("devices", "models", "criterions"),
    "criterions": ("tasks", "end_to_end"),
    "data": ("tasks", "end_to_end"),
    "tasks": ("end_to_end",),
    "models": ("devices", "end_to_end"),
    "retrieval": ("devices", "cli", "end_to_end"),
    "storage": ("features", "retrieval", "cli"),
    "analysis": ("cli",),
    "probes": ("cli", "end_to_end"),
    "text": ("cli", "data", "tasks"),
    "vokenization": ("cli", "end_to_end"),
}
EXAMPLES = "tests/house/test_doctests.py::test_all_examples_of_a_file_are_run_and_true"
TEST_LIMIT = 300  # seconds for one test: a loop without end
LIMIT = 7200  # seconds for all tests of one mutant: what doesn't even begin to test; no processor is that slow
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
IMPORTED = (
    "fairseq.sequence_generator",
    "fairseq.tasks",
    "fairseq.trainer",
    "torchvision",
    "transformers",
    "scipy.stats",
)
QUIET = ("logger", "logging", "warnings")  # calls that only say something
SAID = {"help", "metavar", "metadata", "description", "message", "epilog", "title"}  # arguments that are text


@dataclass(frozen=True)
class Mutant:
    """One place and what stands there instead: the lines of a node, and their new text."""

    room: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    was: str
    becomes: str

    @property
    def name(self) -> str:
        """Where it is and what it is."""
        return f"{self.path}:{self.line}:{self.column} `{_short(self.was)}` → `{_short(self.becomes)}`"


def mutants_of(room: str, path: Path) -> Iterator[Mutant]:
    """All places of one file."""
    source = path.read_text(encoding="utf-8")
    lines = source.encode().splitlines(keepends=True)
    for node, new in _changes(ast.parse(source)):
        was = ast.get_source_segment(source, node)
        if was is None or not new or was == new:
            continue
        start = lines[node.lineno - 1][: node.col_offset].decode()
        end = lines[node.end_lineno - 1][: node.end_col_offset].decode()
        yield Mutant(
            room, str(path.relative_to(REPOSITORY)), node.lineno, len(start), node.end_lineno, len(end), was, new
        )


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Every node that can be changed, and its new text."""
    if isinstance(tree, ast.AnnAssign):
        if tree.value is not None:
            yield from _changes(tree.value)
        return
    if isinstance(tree, ast.Raise) or _says(tree):
        return
    if isinstance(tree, ast.FunctionDef):
        for child in (*tree.args.defaults, *filter(None, tree.args.kw_defaults), *tree.body):
            yield from _changes(child)
        return
    if isinstance(tree, ast.ClassDef):
        for child in tree.body:
            yield from _changes(child)
        return
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return
    yield from _changed(tree)
    for name, value in ast.iter_fields(tree):
        if isinstance(tree, ast.Call) and name == "keywords":
            value = [keyword.value for keyword in value if keyword.arg not in SAID]
        if isinstance(tree, ast.JoinedStr):
            return
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child)


def _changed(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """The ways in which one node can be changed."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in SWAPS:
            yield node, ast.unparse(ast.Compare(left, [SWAPS[type(operator)]()], [right]))
        case ast.BinOp(left, operator, right) if type(operator) in SWAPS and not _is_text(left) and not _is_text(right):
            yield node, f"({ast.unparse(ast.BinOp(left, SWAPS[type(operator)](), right))})"
        case ast.BoolOp(operator, values):
            yield node, f"({ast.unparse(ast.BoolOp(SWAPS[type(operator)](), values))})"
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(bool() as value):
            yield node, str(not value)
        case ast.Constant(int() as value):
            yield node, str(value + 1)
        case ast.Constant(float() as value):
            yield node, str(value * 1.5 if value and math.isfinite(value) else 1.0)
        case ast.If(test, body):
            if all(isinstance(statement, ast.Raise) for statement in body):
                yield test, "False"  # a check less
            else:
                yield test, f"not ({ast.unparse(test)})"
        case ast.IfExp(test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Expr(ast.Call()):
            yield node, "pass"
        case ast.AugAssign(target, operator, value) if type(operator) in SWAPS:
            yield node, ast.unparse(ast.AugAssign(target, SWAPS[type(operator)](), value))
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in SAID:
                left = [other for other in node.keywords if other is not keyword]
                yield node, ast.unparse(ast.Call(node.func, node.args, left))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _says(node: ast.AST) -> bool:
    """Whether a statement is a docstring, or a call that only says something."""
    if not isinstance(node, ast.Expr):
        return False
    called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
    return isinstance(node.value, ast.Constant) or called.split(".")[0] in QUIET


def sample(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """So many of all mutants, at equal chance."""
    files = [(room, path) for room in rooms for path in sorted((REPOSITORY / "visual_grounding" / room).glob("*.py"))]
    everything = [mutant for room, path in files for mutant in mutants_of(room, path)]
    print(f"{len(everything)} places in {len(files)} files", flush=True)
    return random.Random(seed).sample(everything, min(count, len(everything)))


def tests_of(mutant: Mutant, own_alone: bool) -> list[str]:
    """Files of tests, the likeliest first: its doctests, the room's, and unless these suffice, what runs the room."""
    tests = REPOSITORY / "tests"
    name = Path(mutant.path).relative_to("visual_grounding")
    mirror = tests / _elsewhere().get(str(name), name.with_name(f"test_{name.stem}.py"))
    first = [mirror] if mirror.is_file() else []
    own = sorted(path for path in (tests / mutant.room).glob("test_*.py") if path not in first)
    rooms = () if own_alone else ROOMS[mutant.room]
    others = [path for room in rooms for path in sorted((tests / room).glob("test_*.py"))]
    others = sorted((path for path in others if path not in first), key=lambda path: _distance(path, name.stem))
    examples = [f"{EXAMPLES}[{mutant.path.removesuffix('.py').replace('/', '.')}]"]
    if ">>> " not in (REPOSITORY / mutant.path).read_text(encoding="utf-8"):
        examples = []
    return examples + [str(path.relative_to(REPOSITORY)) for path in (*first, *own, *others)]


@cache
def _elsewhere() -> dict[str, str]:
    """Files whose tests stand under another name, and where: the list that is tested."""
    tree = ast.parse((REPOSITORY / "tests/house/test_mirror.py").read_text(encoding="utf-8"))
    (listed,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and "ELSEWHERE" in ast.unparse(node))
    found: dict[str, str] = ast.literal_eval(listed)
    return found


def _distance(test: Path, name: str) -> int:
    """0 of a test that names a module, 1 of one of a module that does, 2 of others."""
    tested = REPOSITORY / "visual_grounding" / test.parent.name / f"{test.stem.removeprefix('test_')}.py"
    if re.search(rf"\b{name}\b", test.read_text(encoding="utf-8")):
        return 0
    return 1 if tested.is_file() and re.search(rf"\b{name}\b", tested.read_text(encoding="utf-8")) else 2


def run(mutant: Mutant, copy: Path, own_alone: bool) -> dict[str, object]:
    """Run the tests of a mutant in a copy of the repository: what came of it."""
    path = copy / mutant.path
    before = (REPOSITORY / mutant.path).read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    head = "".join(lines[: mutant.line - 1]) + lines[mutant.line - 1][: mutant.column]
    tail = lines[mutant.end_line - 1][mutant.end_column :] + "".join(lines[mutant.end_line :])
    path.write_text(head + mutant.becomes + tail, encoding="utf-8")
    log = copy / "said.txt"
    started = time.monotonic()
    try:
        child = os.fork()
        if child == 0:
            _test(copy, tests_of(mutant, own_alone), log)
        code = _ended(child, started)
    finally:
        path.write_text(before, encoding="utf-8")
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    telling = ("FAILED", "ERROR", "Timeout (")  # the last stands behind the dots of tests that passed
    by = next((line for line in said.splitlines() if line.startswith(telling) or telling[-1] in line), "")
    # 1: a test failed; 2: a file of tests couldn't be imported; 4: nor conftest.py, among other things
    if code not in (None, 0, 1, 2) and "while loading conftest" not in said:
        raise SystemExit(f"pytest itself failed, with {code}:\n{said[-3000:]}")
    fate = {None: "killed by time", 0: "survived"}.get(code, "killed")
    return {**asdict(mutant), "fate": fate, "by": by[:200], "seconds": round(time.monotonic() - started)}


def _ended(child: int, started: float) -> int | None:
    """How a process ended; None if it had to be ended."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with suppress(ProcessLookupError):  # what a test that took too long had started
                os.killpg(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - started > LIMIT:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.1)


def _test(copy: Path, tests: list[str], log: Path) -> None:
    """In the fork: pytest on the copy."""
    os.setsid()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ["TMPDIR"] = str(copy / "tmp")
    sys.path[0] = str(copy)
    import pytest

    quiet = ("-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    limits = ("-o", f"faulthandler_timeout={TEST_LIMIT}", "-o", "faulthandler_exit_on_timeout=true")
    code = 3
    try:
        code = int(pytest.main(["-x", "-m", "not slow", *quiet, *limits, *tests]))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _copy(folder: Path) -> Path:
    """A repository to change."""
    copy = folder / "copy"
    copy.mkdir()
    for path in REPOSITORY.iterdir():
        if path.is_dir() and path.name not in {".git", ".venv"}:
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("*cache*", "out", "*.egg-info"))
        elif path.is_file() and path.name != ".git":
            shutil.copy(path, copy / path.name)
    shared = REPOSITORY.parent / "shared"
    if shared.exists():
        (folder / "shared").symlink_to(shared)
    (copy / "tmp").mkdir()
    return copy


def _short(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= 80 else joined[:77] + "…"


def show(results: list[dict[str, object]]) -> None:
    """A row for each room, the sum with Wilson's interval, and what survived."""
    print("| room | mutants | killed | survived |\n| --- | --- | --- | --- |")
    for room in (*ROOMS, "all"):
        mine = [result for result in results if room in ("all", result["room"])]
        survived = sum(result["fate"] == "survived" for result in mine)
        print(f"| {room} | {len(mine)} | {len(mine) - survived} | {survived} |")
    count, survived = len(results), sum(result["fate"] == "survived" for result in results)
    if count:
        share, z = survived / count, 1.96
        middle = (share + z * z / (2 * count)) / (1 + z * z / count)
        spread = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        print(f"\n{share:.1%} survive, 95 % interval {middle - spread:.1%} to {middle + spread:.1%}.\n")
    for result in results:
        if result["fate"] == "survived":
            mutant = Mutant(**{name: result[name] for name in Mutant.__dataclass_fields__})
            print(f"- {mutant.name}")


def run_all(mutants: list[Mutant], out: Path, jobs: int, own_alone: bool) -> None:
    """Run mutants, several at a time, each process in a copy of its own; what comes of each is added to a file."""
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()  # a fork that collects garbage would copy all that was imported
    children = []
    for job in range(jobs):
        child = os.fork()
        if child == 0:
            with TemporaryDirectory() as folder:
                copy = _copy(Path(folder))
                for number, mutant in enumerate(mutants[job::jobs]):
                    result = run(mutant, copy, own_alone)
                    with open(out, "a", encoding="utf-8") as file:
                        file.write(json.dumps(result, ensure_ascii=False) + "\n")
                    done = f"{number * jobs + job + 1} of {len(mutants)}"
                    print(f"{done}: {result['fate']} after {result['seconds']} s: {mutant.name}", flush=True)
            os._exit(0)
        children.append(child)
    if any([os.waitpid(child, 0)[1] for child in children]):
        sys.exit("Not all of them were run; given again, the same command goes on.")


def read(out: Path) -> dict[Mutant, dict[str, object]]:
    """What came of each mutant, the last time that it was run."""
    if not out.is_file():
        return {}
    results = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {Mutant(**{name: result[name] for name in Mutant.__dataclass_fields__}): result for result in results}


def where_it_is_now(mutant: Mutant) -> Mutant | None:
    """The same change in a file that was edited since."""
    alike = [
        other
        for other in mutants_of(mutant.room, REPOSITORY / mutant.path)
        if (other.was, other.becomes) == (mutant.was, mutant.becomes)
    ]
    return min(alike, key=lambda other: abs(other.line - mutant.line), default=None)


def main() -> None:
    """Run what has not been run, and show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="what came of each mutant, a line of JSON each")
    parser.add_argument("--sample", type=int, default=320, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS), help="rooms of the package")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--own", action="store_true", help="the tests of the room alone: others take ten times as long")
    parser.add_argument("--again", metavar="FILE", type=Path, help="run those that survived in this file, not a sample")
    parser.add_argument("--show", action="store_true", help="run nothing")
    given = parser.parse_args()
    if not given.show:
        if given.again:
            survived = [mutant for mutant, result in read(given.again).items() if result["fate"] == "survived"]
            chosen = [now for mutant in survived if (now := where_it_is_now(mutant)) is not None]
            print(f"{len(chosen)} of the {len(survived)} that survived are still there", flush=True)
        else:
            chosen = sample(given.sample, given.seed, given.rooms)
        done = read(given.out)
        run_all([mutant for mutant in chosen if mutant not in done], given.out.absolute(), given.jobs, given.own)
    show(list(read(given.out).values()))


if __name__ == "__main__":
    main()
