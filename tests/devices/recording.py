"""What the package has that computes with tensors, and what of it a run reached."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook


def name_of(thing: Any) -> str:
    """Where a class or function is: `retrieval.search:top_k`, without the package's own name."""
    return f"{thing.__module__.partition('.')[2]}:{thing.__qualname__}"


def modules_of(package: ModuleType) -> list[ModuleType]:
    """A package and everything in it, imported."""
    names = [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    return [package, *(importlib.import_module(name) for name in names if not name.endswith("__main__"))]


def _members(package: ModuleType) -> Iterator[Any]:
    for module in modules_of(package):
        for member in vars(module).values():
            if getattr(member, "__module__", None) == module.__name__:
                yield member


def computing_classes(package: ModuleType) -> dict[str, type[nn.Module]]:
    """Every module, model and criterion (fairseq's criterions are modules) that the package defines."""
    found = (member for member in _members(package) if inspect.isclass(member))
    return {name_of(member): member for member in found if issubclass(member, nn.Module)}


def computing_functions(package: ModuleType) -> dict[str, FunctionType]:
    """Every function and method whose annotations name a tensor, but the abstract ones."""
    found: dict[str, FunctionType] = {}
    for member in _members(package):
        if getattr(member, "_is_protocol", False):
            continue
        for candidate in vars(member).values() if inspect.isclass(member) else (member,):
            candidate = getattr(candidate, "fget", None) or getattr(candidate, "__func__", candidate)
            function = inspect.unwrap(candidate) if callable(candidate) else candidate
            abstract = getattr(function, "__isabstractmethod__", False)
            if (
                inspect.isfunction(function)
                and not abstract
                and any("Tensor" in str(a) for a in function.__annotations__.values())
            ):
                found[name_of(function)] = function
    return found


@contextmanager
def recorded() -> Iterator[tuple[set[type], set[CodeType]]]:
    """Classes whose `forward` ran, and the code of all functions that were called."""
    classes: set[type] = set()
    codes: set[CodeType] = set()
    hook = register_module_forward_hook(lambda module, inputs, output: classes.add(type(module)))
    try:
        with _calls_noted(codes):
            yield classes, codes
    finally:
        hook.remove()


@contextmanager
def _calls_noted(codes: set[CodeType]) -> Iterator[None]:
    """Note the code of each function that is called; from Python 3.12 on once each, which costs next to nothing."""
    if sys.version_info < (3, 12):

        def called(frame: FrameType, event: str, argument: Any) -> None:
            codes.add(frame.f_code)

        sys.setprofile(called)
        try:
            yield
        finally:
            sys.setprofile(None)
        return

    watch, tool = sys.monitoring, 4  # the numbers below are a debugger's, a profiler's, and so on

    def started(code: CodeType, offset: int) -> Any:
        codes.add(code)
        return watch.DISABLE

    watch.use_tool_id(tool, "recording")
    watch.register_callback(tool, watch.events.PY_START, started)
    watch.set_events(tool, watch.events.PY_START)
    watch.restart_events()
    try:
        yield
    finally:
        watch.set_events(tool, 0)
        watch.free_tool_id(tool)


def package_functions(error: BaseException, package: ModuleType) -> list[str]:
    """Functions of the package that an error went through, outermost first."""
    names, trace = [], error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.startswith(package.__name__ + "."):
            names.append(f"{module.partition('.')[2]}:{trace.tb_frame.f_code.co_qualname}")
        trace = trace.tb_next
    return names
