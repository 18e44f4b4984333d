"""`ClientSettings`: every limit and time of a client."""

from __future__ import annotations

import msgspec

from tenure.limits import check_limits

__all__ = ["ClientSettings"]


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client waits, repeats and bounds what it holds. Raises Invalid for a bad number."""

    connections_max: int = 32
    """Connections for calls; also how many produces run at once, because each holds a lane."""
    streams_max: int = 64
    """Connections for work, watch and event streams, beside the others."""
    connect_ms: int = 5_000
    """How long making a connection may take, whichever of the addresses of its host it is to."""
    acquire_ms: int = 30_000
    """How long a call may wait for a free connection or lane before it is Overloaded (``busy``)."""
    answer_ms: int = 30_000
    """How long a whole answer may take, on top of the ``wait_ms`` that the call itself asks for."""
    idle_ms: int = 15_000
    """How long an unused connection is kept; shorter than the server keeps it, so that none is found dead."""
    stream_idle_ms: int = 60_000
    """How long a stream may be silent before it counts as broken; the server sends a heartbeat every 15 s."""
    response_bytes_max: int = 256 << 20
    """The largest answer that is read."""
    frame_bytes_max: int = 16 << 20
    """The largest event of a stream."""
    attempts_max: int = 8
    """How often one call is sent at most."""
    retry_for_ms: int = 30_000
    """How long after its first attempt a call may be sent again."""
    backoff_min_ms: int = 50
    backoff_max_ms: int = 5_000
    """The wait before the n-th repeat is drawn from 0 to min * 2**(n - 1), and never above max."""
    retry_after_max_ms: int = 30_000
    """A ``Retry-After`` is kept, plus up to as much again by chance; a longer one than this is cut."""
    seek_max_ms: int = 200
    """As ``backoff_max_ms``, for a client of several servers while none of them is known to lead. Such attempts are not
    counted: a failover takes a few seconds, and ``retry_for_ms`` alone bounds them."""
    look_ms: int = 500
    """A client of several servers asks the others who leads once an answer is late by so much; each step of the
    question takes at most as long."""
    look_again_ms: int = 100
    """The least pause between two such looks; it grows to a twentieth of the time that was waited."""
    stream_look_ms: int = 3_000
    """The same for a stream that is silent; each pause is as long as the silence before it."""
    follow_with_key: bool = False
    """Whether a server that another one names as the leader gets the key, although it is not in the client's URL. A
    client without a key goes there in any case, but never from https to http."""
    leave_ms: int = 1_000
    """How long a wait may take when a ``with`` of a lease is left by a cancellation or an interrupt: its jobs are given
    back by one attempt, so that leaving is not held up. Where that fails, the lease ends by itself."""
    reconnect_min_ms: int = 100
    reconnect_max_ms: int = 10_000
    """As the back-off, for streams that resume by themselves."""
    reconnect_for_ms: int = 0
    """How long a stream that resumes tries to come back before it raises, counted from the cut; 0 is for ever. An item
    ends the outage, and so does a connection that has held for ``reconnect_max_ms``."""

    def __post_init__(self) -> None:
        check_limits(self, zero=_MAY_BE_ZERO)


_MAY_BE_ZERO = frozenset({"reconnect_for_ms", "retry_for_ms", "backoff_min_ms", "reconnect_min_ms"})
