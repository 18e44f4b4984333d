"""The interface of the log, whether it lies in files, on a simulated disk or in memory.

The broker is written against :class:`Log` alone, so that tests show on a simulated disk, in microseconds, what must be
right after a crash, and so that a log on object storage can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tenure.errors import TenureError
from tenure.log.features import FeatureSet

__all__ = ["Entry", "Frame", "Log", "Position", "SegmentInfo", "Sync", "UnknownPosition"]

#: What the broker hands in: kind (16-255), topic id, body.
Entry = tuple[int, int, bytes]
#: What a replay hands out: kind, topic id, location, body.
Frame = tuple[int, int, int, bytes]


class Position(NamedTuple):
    """A place between two batches, with the evidence to check whether a log really went through it.

    The first three fields are where to go on. The others are evidence: the frame before the place and its checksum, and
    the segments that had been declared dropped by then. They identify a checkpoint that outlived its log, since a batch
    number and an offset alone may fit another history.
    """

    segment: int
    offset: int
    #: The number of the first batch after this place.
    batch: int
    #: Where the frame before this place starts, 0 for the head of the segment.
    last_offset: int = 0
    last_crc: int = 0
    #: Every segment up to this number had been declared dropped.
    dropped: int = 0


class SegmentInfo(NamedTuple):
    """One segment: its number, the bytes of it that hold frames, and the first batch in it."""

    number: int
    used_bytes: int
    first_batch: int


class UnknownPosition(ValueError):
    """The log did not go through this position: discard what came with it and replay everything."""


class Sync(Protocol):
    """One request for durability: begun and ended by the owner of the log, run by any thread."""

    @property
    def is_instant(self) -> bool:
        """Return whether this sync waits for nothing: then the owner may run it itself."""

    def run(self) -> None:
        """Wait for the disk; never raises, :meth:`Log.end_sync` reports the outcome."""


class Log(Protocol):
    """An append-only sequence of batches of frames, durable up to ``synced_batch``.

    One owner calls everything but ``Sync.run``. A log takes appends once its first ``replay`` has been exhausted.
    """

    #: This opening's number, durable before the first append; 0 until the first replay is exhausted.
    epoch: int
    #: The batch that the next append joins. Read it *after* an append for the ticket: an append may roll.
    pending_batch: int
    #: The last batch handed to the operating system.
    written_batch: int
    #: The last batch known to be durable.
    synced_batch: int
    #: Whether durable batches are also kept elsewhere, so that they survive the loss of this machine.
    has_home: bool
    #: Set for good once a write or a sync failed: the error for callers that wait for a sync.
    failed: TenureError | None
    #: Set while there is no room for another segment: the disk is full.
    crowded: bool
    #: Asked, when a new segment is begun, for the entries it starts with; None for none.
    preamble: Callable[[], Sequence[Entry]] | None
    #: Asked for log time when a batch leaves for the log's home; 0 while it is not known.
    log_ms: Callable[[], int]
    #: Until when, by the boot clock, what is not synced may be answered; without end where no other process could take
    #: over meanwhile.
    granted_until_ms: float
    #: The features that the log uses, and those of this version that it does not use yet.
    features: FeatureSet

    def reserve(self, ack_bytes: int, growth_bytes: int = 0) -> None:
        """Reserve that much room for acks on the disk, and at least a segment, beside the room to reclaim in.

        ``growth_bytes`` is how much longer the log may become when all of it is rewritten once: acks leave that too.
        """

    @property
    def reserve_used(self) -> bool:
        """Return whether some of the room reserved for acks and for reclaiming is in use, or could not be allocated."""

    @property
    def sync_frees_room(self) -> bool:
        """Return whether a sync is to free room: the unused ends of full segments, or segments that were dropped."""

    @property
    def pending_segment(self) -> int:
        """Return the segment that the last append is in."""

    def spares_due(self) -> bool:
        """Return whether a segment should be prepared, so that the next roll does not wait for the disk; once."""

    def prepare_spares(self) -> None:
        """Allocate what ``spares_due`` asked for; from any thread. A refusal is met again when the room is needed."""

    def append(self, entries: Sequence[Entry], *, urgent: bool = False, reclaim: bool = False) -> list[int]:
        """Join frames to the pending batch, all of them or none; return their locations.

        Raises Overloaded where no room can be had and Closed after a failure; nothing happened then. ``urgent`` may use
        the room kept for acks, ``reclaim`` also the room kept for emptying the oldest segment.
        """

    def append_one(self, kind: int, topic: int, body: bytes, urgent: bool = False) -> int:
        """Append one frame, as most commands do; return its location."""

    def write(self) -> int:
        """Hand the pending batch to the operating system; return ``written_batch``. Raises Indeterminate."""

    @property
    def sync_wait_ms(self) -> int:
        """Return how long the next sync should wait: 0, unless each one costs money and there was one just now."""

    @property
    def beat_wait_ms(self) -> int | None:
        """Return how long until a sync is due although nothing was written; None where that is never so."""

    def begin_sync(self) -> Sync:
        """Begin a sync of everything written so far; the caller runs it and ends it."""

    def end_sync(self, sync: Sync) -> int:
        """Apply the outcome of a sync; return ``synced_batch``. Raises Indeterminate if the disk refused."""

    def sync(self) -> int:
        """Write and wait for the disk here; return ``synced_batch``."""

    def seal(self) -> None:
        """Write what is pending, sync it, and log a synced witness of that sync, unless there is one already."""

    def witness(self) -> bool:
        """Join a witness of the last sync to the pending batch; False where there is none to give, or one already."""

    def read(self, location: int) -> tuple[int, int, bytes]:
        """Return (kind, topic, body) of one frame, verified. Raises Corrupt, or NotFound for a dropped segment."""

    def check(self, location: int) -> tuple[int, int]:
        """Verify one frame without keeping it; return its kind and the length of its body. Raises as `read`."""

    def read_part(self, location: int, start: int, count: int) -> bytes:
        """Return a part of the body of a frame that `check` has verified. Raises as `read`."""

    def contains(self, position: Position) -> bool:
        """Return whether this log went through the position, so that a replay may start there."""

    def replay(self, after: Position | None = None) -> Iterator[Frame]:
        """Yield the frames of every whole batch in order. The first replay recovers: exhaust it before appending.

        Raises UnknownPosition at once, and Corrupt where the log is met damaged. The log's own frames are not shown.
        """

    def position(self) -> Position:
        """Return the position after what was written."""

    def segments(self, limit: int | None = None) -> list[SegmentInfo]:
        """List the segments, or the ``limit`` oldest ones, oldest first; the last of all is being written."""

    @property
    def used_bytes(self) -> int:
        """Return how many bytes hold frames, over all segments; at the same cost however many there are."""

    def drop(self, segment: int) -> int:
        """Declare the oldest segment dropped; return the batch that says so, with whose sync the segment is removed.

        Raises Invalid for any other segment.
        """

    def checkpointed(self, position: Position) -> None:
        """Take note that a checkpoint at a durable position was published: a home may want it too."""

    def turn_on_features(self) -> int:
        """Use every feature of this version from the next frame on; return the batch with whose sync that is durable.

        Raises Overloaded where there is no room for another segment and Closed after a failure; nothing happened then.
        """

    def release_soon(self, hand_to: str) -> None:
        """Give up the lead of the log's home to the process at this URL together with the last of what was appended,
        which saves a link; nothing may be appended after this. Where nothing was pending, ``release`` does it.
        """

    def release(self, hand_to: str = "") -> None:
        """Ship everything and give up the lead of the log's home, to the process at this URL or to any: nothing is
        taken in after that. Does nothing where the log has no home.
        """

    def close(self) -> None:
        """Write, sync, seal and release the directory; safe to call twice."""
