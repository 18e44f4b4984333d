"""A lease and its parts, and the report of one that ran out."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

__all__ = ["Ended", "Lease"]


class Lease(msgspec.Struct, gc=False, eq=False):
    """A part of one claim's hold on jobs: those with one deadline. ``left`` counts the jobs that it still holds.

    A claim starts as one part. An extend of only some of its jobs splits off a part of the same number, whose ``first``
    is the part that the claim started as. That one stays in ``Queue.leases`` until the last part has ended, even when
    it holds nothing itself; its ``runs`` cover the whole claim, and ``apart`` counts the jobs of all split-off parts.
    It does not refer to them: the garbage collector does not track leases, so they may not form a cycle.
    ``indexed_ms`` is the deadline under which `LeasesByDeadline` has the part, and 0 before it does.
    """

    number: int
    node: str
    since_ms: int
    deadline_ms: int
    left: int
    runs: list[int]
    claim_id: str | None = None
    first: Lease | None = None
    apart: int = 0
    indexed_ms: int = 0


class Ended(NamedTuple):
    """A lease that ran out: what event streams and worker streams report."""

    lease: int
    node: str
    deadline_ms: int
    runs: list[int]
