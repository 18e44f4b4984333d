"""Worker processes of `reminders`, started, signalled and read from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.kit.processes import kill_with_children
from tests.kit.redis_servers import until

ROOT = Path(__file__).parents[2]


class Journal:
    """What the handlers of all workers wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: str) -> list[dict[str, Any]]:
        text = self.path.read_bytes().rpartition(b"\n")[0] if self.path.exists() else b""
        return [line for line in map(msgspec.json.decode, text.splitlines()) if line["event"] == event]

    def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        until(lambda: len(self.lines(event)) >= count, f"{count} x {event}")
        return self.lines(event)


class Running:
    """One `tenure worker`."""

    def __init__(self, journal: Path, redis_port: int, *options: str, url: str | None = None) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REMINDERS_")}
        environment |= {"REMINDERS_JOURNAL": str(journal), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        environment |= {"REMINDERS_REDIS": f"redis://127.0.0.1:{redis_port}/0"}
        environment |= {} if url is None else {"REMINDERS_URL": url}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [Path(sys.executable).with_name("tenure"), "worker", "tests.timers.reminders:app", *options],
            stderr=self._log,
            cwd=ROOT,
            env=environment,
        )

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def wait_until_it_works(self, topics: Sequence[str] = ("reminders",)) -> Running:
        until(lambda: all(f"working at {topic}" in self.log() for topic in topics), f"it works:\n{self.log()}")
        return self

    def kill(self) -> None:
        kill_with_children(self.process)

    def terminate(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._log.close()


@contextmanager
def running(journal: Journal, redis_port: int, *options: str, url: str | None = None) -> Iterator[Running]:
    """A worker that does not outlive its test."""
    worker = Running(journal.path, redis_port, *options, url=url)
    try:
        yield worker
    finally:
        worker.close()
