"""Settings from outside: what they should be is taken, anything else is refused with both."""

from typing import Any

import pytest

from visual_grounding.errors import InputError
from visual_grounding.storage.settings import SWITCH, TABLE, TEXT, check_settings, listed, number, one_of, whole_number

NAN, INF = float("nan"), float("inf")
PAIR = listed("two numbers", number(0, 1), number(0, 1))


@pytest.mark.parametrize(
    ("wanted", "sound", "wrong"),
    [
        (number(0.5, 2), [0.5, 1, 2.0], [0.49, 2.01, NAN, INF, -INF, 10**400, True, "1", None, [1]]),
        (whole_number(1, 3), [1, 3], [0, 4, 2.0, NAN, True, "2", None, 10**400]),
        (one_of("a", "b"), ["a", "b"], ["c", "", "ab", None, 1, ["a"], {"a": 1}]),
        (PAIR, [[0, 1], (0.5, 0.5)], [[0], [0, 1, 1], [0, 2], [0, NAN], ["a", "b"], "ab", 3, None, {0: 1, 1: 1}]),
        (TEXT, ["", "x"], [None, 3, ["x"]]),
        (SWITCH, [True, False], [0, 1, "true", None]),
        (TABLE, [{}, {"a": 1}], [None, [], "x", 3]),
    ],
)
def test_setting_is_taken_or_refused(wanted, sound: list[Any], wrong: list[Any]) -> None:
    for value in sound:
        check_settings("config.json", {"a": value}, {"a": wanted})
    for value in wrong:
        with pytest.raises(InputError, match=rf"^config\.json should have {wanted.words} as 'a', but has "):
            check_settings("config.json", {"a": value}, {"a": wanted})


def test_message_says_what_should_be_and_what_is() -> None:
    with pytest.raises(InputError, match=r"^c should have a number from 0 to 1 as 'b', but has 'xx+\.$") as caught:
        check_settings("c", {"a": 1, "b": "x" * 1000}, {"a": number(0, 1), "b": number(0, 1)})
    assert len(str(caught.value)) < 150
    for value, found in (([], r"\[\]"), (None, "None"), ("x", "'x'")):
        with pytest.raises(InputError, match=rf"^c should be a table of settings, but is {found}\.$"):
            check_settings("c", value, {})


def test_what_is_missing_is_left_to_its_default() -> None:
    check_settings("c", {"other": None}, {"a": number(0, 1)})
