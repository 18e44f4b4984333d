"""Starting, talking to, stopping and killing real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a module of this directory as a process with pipes."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]).strip(os.pathsep)
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.acceptance.{module}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )


def stop(process: subprocess.Popen[str]) -> None:
    """Kill a process, if it still runs, and let go of its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


class RemoteBroker:
    """A broker in another process (see ``remote``); leaving the context kills it with SIGKILL."""

    def __init__(self) -> None:
        self.process = start("remote")

    def __enter__(self) -> RemoteBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self.process)

    def send(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process is gone"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def call(self, do: str, **arguments: Any) -> Any:
        """Do something and give the reply; a refusal is an AssertionError here."""
        self.send(do, **arguments)
        answer = self.answer()
        assert "ok" in answer, answer
        return answer["ok"]

    def refused(self, do: str, **arguments: Any) -> tuple[str, str]:
        """Do something that must be refused; give the error and its code."""
        self.send(do, **arguments)
        answer = self.answer()
        assert "error" in answer, answer
        return answer["error"], answer["code"]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
