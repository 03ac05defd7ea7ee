"""Progress: rate, percent and time left; few plain lines in a log, one line that moves on a terminal."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

from visual_grounding.progress import progress_bar

LINE = r" *\d+% \d+/200 images, (\?|[\d.]+) images/s, \d\d:\d\d so far, (\d\d:\d\d|\?) left"


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(monkeypatch: pytest.MonkeyPatch, done: int = 0, steps: int = 20) -> None:
    """200 images, 10 every 5 seconds: 2 a second."""
    clock = Clock()
    with progress_bar(200, done, "images", log_seconds=30) as progress:
        monkeypatch.setattr(progress, "_time", clock)
        progress.start_t = progress.last_print_t = clock.now
        for _ in range(steps):
            clock.now += 5
            progress.update(10)


def test_log_has_a_line_every_half_minute_with_percent_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch)
    err = capsys.readouterr().err
    lines = err.splitlines()
    assert "\r" not in err and all(re.fullmatch(LINE, line) for line in lines), err
    assert 4 <= len(lines) <= 6, err  # at the start, at 30, 60 and 90 s, at the end
    assert lines[1:3] == [
        "30% 60/200 images, 2.00 images/s, 00:30 so far, 01:10 left",
        "60% 120/200 images, 2.00 images/s, 01:00 so far, 00:40 left",
    ]
    assert lines[-1] == "100% 200/200 images, 2.00 images/s, 01:40 so far, 00:00 left"


def test_what_an_earlier_run_did_does_not_count_for_the_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, done=100, steps=6)
    assert "80% 160/200 images, 2.00 images/s, 00:30 so far, 00:20 left" in capsys.readouterr().err


def test_nothing_is_said_where_nothing_is_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(200, 200, "images", shown=False):
        pass
    assert capsys.readouterr() == ("", "")


def test_terminal_has_one_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar(10, 0, "images") as progress:
            progress.update(10)
        said = ""
        while "\n" not in said:
            said += os.read(leader, 10_000).decode()
    os.close(leader)
    assert "\r" in said and said.count("\n") == 1 and re.search(r"100%\|.*\| 10/10 images, ", said)
