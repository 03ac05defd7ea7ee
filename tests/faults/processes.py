"""Commands by the hundred: a process that has imported everything forks a child for each, and kills some of them.

A step is a call that changes the disk: a file flushed, laid out, renamed, removed, a folder made. A child can be
killed (SIGKILL) right before its step `kill_at`, or `kill_after` seconds from its start; it can get Ctrl-C at its step
`interrupt_at`, or find the disk full from its step `full_at` on; `clock` is the time of day it starts at, and how fast
that passes, backwards too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

SERVER = r"""
import contextlib, errno, importlib, json, mmap, os, signal, struct, sys, tempfile, time

for name in sys.argv[1:]:
    importlib.import_module(name)
from visual_grounding.cli.main import main
from visual_grounding.storage import writers

writers.POLL_SECONDS = 0.02
STEPS = ("fsync", "fdatasync", "posix_fallocate", "rename", "replace", "mkdir", "rmdir", "unlink")

def count_steps(counter, request):
    def stepping(function):
        def step(*arguments, **options):
            number = struct.unpack("q", counter[:8])[0] + 1
            counter[:8] = struct.pack("q", number)
            if number == request.get("kill_at"):
                os.kill(os.getpid(), signal.SIGKILL)
            if number >= request.get("full_at", number + 1):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if number == request.get("interrupt_at"):
                os.kill(os.getpid(), signal.SIGINT)
            return function(*arguments, **options)
        return step
    for name in STEPS:
        setattr(os, name, stepping(getattr(os, name)))

def start(request):
    counter = mmap.mmap(-1, 8)
    said = [tempfile.TemporaryFile("w+") for _ in range(2)]
    child = os.fork()
    if child == 0:
        for file, number in zip(said, (1, 2)):
            os.dup2(file.fileno(), number)
        os.environ.update(request.get("environment", {}))
        count_steps(counter, request)
        writers.START_SECONDS = request.get("patience", writers.START_SECONDS)
        if "clock" in request:
            at, speed = request["clock"]
            time.time = lambda began=time.monotonic(): at + speed * (time.monotonic() - began)
        status = 1
        try:
            status = main(request["arguments"])
        except SystemExit as stopped:
            status = stopped.code
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush(); sys.stderr.flush()
            os._exit(status)
    return child, counter, said

def finish(request, child, counter, said):
    if request.get("kill_after") is not None:
        time.sleep(request["kill_after"])
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for file in said:
        file.seek(0)
        texts.append(file.read())
    return {"status": status, "steps": struct.unpack("q", counter[:8])[0], "out": texts[0], "err": texts[1]}

print("ready", flush=True)
for line in sys.stdin:
    requests = json.loads(line)
    children = [start(request) for request in requests]
    print(json.dumps([finish(request, *child) for request, child in zip(requests, children)]), flush=True)
"""
KILLED = -9


class Done(NamedTuple):
    """How one command ended."""

    status: int
    steps: int
    out: str
    err: str


class Commands:
    """Forks `visual-grounding` commands off one process that has imported `modules`; a context."""

    def __init__(self, *modules: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            environment.pop(name, None)
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER, *modules],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def run(self, arguments: list[object], **how: Any) -> Done:
        """One command."""
        return self.run_together([{**how, "arguments": list(map(str, arguments))}])[0]

    def run_ranks(self, arguments: list[object], world: int, patience: float = 600.0, **how_first: Any) -> list[Done]:
        """One command in several ranks, as torchrun starts them; `how_first` is for rank 0 alone.

        Args:
            patience: seconds that ranks wait for one that hasn't started.
        """
        requests = []
        for number in range(world):
            names = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": world, "MASTER_PORT": 29500}
            environment = {name: str(value) for name, value in names.items()}
            requests.append({"arguments": list(map(str, arguments)), "environment": environment, "patience": patience})
        requests[0].update(how_first)
        return self.run_together(requests)

    def run_together(self, requests: list[dict[str, Any]]) -> list[Done]:
        """Several commands at once."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(requests) + "\n")
        self._server.stdin.flush()
        return [Done(**answer) for answer in json.loads(self._server.stdout.readline())]


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
