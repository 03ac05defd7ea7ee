"""Commands of the environment, each in a process of its own, forked from one that has imported what takes long.

Half of what a short `fairseq-train` takes is the import of fairseq. A server imports it once for all tests of a worker;
a command is a fork of it that gets its own arguments, folder, environment, input and outputs, and then runs like any
other. What was imported is kept from the garbage collector, and isn't taken to pieces at the end: both write to every
object, so each fork would copy all of the server's memory (5 s a command on a slow virtual machine). The verbs of
`visual-grounding` have a server of their own, without fairseq. `for_scripts()` makes both known to scripts of the
shell: as functions, which bash prefers to programs.

All forks of a server have one hash seed. Where two runs must agree whatever the order of a set, give them `fresh=True`.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
# Not the modules of fairseq's commands: the first to be imported sets up logging, as it should be in the fork.
FAIRSEQ = ("fairseq.sequence_generator", "fairseq.tasks", "fairseq.trainer", "torchvision")
VERBS = ("torch", "torchvision", "transformers", "scipy.stats")
IN_SCRIPTS = ("preprocess", "train", "generate", "validate", "interactive")
Result = subprocess.CompletedProcess[str]


def run_python(module: str, *arguments: object, cwd: Path | None = None) -> Result:
    """`python -m module …` in a fresh process, one thread, without the repository on the path by accident."""
    return _started([sys.executable, "-m", module, *map(str, arguments)], cwd, {})


def run_script(path: Path, *arguments: object, cwd: Path) -> Result:
    """`python path …`, where fairseq is imported already."""
    return _asked([str(path), *map(str, arguments)], cwd, {})


def run_command(
    name: str,
    *arguments: object,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    fresh: bool = False,
) -> Result:
    """One of the environment's commands (`fairseq-train`, `visual-grounding` …).

    Args:
        cwd: the folder it runs in.
        environment: what is added to this process's.
        fresh: start it anew: its very start is tested.
    """
    words = [str(Path(sys.executable).with_name(name)), *map(str, arguments)]
    served = name == "visual-grounding" or name.startswith("fairseq-")
    several = "--distributed-world-size" in words  # it starts processes itself
    return (_asked if served and not fresh and not several else _started)(words, cwd, environment or {})


def train_in_two_processes(*arguments: object) -> list[str]:
    """`fairseq-train …` as the two ranks of one training, on the CPU: what each of them said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        Path(sys.executable).with_name("fairseq-train"), *arguments, "--distributed-backend", "gloo",
        "--distributed-init-method", f"tcp://127.0.0.1:{port}", "--distributed-no-spawn",
        "--distributed-world-size", 2, "--ddp-backend", "legacy_ddp",
    ]  # fmt: skip
    ranks = [
        subprocess.Popen(
            [*map(str, command), "--distributed-rank", str(rank)],
            env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:  # one that waits for another in vain
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    return outputs


def for_scripts() -> dict[str, str]:
    """Environment with which a script of bash gives its commands to the servers."""
    names = ["visual-grounding", *(f"fairseq-{name}" for name in IN_SCRIPTS)]
    call = f'"{sys.executable}" -I -S "{__file__}" ask'
    programs = {name: Path(sys.executable).with_name(name) for name in names}
    return {f"BASH_FUNC_{name}%%": f'() {{ {call} "{_server(name)}" "{programs[name]}" "$@"; }}' for name in names}


def _started(words: list[str], cwd: Path | None, more: dict[str, str]) -> Result:
    environment = {**os.environ, **ENVIRONMENT, **more}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)


def _asked(words: list[str], cwd: Path | None, more: dict[str, str]) -> Result:
    from tempfile import TemporaryFile

    environment = {**os.environ, **ENVIRONMENT, **more}
    with open(os.devnull) as nothing, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        outputs = (nothing.fileno(), out.fileno(), err.fileno())
        code = _ask(_server(Path(words[0]).name), words, str(cwd or Path.cwd()), environment, outputs)
        said = [Path(f"/proc/self/fd/{file.fileno()}").read_text() for file in (out, err)]
        return subprocess.CompletedProcess(words, code, *said)


_SERVERS: dict[tuple[str, ...], tuple[str, "subprocess.Popen[bytes]"]] = {}


def _server(name: str) -> str:
    """The socket of the server that is for a command; it is started, and ends with this process."""
    from tempfile import mkdtemp

    modules = VERBS if name == "visual-grounding" else FAIRSEQ
    if modules not in _SERVERS or _SERVERS[modules][1].poll() is not None:  # it may have been killed for its memory
        if modules in _SERVERS:
            _SERVERS[modules][1].communicate()  # closes its pipes
        folder = Path(mkdtemp(prefix="commands", dir="/tmp"))  # the path of a socket has at most 108 letters
        path, log = str(folder / "socket"), folder / "log"
        command = [sys.executable, __file__, "serve", path, *modules]
        with open(log, "w") as said:
            process = subprocess.Popen(
                command,
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )
        assert process.stdout is not None and process.stdout.readline(), log.read_text()
        _SERVERS[modules] = (path, process)
    return _SERVERS[modules][0]


def _ask(path: str, words: list[str], cwd: str, environment: dict[str, str], files: Sequence[int]) -> int:
    """Have a server run a command with these three files; how it ended, as of `subprocess`."""
    umask = os.umask(0)
    os.umask(umask)
    request = json.dumps([words, cwd, environment, umask]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [len(request).to_bytes(8, "big")], files)
        server.sendall(request)
        answer = ""
        with suppress(ConnectionResetError):  # the server, or what waits for the command, was killed
            answer = server.makefile().read()
    if not answer:
        raise RuntimeError(f"{words[0]} ended without a word: {Path(path).with_name('log').read_text()[-2000:]}")
    return int(answer)


def _serve(path: str, modules: Sequence[str]) -> Iterator[list[str]]:
    """In the server: for ever. In a fork of it, which is the command now: its words, once."""
    import importlib
    import shutil

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        for name in modules:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:  # closed: who started it has ended
            connection, _ = listening.accept()
            head, files, _, _ = socket.recv_fds(connection, 8, 3)
            if os.fork() == 0:
                listening.close()
                content = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                command = os.fork()
                if command == 0:
                    connection.close()
                    yield _become(*json.loads(content), files)
                    return
                with suppress(BrokenPipeError):
                    connection.sendall(str(_ended(command, connection)).encode())
                os._exit(0)
            connection.close()
            for file in files:
                os.close(file)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        shutil.rmtree(Path(path).parent, ignore_errors=True)
        os._exit(0)


def _ended(command: int, connection: socket.socket) -> int:
    """How the command ended; it is killed when nobody waits for it any more."""
    end = os.pidfd_open(command)
    if end not in select.select([end, connection], [], [])[0]:  # all was read: it has something only when it closes
        os.kill(command, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])


