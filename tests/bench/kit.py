"""Results and peers made up for the tests of the harness: no server is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.peer import Missing, Queue
from bench.peers.registry import Peer
from bench.peers.results import PeerFacts, Results

__all__ = ["FakePeer", "made_up"]


def made_up(**figures: dict[str, list[float]]) -> Results:
    """Return results with these figures by cell (an underscore for the dash) and peer."""
    results = Results(
        date="2026-01-01", machine={"processor": "one"}, scale={"rounds": 5, "queued": 1_000_000}, busy_cores=[0.1]
    )
    for cell, by_peer in figures.items():
        name = cell.replace("_", "-")
        results.figures[name] = by_peer
        results.syncs_per_s[name] = [5_000.0]
        results.echoes_per_s[name] = [30_000.0]
        for peer in by_peer:
            facts = PeerFacts(f"The {peer}", "1.0", "client 1", "sync always", leases=peer != "redis-list")
            results.peers[peer] = facts
    return results


class FakeService:
    """A server that is there at once."""

    port = 1

    def __init__(self, home: Path) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def pids(self) -> list[int]:
        return []

    def version(self) -> str:
        return "Fake 1.0"

    def settings(self) -> str:
        return "none"


class MissingService(FakeService):
    """A server that cannot be had."""

    def __init__(self, home: Path) -> None:
        raise Missing("no such package")


class FakeQueue(Queue):
    """A queue that counts."""

    client = "none"
    syncs = "0 / 0"

    def __init__(self, port: int, name: str) -> None:
        self.count = 0

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        self.count += batch * calls

    def claim_ack(self, *, batch: int, calls: int) -> int:
        taken = min(self.count, batch * calls)
        self.count -= taken
        return taken

    def receive(self) -> Iterator[bytes]:
        raise NotImplementedError

    def close(self) -> None: ...


class LossyQueue(FakeQueue):
    """A queue that forgets half of what it was given."""

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        self.count += batch * calls // 2


class FakePeer(Peer, frozen=True):
    """A peer whose classes are in this file."""

    def load(self, kind: str) -> Any:
        return globals()[getattr(self, kind) or self.queue]
