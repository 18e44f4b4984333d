"""The server that the hostile benchmarks start, and the memory that it has."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.attacks import KEYS

__all__ = ["resident_bytes", "server"]


@contextmanager
def server(home: Path, *, tls: bool = False, keys: str = KEYS) -> Iterator[tuple[int, int]]:
    """A server with these keys, or none, on a free port: (port, process id)."""
    flags = ["--tls-cert", str(home / "cert.pem"), "--tls-key", str(home / "key.pem")] if tls else []
    child = subprocess.Popen(
        [sys.executable, "-m", "tenure.cli.main", "serve", "--data", str(home / "data"), "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=(home / "log").open("w"),
        text=True,
        env={**os.environ, "TENURE_API_KEYS": keys},
    )
    assert child.stdout is not None
    try:
        found = re.search(r"://127\.0\.0\.1:(\d+)", child.stdout.readline())
        if found is None:
            raise SystemExit((home / "log").read_text())
        yield int(found[1]), child.pid
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(30)


def resident_bytes(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
