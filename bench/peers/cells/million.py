"""A long queue: what the server holds in memory with it, and how long it takes to serve again after a restart."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.peers.names import fresh
from bench.peers.payload import payload
from bench.peers.peer import Queue
from bench.peers.registry import Peer
from bench.peers.scale import Scale
from bench.peers.server import memory_mb

__all__ = ["measure"]

_BATCH = 1_000
_PATIENCE_S = 600


def measure(peer: Peer, scale: Scale) -> dict[str, float]:
    """Fill a server of its own, then return its memory in MB and the seconds from its start to a job acked."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
        Path(home).chmod(0o755)
        service = peer.load("service")(Path(home))
        service.start()
        try:
            name = fresh()
            queue: Queue = peer.load("queue")(service.port, name)
            queue.produce(payload(), batch=_BATCH, calls=-(-scale.queued // _BATCH))
            held_mb = memory_mb(service.pids())  # with the connection: shared memory counts for those that touched it
            queue.close()
            service.stop()
            started = time.perf_counter()
            service.start()
            _claim_one(peer, service.port, name)
            return {"memory": held_mb, "restart": time.perf_counter() - started}
        finally:
            service.stop()


def _claim_one(peer: Peer, port: int, name: str) -> None:
    """Claim and ack one job, as often as it takes: a server that loads its data refuses or answers with nothing."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            queue = peer.load("probe")(port, name)
            try:
                if queue.claim_ack(batch=1, calls=1):
                    return
            finally:
                queue.close()
        except Exception:  # each client has errors of its own for a server that is not ready
            if time.monotonic() > end:
                raise
        if time.monotonic() > end:
            raise RuntimeError("the server has no job after its restart")
        time.sleep(0.005)
