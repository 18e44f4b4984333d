"""The types that `Timers` takes and returns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar, overload

import msgspec

__all__ = [
    "At",
    "Cancelled",
    "Delay",
    "Extended",
    "Held",
    "NewTimer",
    "OnConflict",
    "Redriven",
    "Scheduled",
    "Settled",
    "State",
    "Stats",
    "Timer",
    "TimerInfo",
]

T = TypeVar("T")

Delay: TypeAlias = int | timedelta
"""How long from now, by the server's clock: milliseconds, or a timedelta."""

At: TypeAlias = int | datetime
"""A moment on the server's wall clock: milliseconds since the epoch, or a datetime with a time zone."""

OnConflict = Literal["replace", "keep", "error"]
"""The effect of a schedule on an id that exists already, waiting or running."""

Cancelled = Literal["cancelled", "in_flight", "unknown"]
"""Removed; held by a worker and left alone; not there."""

State = Literal["waiting", "in_flight", "dead"]


class NewTimer(msgspec.Struct, frozen=True, kw_only=True):
    """One timer of ``schedule_many``; every field is as the argument of ``schedule`` of its name."""

    payload: Any
    delay: Delay | None = None
    at: At | None = None
    timer_id: str | None = None


class Scheduled(msgspec.Struct, frozen=True):
    """The timer that Redis now holds under this id.

    ``outcome``: ``created``, ``replaced`` another version, or ``kept`` (the earlier one stays, and ``version`` and
    ``due_ms`` are its own).
    """

    timer_id: str
    due_ms: int
    version: int
    outcome: Literal["created", "replaced", "kept"]


class Held(msgspec.Struct, frozen=True):
    """The key to settle a timer: its id, its version and its lease token."""

    timer_id: str
    token: bytes
    version: int


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer handed out on a lease. Settle it before ``deadline_ms`` (the server's clock), or extend it.

    ``deliveries`` counts this one. ``failures`` counts those that ended in a nack with a reason.
    ``lease_ms`` is how long the lease runs from the claim, for a worker's own clock.
    """

    topic: str
    timer_id: str
    payload: bytes
    token: bytes
    version: int
    deliveries: int
    failures: int
    due_ms: int
    deadline_ms: int
    lease_ms: int

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = Any) -> Any:
        """Return the payload decoded from JSON, into ``kind`` where given. Raises msgspec's errors where it does not
        fit.
        """
        return msgspec.json.decode(self.payload, type=kind)


class Settled(msgspec.Struct, frozen=True):
    """The result of a commit, reject or nack.

    Nothing changed for the ids in ``lost`` (the lease is no longer the caller's) and in ``superseded`` (a newer version
    has the id). ``dead`` are those whose deliveries are spent. Where ``repeated`` is true an earlier copy of
    the call may have arrived, and then a ``lost`` one may have been settled by it.
    """

    count: int
    lost: list[str]
    superseded: list[str]
    dead: list[str]
    repeated: bool = False


class Extended(msgspec.Struct, frozen=True):
    """The deadline (the server's clock) of the timers still held, and the ids of those that are not."""

    count: int
    deadline_ms: int
    lost: list[str]
    superseded: list[str]


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters are timers again; ``skipped`` versions are unchanged: their id is in use, or
    they are gone.
    """

    count: int
    skipped: list[int]


class TimerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a timer, for operators: where ``state`` is ``in_flight``, ``node`` holds it until ``at_ms``.

    ``at_ms`` is when it may be handed out (waiting), when its lease runs out, or when it died. An ``in_flight`` one
    whose ``at_ms`` has passed is handed out by the next claim.
    """

    topic: str
    timer_id: str
    state: State
    payload: bytes
    version: int
    deliveries: int
    failures: int
    due_ms: int
    at_ms: int
    node: str
    reason: str


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in numbers: what is there now, and counters since its first timer."""

    scheduled: int
    """Waiting for their time."""
    ready: int
    """Due and not held, including lapsed leases."""
    in_flight: int
    dead: int
    lag_ms: int
    """For how long the oldest ready one has been due; 0 where none is."""
    next_due_ms: int | None
    """When the next timer is due or the next lease lapses, on the server's clock."""
    now_ms: int
    scheduled_total: int
    replaced_total: int
    delivered_total: int
    lapsed_total: int
    """Deliveries of timers whose earlier lease ran out."""
    committed_total: int
    nacked_total: int
    dead_total: int
    cancelled_total: int
    redriven_total: int
    orphaned_total: int
    """Timers dropped because Redis lost a part of them."""
