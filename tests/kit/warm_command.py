"""`WarmCommand`: the `tenure` command in forks of one process that has imported it.

Every command is a process of its own, with its own arguments, variables and files, and ends as one does. Only the time
in which Python would import the command line again is left out; `tests/cli/test_main.py` and the pages that
`tests/docs` runs start the command itself.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, NoReturn

import tenure.cli.commands
from tenure.cli.main import main

__all__ = ["WarmCommand"]

_MODULES: Final = ("typer._adapters", "tenure.cli.app", "tenure.client.client", "tenure.worker.app")
"""What commands import, with the modules of the commands; those of stores start threads, which no fork would have."""
_FILES: Final = 3
_REQUEST_BYTES_MAX: Final = 1 << 20


class WarmCommand:
    """One process that waits for commands; ``close`` ends it."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.warm_command", str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def run(
        self, arguments: list[str], *, env: dict[str, str], stdin: str = "", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end. Raises TimeoutExpired, and kills it then."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            request = {"arguments": arguments, "env": env, "cwd": os.getcwd()}
            with theirs:
                files = [given.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
                socket.send_fds(self._ours, [json.dumps(request).encode()], files)
            ours.settimeout(timeout_s)
            pid = int(ours.recv(100))
            try:
                code = int(ours.recv(100))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout_s) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())

    def close(self) -> None:
        """End the process; a command that still runs goes on."""
        self._ours.close()
        self._process.wait()


def serve(requests: socket.socket) -> None:
    """Carry out requests until their sender is gone. Returns in the process of a command, to be ended by it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, _FILES + 1)
        if not data:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _tend(json.loads(data), files)
        for file in files:
            os.close(file)


def _tend(request: dict[str, Any], files: list[int]) -> None:
    """Fork the command and tell its sender how it ends; returns in the command alone."""
    answers = socket.socket(fileno=files.pop())
    if (command := os.fork()) != 0:
        answers.send(str(command).encode())
        _, status = os.waitpid(command, 0)
        answers.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    answers.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["tenure", *request["arguments"]]


def _main() -> NoReturn:
    commands = (module.name for module in iter_modules(tenure.cli.commands.__path__))
    for name in (*_MODULES, *(f"{tenure.cli.commands.__name__}.{name}" for name in commands)):
        import_module(name)
    gc.collect()
    gc.freeze()  # what is never looked at is never copied
    serve(socket.socket(fileno=int(sys.argv[1])))
    _end(_exit_code())


def _exit_code() -> int:
    try:
        main()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _end(code: int) -> NoReturn:
    """End as Python does, without taking every module apart."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _main()
