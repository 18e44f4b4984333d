"""Every limit of reading a range, in one place."""

from __future__ import annotations

import msgspec

from tenure.buffer.settings import BufferSettings
from tenure.limits import MIB, check_limits

__all__ = ["ReaderSettings"]


class ReaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the driver and of a task while a range is read."""

    calls_bytes_max: int = 4 * MIB
    """Bytes of a range's footers, which hold its produce calls and become part of the query's plan; the JVM does not
    read a range that has more."""
    footers_max: int = 32
    """Footers that the driver reads at once."""
    tail_bytes: int = 64 * 1024
    """Bytes read of a batch's end at first; a longer footer costs a second request."""
    jvm_batch_bytes_min: int = 1 * MIB
    """Stored bytes of a range's batches, on average, from which on ``auto`` lets the JVM read: a file costs Spark more
    than it costs Python, a byte less."""
    open_bytes: int = 64 * 1024
    """The cost of opening a batch in a task, as the bytes that it reads in the same time."""
    parts_per_core: int = 2
    """Tasks per core, so that none with the largest batches is left alone at the end; one where opening the batches
    costs more than reading them, which is alike for all."""
    part_bytes_min: int = 8 * MIB
    """Bytes that are worth a task of their own; each batch counts for ``open_bytes`` more than it has."""
    part_bytes_max: int = 128 * MIB
    """Bytes of a task of the JVM, with any number of cores: Spark's default."""
    rows_max: int = 10_000
    """Rows that a Python task hands to Spark at once."""
    rows_bytes_max: int = 16 * MIB
    """Their bytes; a row that is larger goes alone."""
    buffer: BufferSettings = BufferSettings()
    """The buffer's limits on what is fetched and decoded."""

    def __post_init__(self) -> None:
        check_limits(self)
