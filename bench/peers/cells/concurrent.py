"""Concurrent single producers: many connections, one job a call, one call outstanding on each."""

from __future__ import annotations

from bench.peers.names import fresh
from bench.peers.payload import payload
from bench.peers.registry import Peer
from bench.peers.scale import Scale

__all__ = ["measure"]


def measure(peer: Peer, port: int, scale: Scale) -> dict[str, float]:
    """Return the jobs per second of all producers together."""
    name, queue = fresh(), peer.load("queue")
    queue(port, name).close()
    rate = queue.concurrent_rate(port, name, payload(), connections=scale.connections, seconds=scale.seconds)
    return {"concurrent-32": rate}
