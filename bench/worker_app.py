"""The app that `make bench-client` runs in a worker process: handlers that do nothing, or tell when they began."""

from __future__ import annotations

import os
import socket
import time

import tenure

app = tenure.App(os.environ["BENCH_URL"])
bell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bell.connect(("127.0.0.1", int(os.environ["BENCH_BELL_PORT"])))


@app.task("trivial")
async def trivial(job: dict[str, str]) -> None:
    """Do nothing."""


@app.task("latency")
async def latency(job: dict[str, str]) -> None:
    """Ring the bell with the time of entering: the clock is the machine's, so both processes read the same."""
    bell.send(b"%d" % time.monotonic_ns())
