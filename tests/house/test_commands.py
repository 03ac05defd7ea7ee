"""tests/commands.py itself: a served command is like one that was started, and its server may die."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import commands
import pytest

SCRIPT = """
import os, random, sys
import numpy as np
print(sys.argv[1:], os.getcwd(), os.environ["ASKED"], sys.stdin.read() == "")
print("to the other one", file=sys.stderr)
(np.random.random(), sys.exit(int(sys.argv[1])))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASKED", "yes")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def test_a_served_script_says_and_ends_as_one_that_was_started(script: Path) -> None:
    words = [sys.executable, str(script), "3", "a b"]
    started = subprocess.run(words, cwd=script.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    served = commands.run_script(script, "3", "a b", cwd=script.parent)
    assert (served.returncode, served.stdout, served.stderr) == (3, started.stdout, started.stderr)


WAYS_TO_END = """
import atexit, os, sys, threading, time

def late():
    time.sleep(0.2)
    print("a thread that was waited for")

ends = {
    "falls off": lambda: None,
    "nothing": lambda: sys.exit(),
    "number": lambda: sys.exit(300),
    "message": lambda: sys.exit("a message"),
    "thread": lambda: threading.Thread(target=late).start(),
    "error": lambda: 1 / 0,
}
atexit.register(print, "at the end")
print("unflushed", end="")
ends[sys.argv[1]]()
"""


@pytest.mark.parametrize("way", ["falls off", "nothing", "number", "message", "thread", "error"])
def test_a_served_script_ends_as_python_does(tmp_path: Path, way: str) -> None:
    (tmp_path / "ends.py").write_text(WAYS_TO_END)
    words = [sys.executable, str(tmp_path / "ends.py"), way]
    started = subprocess.run(words, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    served = commands.run_script(tmp_path / "ends.py", way, cwd=tmp_path)
    assert (served.returncode, served.stdout) == (started.returncode, started.stdout)
    assert served.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]  # a traceback begins in the server


def test_a_server_that_was_killed_is_started_again(script: Path) -> None:
    commands.run_script(script, "0", cwd=script.parent)
    _, process = commands._SERVERS[commands.FAIRSEQ]
    process.kill()
    process.wait()
    assert commands.run_script(script, "4", cwd=script.parent).returncode == 4
    assert commands._SERVERS[commands.FAIRSEQ][1].pid != process.pid


def test_a_command_that_nobody_waits_for_any_more_is_killed(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'begun')\ntime.sleep(60)\n"
    )
    call = f"import sys; sys.path.insert(0, {str(Path(commands.__file__).parent)!r}); import commands; "
    request = f"{commands._server('')!r}, ['slow.py'], {str(tmp_path)!r}, dict(commands.os.environ), (0, 1, 2)"
    call += f"commands._ask({request})"
    client = subprocess.Popen([sys.executable, "-c", call], stdin=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    command = int((tmp_path / "begun").read_text())
    client.send_signal(signal.SIGKILL)
    client.wait()
    while Path(f"/proc/{command}").exists():
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.05)


def test_a_script_of_bash_gives_its_commands_to_the_server(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise SystemExit('the current folder was imported from')")
    done = subprocess.run(
        ["bash", "-c", "type -t visual-grounding; visual-grounding --version; fairseq-train --nonsense; echo $?"],
        cwd=tmp_path, env={**os.environ, **commands.for_scripts()}, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == "function" and lines[1].startswith("visual-grounding 0.") and lines[-1] != "0"
    assert "the current folder" not in done.stderr


def test_a_socket_without_a_server_is_told_apart_from_a_command(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("why it ended")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        pid = os.fork()
        if not pid:
            listening.accept()[0].recv(1 << 20)
            os._exit(0)
        with pytest.raises(RuntimeError, match="true ended without a word: why it ended"):
            commands._ask(str(tmp_path / "socket"), ["true"], "/", {}, (0, 1, 2))
        os.waitpid(pid, 0)
