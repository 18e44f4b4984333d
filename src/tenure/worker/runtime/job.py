"""`HeldJob`: one delivery of a job, with its lease and its deadline on our clock."""

from __future__ import annotations

import msgspec

__all__ = ["HeldJob"]


class HeldJob(msgspec.Struct, gc=False, eq=False, kw_only=True):
    """One delivery. The heartbeat sets ``lost``; the context and the settler set ``settled``; the `Extender` moves the
    other fields of the lease.

    ``deadline_ms`` is on the runtime's `Timing.now_ms`, never on the wall clock, and is counted from before the request
    that got the lease, so that it ends before the broker's. ``beat_ms`` is when the next heartbeat is due, ``lease_ms``
    the longest extend asked for (0: the task's lease); ``extends_begun`` and ``extends_open`` count requests. Two
    deliveries of one seq are two objects and never equal. For a timer, ``seq`` is the version, ``ts`` the time it was
    due, and ``failures`` is known from the claim.

    ``lost_count`` is how often its worker was lost since the last verdict, which makes it a suspect. ``tries`` are the
    deliveries that count against ``max_deliveries``; 0 where all of them do.
    """

    topic: str
    seq: int
    lease_id: str
    node: str
    data: bytes
    meta: bytes | None = None
    tag: str | None = None
    ts: int = 0
    deliveries: int = 1
    tries: int = 0
    lost_count: int = 0
    failures: int = 0
    timer_id: str | None = None
    deadline_ms: int = 0
    beat_ms: int = 0
    lease_ms: int = 0
    extends_begun: int = 0
    extends_open: int = 0
    lost: bool = False
    settled: bool = False

    @property
    def tries_count(self) -> int:
        """How many deliveries count as tries, this one included."""
        return self.tries or self.deliveries
