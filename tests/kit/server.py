"""The real server: `tenure serve` in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Running", "environment", "serving"]

_START_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """Ours, without what somebody may have set for servers of their own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")} | variables


class Running:
    """A server that said where it listens."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for_line(self, part: str) -> str:
        """The first line of the log with that in it; the log is read until it comes or ends."""
        for _ in range(3_000):
            for line in list(self.lines):
                if part in line:
                    return line
            if not self._reader.is_alive():
                break
            self._reader.join(0.01)
        raise AssertionError(f"no line with {part!r} in {self.lines}")

    def wait_until_ready(self) -> None:
        """Until its log is open, which may come after it listens. Its certificate may be one of its own."""
        with self.client(verify=False) as client:
            while self.process.poll() is None and client.get("/v0/ready").status_code == 503:
                self._reader.join(0.01)

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, **options)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Until it has ended by itself; returns its exit code."""
        code = self.process.wait(timeout=60)
        self._reader.join(10)
        return code

    def stop(self) -> int:
        """Gracefully."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()


@contextmanager
def serving(data: Path, *flags: str | Path, is_awaited: bool = True, **variables: str) -> Iterator[Running]:
    """A server on a data directory, stopped at the end; it is killed only where it does not stop. Its log is open,
    unless that ``is_awaited`` not.
    """
    command: list[str | Path] = [
        Path(sys.executable).with_name("tenure"),
        "serve",
        "--data",
        data,
        "--port",
        "0",
        *flags,
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables)
    )
    watchdog = threading.Timer(_START_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        watchdog.cancel()
        assert line.startswith("listening on "), line + process.stderr.read()
        running = Running(process, line.split()[-1])
        if is_awaited:
            running.wait_until_ready()
        yield running
        running.stop()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
