"""Produce, then claim and ack, in batches of 1, 100 and 1,000: one connection, one call outstanding."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.peers.cell import BATCHES
from bench.peers.names import fresh
from bench.peers.payload import payload
from bench.peers.peer import Queue
from bench.peers.scale import Scale

__all__ = ["claim_all", "measure", "produce_some"]

Opener = Callable[[str], Queue]
_CHUNK_JOBS = 50
"""Jobs between two looks at the clock, at least one call."""


def measure(connect: Opener, scale: Scale, groups: frozenset[str]) -> dict[str, float]:
    """Return jobs per second of each cell of the groups ``produce`` and ``claim`` that was asked for."""
    rates = {}
    for batch in BATCHES:
        queue = connect(fresh())
        try:
            count, rate = produce_some(queue, scale, batch=batch)
            if "produce" in groups:
                rates[f"produce-{batch}"] = rate
            if "claim" in groups:
                rates[f"claim-{batch}"] = claim_all(queue, count, batch=batch, seconds=scale.seconds)
        finally:
            queue.close()
    return rates


def produce_some(queue: Queue, scale: Scale, *, batch: int) -> tuple[int, float]:
    """Put until the count or the time is reached; return how many jobs, and jobs per second."""
    job, calls, count = payload(), max(1, _CHUNK_JOBS // batch), 0
    started = time.perf_counter()
    while count < scale.jobs_max and time.perf_counter() < started + scale.seconds:
        queue.produce(job, batch=batch, calls=calls)
        count += batch * calls
    return count, count / (time.perf_counter() - started)


def claim_all(queue: Queue, count: int, *, batch: int, seconds: float) -> float:
    """Claim and ack what was put, for at most that long; return jobs per second.

    Raises RuntimeError where the queue is empty before it should be: the peer lost jobs, or was asked wrongly.
    """
    calls, done = max(1, _CHUNK_JOBS // batch), 0
    started = time.perf_counter()
    while done < count and time.perf_counter() < started + seconds:
        got = queue.claim_ack(batch=batch, calls=calls)
        if not got:
            raise RuntimeError(f"the queue is empty after {done:,} of {count:,} jobs")
        done += got
    return done / (time.perf_counter() - started)
