"""Says at the end how many processes were killed, and how many of their outputs came out the same."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counted: dict[str, int] = {}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name in ("kills", "same bytes"):
                counted[name] = counted.get(name, 0) + value
    if counted:
        terminalreporter.write_line(
            f"faults: {counted['kills']} processes killed at random moments; {counted['same bytes']} outputs "
            "continued, all to the same bytes as undisturbed"
        )
