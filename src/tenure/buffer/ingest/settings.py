"""Every limit and time of an ingest run, in one place."""

from __future__ import annotations

import msgspec

from tenure.limits import MIB, check_limits

__all__ = ["IngestSettings"]


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may hold and how long it waits."""

    read_ahead_max: int = 16
    """Batches that are fetched or decoded at once, or wait to be written."""
    bytes_max: int = 256 * MIB
    """Their bytes, once decoded; a batch that is larger than this goes alone."""
    write_batches_max: int = 64
    """Batches in one commit of the sink."""
    write_attempts_max: int = 10
    """How often a write that did not happen is repeated before the run gives up."""
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000
    """The first and the greatest bound of the wait before a repeat; it doubles in between, and the wait is drawn from 0
    to it."""
    poll_ms: int = 100
    """Between two looks for batches where there was none."""
    ack_ms: int = 1_000
    """Between two acknowledgements, each of which costs requests; the table itself knows at once what it holds."""

    def __post_init__(self) -> None:
        check_limits(self, zero={"backoff_ms", "ack_ms"})
