"""Both at once: one process puts batches of 100 while another claims and acks them."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from queue import Empty
from typing import Any

from bench.peers.names import fresh
from bench.peers.payload import payload
from bench.peers.registry import Peer
from bench.peers.scale import Scale

__all__ = ["measure"]

_BATCH = 100
_PATIENCE_S = 60


def measure(peer: Peer, port: int, scale: Scale) -> dict[str, float]:
    """Return the jobs per second that were acked while others were put."""
    context = multiprocessing.get_context("spawn")
    barrier, acked = context.Barrier(2), context.Queue()
    name = fresh()
    peer.load("queue")(port, name).close()
    sides = [
        context.Process(target=_produce, args=(peer, port, name, scale.seconds, barrier)),
        context.Process(target=_claim, args=(peer, port, name, scale.seconds, barrier, acked)),
    ]
    for side in sides:
        side.start()
    try:
        return {"both-100": float(acked.get(timeout=scale.seconds + _PATIENCE_S))}
    except Empty:
        raise RuntimeError("a process of the cell ended early") from None
    finally:
        for side in sides:
            side.join(_PATIENCE_S)
            side.kill()


def _produce(peer: Peer, port: int, name: str, seconds: float, barrier: Barrier) -> None:
    queue, job = peer.load("queue")(port, name), payload()
    barrier.wait(_PATIENCE_S)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        queue.produce(job, batch=_BATCH, calls=1)
    queue.close()


def _claim(peer: Peer, port: int, name: str, seconds: float, barrier: Barrier, acked: Any) -> None:
    queue, count = peer.load("queue")(port, name), 0
    barrier.wait(_PATIENCE_S)
    started = time.perf_counter()
    while time.perf_counter() < started + seconds:
        count += queue.claim_ack(batch=_BATCH, calls=1)
    acked.put(count / (time.perf_counter() - started))
    queue.close()
