"""A function killed in this process, right before each of its steps."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest


class Killed(BaseException):
    """Nobody catches it."""


def killed_at_each_step(run: Callable[[], object], *steps: tuple[Any, str]) -> Iterator[int]:
    """Run again and again, killed before the first step, then before the second, until a run comes through.

    Yields after each kill, with its number.

    Args:
        steps: what holds a function, and its name there; each call of one is a step.
    """
    killed = 0
    while True:
        killed += 1
        calls = 0

        def stepping(function: Callable[..., Any], at: int = killed) -> Callable[..., Any]:
            def step(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == at:
                    raise Killed
                return function(*arguments, **options)

            return step

        with pytest.MonkeyPatch.context() as patch:
            for place, name in steps:
                patch.setattr(place, name, stepping(getattr(place, name)))
            try:
                run()
            except Killed:
                pass
            else:
                return
        yield killed
