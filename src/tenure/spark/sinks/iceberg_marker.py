"""How far an Iceberg table is: the newest of our snapshots that its main branch is built on.

A snapshot carries the commit's identity as its ``wap.id``, or as ``published-wap-id`` where it was published behind
another writer's. Only ancestors of the main branch count: a staged snapshot that nobody published holds nothing.
Snapshots expire, so a table property repeats the sequence. It is written behind the snapshot, so it is never ahead of
the truth, and the greater of the two is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tenure.buffer.sinks import Commit

__all__ = ["Snapshot", "high_of", "property_of", "published_high", "wap_id_of"]


class Snapshot(NamedTuple):
    """What is asked of a snapshot of a table."""

    number: int
    parent: int | None
    committed_ms: int
    staged_as: str | None
    published_as: str | None


def wap_id_of(commit: Commit) -> str:
    """The identity of a commit, as its snapshot carries it."""
    return f"tenure/{commit}"


def property_of(buffer: str, sink: str) -> str:
    """The table property that repeats the sequence."""
    return f"tenure.{buffer}.{sink}"


def high_of(wap_id: str | None, buffer: str, sink: str) -> int | None:
    """The last sequence of one of our identities; None for anybody else's."""
    prefix = f"tenure/{buffer}/{sink}/"
    if wap_id is None or not wap_id.startswith(prefix):
        return None
    high = wap_id.removeprefix(prefix).partition("/")[0].partition("-")[2]
    return int(high) if high.isascii() and high.isdigit() else None


def published_high(snapshots: Mapping[int, Snapshot], head: int | None, *, buffer: str, sink: str) -> int | None:
    """What the snapshots behind ``head``, where the main branch ends, say; None where none of them is ours."""
    told = (name for snapshot in _line(snapshots, head) for name in (snapshot.staged_as, snapshot.published_as))
    highs = (high_of(name, buffer, sink) for name in told)
    return max((high for high in highs if high is not None), default=None)


def _line(snapshots: Mapping[int, Snapshot], head: int | None) -> Iterator[Snapshot]:
    """The snapshot and its ancestors, newest first, up to those that have expired."""
    while head is not None and head in snapshots:
        yield snapshots[head]
        head = snapshots[head].parent
