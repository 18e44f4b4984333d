"""A lease as others see it, and the report of one that ran out."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

__all__ = ["Ended", "Lease"]


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A lease, copied from `LeaseTable`: of one job with its deadline, or of a claim with the earliest of its jobs."""

    number: int
    node: str
    since_ms: int
    deadline_ms: int
    claim_id: str | None = None


class Ended(NamedTuple):
    """A lease that ran out: what event streams and worker streams report. ``end`` is expired, or lost for one that
    isolates.
    """

    lease: int
    node: str
    deadline_ms: int
    runs: list[int]
    end: str = "expired"
