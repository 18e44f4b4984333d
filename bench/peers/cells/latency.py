"""End-to-end latency at a fixed rate: from the call that puts a job to the consumer that holds it."""

from __future__ import annotations

import multiprocessing
import time
from queue import Empty
from typing import Any

from bench.peers.names import fresh
from bench.peers.payload import payload, sent_ns
from bench.peers.quantile import quantile
from bench.peers.registry import Peer
from bench.peers.scale import Scale

__all__ = ["measure"]

_PATIENCE_S = 60
_WARM = 50
"""Jobs at the start that are not counted: connections, caches and prepared statements."""


def measure(peer: Peer, port: int, scale: Scale) -> dict[str, float]:
    """Return p50 and p99 in ms."""
    name, count = fresh(), int(scale.latency_seconds * scale.latency_per_s) + _WARM
    context = multiprocessing.get_context("spawn")
    waits = context.Queue()
    queue = peer.load("queue")(port, name)
    consumer = context.Process(target=_consume, args=(peer, port, name, count, waits))
    consumer.start()
    try:
        if waits.get(timeout=_PATIENCE_S) != "ready":
            raise RuntimeError("the consumer did not start")
        _put_at_rate(queue, count, scale.latency_per_s)
        found = waits.get(timeout=_PATIENCE_S)[_WARM:]
    except Empty:
        raise RuntimeError("the consumer did not receive every job") from None
    finally:
        queue.close()
        consumer.join(5)
        consumer.kill()
    return {"latency-p50": quantile(found, 0.5) / 1e6, "latency-p99": quantile(found, 0.99) / 1e6}


def _put_at_rate(queue: Any, count: int, per_s: int) -> None:
    """Put jobs at fixed times. A job that is late because a call before it was slow counts from when it was due."""
    step_ns = 1_000_000_000 // per_s
    due_ns = time.monotonic_ns()
    for _ in range(count):
        due_ns += step_ns
        early_ns = due_ns - time.monotonic_ns()
        if early_ns > 0:
            time.sleep(early_ns / 1e9)
        queue.produce(payload(time.monotonic_ns() if early_ns > 0 else due_ns), batch=1, calls=1)


def _consume(peer: Peer, port: int, name: str, count: int, waits: Any) -> None:
    queue, found = peer.load("queue")(port, name), []
    waits.put("ready")
    for data in queue.receive():
        found.append(time.monotonic_ns() - sent_ns(data))
        if len(found) == count:
            break
    waits.put(found)
