"""The marker of an Iceberg table: the newest of our snapshots that its main branch is built on.

A snapshot carries the commit's identity as its ``wap.id``, or as ``published-wap-id`` where it was published after
another writer's; one that pyiceberg wrote carries it as ``tenure.commit``. Only ancestors of the main branch count: a
staged snapshot that was not published holds nothing.

Snapshots expire, so a table property repeats the sequence. A property stays where a table is rolled back, so it counts
only where the snapshots do not contradict it: none of ours is left, and older ones have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tenure.buffer.ingest.sink import Commit

__all__ = ["Snapshot", "held_high", "high_of", "property_of", "wap_id_of"]


class Snapshot(NamedTuple):
    """The fields of a table's snapshot that the marker needs."""

    number: int
    parent: int | None
    committed_ms: int
    staged_as: str | None
    published_as: str | None
    noted_as: str | None = None
    added: int | None = None
    """Rows that it added."""


def wap_id_of(commit: Commit) -> str:
    """Return the identity of a commit, as its snapshot carries it."""
    return f"tenure/{commit}"


def property_of(buffer: str, sink: str) -> str:
    """Return the table property that repeats the sequence."""
    return f"tenure.{buffer}.{sink}"


def high_of(wap_id: str | None, buffer: str, sink: str) -> int | None:
    """Return the last sequence of one of our identities; None for any other."""
    prefix = f"tenure/{buffer}/{sink}/"
    if wap_id is None or not wap_id.startswith(prefix):
        return None
    high = wap_id.removeprefix(prefix).partition("/")[0].partition("-")[2]
    return int(high) if high.isascii() and high.isdigit() else None


def held_high(
    snapshots: Mapping[int, Snapshot], head: int | None, *, buffer: str, sink: str, remembered: str | None
) -> int | None:
    """Return the last sequence that a table holds whose main branch ends at ``head``; None where it holds none.

    ``remembered`` is the table's property. Our newest snapshot in the branch is right by itself, also where it is below
    the property: the table was rolled back. Without one of ours, the property is right if older snapshots have expired.
    """
    line = list(_line(snapshots, head))
    names = (name for each in line for name in (each.staged_as, each.published_as, _with_prefix(each.noted_as)))
    highs = [high for name in names if (high := high_of(name, buffer, sink)) is not None]
    if highs:
        return max(highs)
    whole = not line or line[-1].parent is None
    return None if whole or remembered is None else int(remembered)


def _with_prefix(noted: str | None) -> str | None:
    return None if noted is None else f"tenure/{noted}"


def _line(snapshots: Mapping[int, Snapshot], head: int | None) -> Iterator[Snapshot]:
    """Yield the snapshot and its ancestors, newest first, up to those that have expired."""
    while head is not None and head in snapshots:
        yield snapshots[head]
        head = snapshots[head].parent
