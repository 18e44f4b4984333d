"""`TimersSettings`: every limit and time of the timers, with its unit in its name."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.limits import MIB, check_limits

__all__ = ["BATCH_MAX", "TimersSettings"]

BATCH_MAX: Final = 1_000
"""The most timers that one script may touch: Lua passes no more than 8,000 values to a call."""


class TimersSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the timers. Raises Invalid for a number out of range."""

    payload_bytes_max: int = 1 * MIB
    """The largest payload."""
    id_bytes_max: int = 256
    """The longest timer id."""
    reason_bytes_max: int = 1_024
    """The longest reason of a nack or a reject; a longer one is cut."""
    batch_max: int = 1_000
    """How many timers one script handles; larger calls are split."""
    batch_bytes_max: int = 8 << 20
    """Payload bytes of one script; a claim takes fewer timers, but always one."""
    timers_max: int = 1_000_000
    """Timers of one topic, waiting, leased and dead; a schedule beyond it is Overloaded (``topic_full``)."""
    delay_ms_max: int = 10 * 366 * 86_400_000
    """How far ahead a timer may lie."""
    lease_ttl_ms: int = 30_000
    """How long a claim holds a timer unless it is extended."""
    lease_ttl_ms_max: int = 12 * 3_600_000
    max_deliveries: int = 5
    """After how many deliveries a timer becomes a dead letter instead of being handed out again."""
    connect_ms: int = 5_000
    """How long opening a connection may take."""
    answer_ms: int = 10_000
    """How long an answer may take before its outcome counts as unknown."""
    attempts_max: int = 8
    """The most attempts of one call."""
    retry_for_ms: int = 15_000
    """How long after its first attempt a call may be sent again; operations are remembered for 60 s."""
    backoff_min_ms: int = 25
    backoff_max_ms: int = 2_000
    """The wait before the n-th repeat is drawn from 0 to min * 2**(n - 1), and never above max."""
    connections_max: int = 32
    """Calls at once to a server, or to each node of a cluster; the others wait in line for ``connect_ms`` at most."""
    topics_max: int = 10_000
    """Topics with waiters, all on one subscription; a wait beyond it is Overloaded (``too_many_topics``)."""
    wait_max_ms: int = 15_000
    """How long a wait sleeps before it reads the head again, in case a wake-up was lost unnoticed."""
    poll_ms: int = 500
    """As ``wait_max_ms``, while pub/sub is refused or broken."""

    def __post_init__(self) -> None:
        check_limits(self, zero=_MAY_BE_ZERO, most=_AT_MOST)


_MAY_BE_ZERO = frozenset({"retry_for_ms", "backoff_min_ms"})
_AT_MOST = {
    "batch_max": BATCH_MAX,
    "id_bytes_max": 4_096,
    "payload_bytes_max": 64 * MIB,
    "retry_for_ms": 30_000,
    "answer_ms": 15_000,
    "connect_ms": 10_000,
    "delay_ms_max": 100 * 366 * 86_400_000,
}
