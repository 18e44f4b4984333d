"""Whole tasks: what one worker process gets through, and how soon an idle one enters a handler."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from bench.peers.environment import child_environment
from bench.peers.fleet import Fleet, client_version
from bench.peers.names import fresh
from bench.peers.quantile import quantile
from bench.peers.registry import Peer
from bench.peers.results import PeerFacts
from bench.peers.scale import Scale

__all__ = ["facts", "measure"]

_MARK_BYTES = 20
_PATIENCE_S = 300
_WARM = 5
"""Tasks at the start that are not counted in latencies."""
_WORKER = "import sys, importlib; m = importlib.import_module(sys.argv[1]); print(*m.worker(), sep='\\n')"


def facts(peer: Peer, fleet: Fleet) -> PeerFacts:
    """Return what the page says of a framework. Raises Missing."""
    service = fleet.service(peer)
    framework = import_module(f"bench.peers.tasks.{peer.queue}")
    return PeerFacts(
        title=peer.title,
        version=service.version(),
        client=client_version(framework.CLIENT),
        settings=service.settings(),
        notes=framework.NOTES,
    )


def measure(peer: Peer, port: int, scale: Scale, group: frozenset[str]) -> dict[str, float]:
    """Return tasks per second, or the latency of an idle worker in ms."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
        marks = Path(home) / "marks"
        marks.touch()
        environment = child_environment(BENCH_PORT=str(port), BENCH_QUEUE=fresh(), BENCH_MARKS=str(marks))
        if "tasks" in group:
            return {"tasks": _rate(peer.queue, environment, marks, scale)}
        _put(peer.queue, "many", _WARM, environment)
        with _worker(peer.queue, environment, Path(home) / "log"):
            _until(marks, _WARM, _PATIENCE_S)
            _put(peer.queue, "idle", scale.idle_puts + _WARM, environment)
        waits = [int(line) / 1e6 for line in marks.read_text().split()[2 * _WARM :]]
    return {"idle-p50": quantile(waits, 0.5), "idle-p99": quantile(waits, 0.99)}


def _rate(framework: str, environment: dict[str, str], marks: Path, scale: Scale) -> float:
    """Return tasks per second from the first handler to the last, or for as long as the worker is watched."""
    _put(framework, "many", scale.tasks, environment)
    with _worker(framework, environment, marks.with_name("log")):
        first = _until(marks, 1, _PATIENCE_S)
        started = time.perf_counter()
        last = _until(marks, scale.tasks, scale.tasks_seconds)
        return (last - first) / (time.perf_counter() - started)


def _until(marks: Path, count: int, seconds: float) -> int:
    """Wait until that many tasks were handled, or for that long; return how many were."""
    end = time.monotonic() + seconds
    while (found := marks.stat().st_size // _MARK_BYTES) < count and time.monotonic() < end:
        time.sleep(0.002)
    if not found:
        raise RuntimeError(f"the worker handled nothing: {marks.with_name('log').read_text()[-300:]}")
    return found


def _put(framework: str, how: str, count: int, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bench.peers.tasks.put", framework, how, str(count)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S + count, check=False
    )
    if done.returncode:
        raise RuntimeError(f"putting tasks failed: {done.stderr[-300:]}")


@contextmanager
def _worker(framework: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    """One worker process, stopped by its process id."""
    module = f"bench.peers.tasks.{framework}"
    asked = subprocess.run(
        [sys.executable, "-c", _WORKER, module], env=environment, capture_output=True, text=True, check=True
    )
    with log.open("wb") as output:
        child = subprocess.Popen(asked.stdout.splitlines(), env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, 9)
            child.wait()