def _become(words: list[str], cwd: str, environment: dict[str, str], umask: int, files: Sequence[int]) -> list[str]:
    """Turn this fork into the command: its folder, environment, input, outputs, arguments and path."""
    import logging
    import warnings

    import numpy as np

    warnings.filterwarnings("error", module="visual_grounding")  # of what this package does; others' are only said
    np.random.seed()  # else all forks draw the same numbers
    os.umask(umask)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0)  # noqa: SIM115
    logging.root.handlers.clear()  # set up by one of fairseq's tasks when it is imported; a command does so before
    logging.root.setLevel(logging.WARNING)
    sys.argv = words
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(words[0]).parent), *(path for path in named if path not in sys.path)]
    return words


def _end(code: object) -> NoReturn:
    """Exit as Python does, but for taking the modules to pieces."""
    if (code is None or isinstance(code, int)) and threading.active_count() == 1:
        atexit._run_exitfuncs()
        with suppress(OSError):  # a closed pipe: Python has a code of its own for it
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit((code or 0) & 255)
    sys.exit(code)  # a message to print, or threads to wait for


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ended = _ask(sys.argv[2], sys.argv[3:], os.getcwd(), dict(os.environ), (0, 1, 2))
        sys.exit(ended if ended >= 0 else 128 - ended)
    for words in _serve(sys.argv[2], sys.argv[3:]):
        try:
            if words[0].endswith(".py"):
                import runpy

                runpy.run_path(words[0], run_name="__main__")
            else:
                from importlib.metadata import entry_points

                (point,) = entry_points(group="console_scripts", name=Path(words[0]).name)
                sys.exit(point.load()())
        except SystemExit as exit_:
            _end(exit_.code)
        _end(0)
