"""Whole tasks: what one worker process gets through, and how soon an idle one enters a handler."""

from __future__ import annotations

from bench.peers.fleet import Fleet
from bench.peers.registry import Peer
from bench.peers.results import PeerFacts
from bench.peers.scale import Scale

__all__ = ["facts", "measure"]


def facts(peer: Peer, fleet: Fleet) -> PeerFacts:
    raise NotImplementedError


def measure(peer: Peer, port: int, scale: Scale, group: frozenset[str]) -> dict[str, float]:
    raise NotImplementedError
