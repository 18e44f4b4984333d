"""Every limit and time of the buffer, in one place."""

from __future__ import annotations

import msgspec

from tenure.errors import Invalid
from tenure.limits import KIB, MIB, check_limits
from tenure.objects.store import ObjectStore, open_store

__all__ = ["FOOTER_BYTES_MAX", "RETAIN_FOR_MS_MAX", "BufferSettings"]

FOOTER_BYTES_MAX = 64 * MIB
"""The bytes of its calls in a batch's footer, at most: Parquet readers refuse a footer beyond 100 MB."""
RETAIN_FOR_MS_MAX = 100 * 365 * 86_400_000
"""The longest retention of a buffer."""


class BufferSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of producers, consumers and collectors."""

    # Producing
    flush_bytes: int = 16 * MIB
    """A batch is flushed when its entries reach this many bytes, or half of what may be in flight."""
    flush_interval_ms: int = 1_000
    """A batch is flushed this long after its first entry, if no caller waits for it: later means fewer requests."""
    flush_awaited_ms: int = 100
    """A batch is flushed this long after its first entry, once a caller waits for it by ``durable()``."""
    inflight_bytes_max: int = 256 * MIB
    """Entry bytes that a producer holds, from produce until they are durable; produce waits beyond."""
    inflight_calls_max: int = 100_000
    """Produce calls that are not durable yet; produce waits beyond."""
    call_bytes_max: int = 128 * MIB
    """Entry bytes of one produce call."""
    call_entries_max: int = 1_000_000
    """Entries of one produce call."""
    metadata_bytes_max: int = 64 * 1024
    """Metadata of one produce call."""
    uploads_max: int = 4
    """Batches of one producer that are encoded and uploaded at once."""
    compression_level: int = 1
    """zstd's level; 1 costs little and halves most text."""

    # Committing
    commit_batches_max: int = 512
    """Batches in one delta."""
    commit_attempts_max: int = 200
    """Attempts to take a number against other writers before giving up."""
    call_attempts_max: int = 8
    """Attempts of one store call whose outcome is unknown, before it counts as failed; ``delivery_timeout_ms`` is the
    bound of those that deliver a batch."""
    delivery_timeout_ms: int = 120_000
    """Failures of the store that a sealed batch bears, over all its calls, before it is given up."""
    request_timeout_ms: int = 30_000
    """The time for one request to a store that is opened by its URL, before it counts as failed."""
    request_bytes_per_s_min: int = 64 * KIB
    """The slowest transfer that a request may have: it gets the time for its bytes beside ``request_timeout_ms``."""
    backoff_ms: int = 10
    """The first wait after a conflict or a failure; it doubles, with full jitter."""
    backoff_ms_max: int = 2_000
    """The longest wait between attempts after a failure."""
    conflict_ms_max: int = 250
    """The longest wait between attempts after a conflict: short, so that no writer starves."""
    reads_max: int = 32
    """Deltas read at once while catching up."""

    # The manifest
    run_entries: int = 2_048
    """Entries that leave the tail for a run object at once."""
    checkpoint_deltas: int = 256
    """Deltas between two checkpoints: about the most that opening a buffer reads."""
    delta_bytes_max: int = 4 * MIB
    """The largest delta that is read or written."""
    checkpoint_bytes_max: int = 64 * MIB
    """The largest checkpoint or run that is read or written."""
    upkeep_ms_max: int = 10_000
    """How long closing waits for a run or a checkpoint under way; the next writer does the rest."""
    initial_groups: tuple[str, ...] = ()
    """Groups that a new buffer has from the start, so that what they need is kept before their consumers start."""
    groups_max: int = 1_000
    """Groups of one buffer."""
    producers_max: int = 100_000
    """Producers that the manifest remembers: beyond, the oldest without a name are forgotten, new names refused."""

    # Consuming
    ack_every: int = 100
    """Acks between two durable ones."""
    poll_ms: int = 100
    """Time between two reads of the manifest while waiting for a batch."""
    descriptors_max: int = 10_000
    """Descriptors that one call hands out."""
    batch_bytes_max: int = 512 * MIB
    """The largest object that is fetched."""
    decoded_bytes_max: int = 1024 * MIB
    """The largest batch that is decoded, uncompressed."""

    # Collecting
    grace_ms: int = 3_600_000
    """Age, by the store's clock, below which no object is deleted."""
    retain_for_ms: int = 0
    """The least time that the buffer keeps a batch after it was stored, for replays; it is stored in the manifest. A
    new buffer gets it; an opener that asks for more than an older buffer keeps raises that, and none lowers it."""
    forget_producer_ms: int = 86_400_000
    """Silence after which a producer's record may be removed, if its last batch was voided."""
    collect_objects_max: int = 10_000
    """Objects that one pass deletes."""
    free_deltas: int = 1_024
    """Deltas per block that is freed at once; fixed when the buffer is created."""

    def store_at(self, url: str) -> ObjectStore:
        """Return the store at a URL, with these limits of its requests. Raises Invalid for a URL it does not know."""
        return open_store(
            url,
            request_timeout_ms=self.request_timeout_ms,
            request_bytes_per_s_min=self.request_bytes_per_s_min,
        )

    def __post_init__(self) -> None:
        check_limits(self, zero={"retain_for_ms", "grace_ms", "forget_producer_ms", "backoff_ms"})
        if self.retain_for_ms > RETAIN_FOR_MS_MAX:
            raise Invalid(f"retain_for_ms must be at most {RETAIN_FOR_MS_MAX} (100 years), not {self.retain_for_ms}")
        if self.call_bytes_max > self.inflight_bytes_max:
            raise Invalid("call_bytes_max must not exceed inflight_bytes_max, or such a call would wait for ever")
        if self.metadata_bytes_max > FOOTER_BYTES_MAX // 2:
            raise Invalid(f"metadata_bytes_max must not exceed {FOOTER_BYTES_MAX // 2:,}, or no batch could hold it")
