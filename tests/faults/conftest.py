"""Says at the end how many processes were killed, how many broken files were read by which reader, and how many absurd
values flags were given."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counted: dict[str, int] = {}
    fuzzed: dict[str, tuple[int, int]] = {}
    absurd: dict[str, int] = {}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name in ("kills", "same bytes"):
                counted[name] = counted.get(name, 0) + value
            if name == "fuzzed":
                reader, tried, refused = value
                before = fuzzed.get(reader, (0, 0))
                fuzzed[reader] = (before[0] + tried, before[1] + refused)
            if name == "absurd":
                command, tried = value
                absurd[command] = absurd.get(command, 0) + tried
    if counted:
        terminalreporter.write_line(
            f"faults: {counted['kills']} processes killed at random moments; {counted['same bytes']} outputs "
            "continued, all to the same bytes as undisturbed"
        )
    if fuzzed:
        tried, refused = (sum(each[place] for each in fuzzed.values()) for place in (0, 1))
        each = ", ".join(f"{reader} {inputs}" for reader, (inputs, _) in fuzzed.items())
        terminalreporter.write_line(
            f"faults: {tried} broken files given to {len(fuzzed)} readers: {refused} refused in a line, the others "
            f"read whole, nothing else ({each})"
        )
    if absurd:
        terminalreporter.write_line(
            f"faults: {sum(absurd.values())} absurd values given to flags of {len(absurd)} commands: all taken, or "
            "refused in a line"
        )
