"""A checkpoint made from the log alone: the newest one before it, and the events since.

The broker's own state is neither read nor copied, so making a checkpoint takes no turn of its loop, however many jobs
are alive. The price is a second state in memory, and each event decoded a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tenure.broker.newest_checkpoint import newest_state
from tenure.core.events import decode
from tenure.core.fold import fold
from tenure.core.state.snapshot import dump_checkpoint, dump_topic
from tenure.core.state.state import State
from tenure.errors import Closed, Corrupt, Overloaded
from tenure.log import checkpoint
from tenure.log.base_file import StoredBase, write_bases
from tenure.log.disk import Disk
from tenure.log.features import FEATURES, Feature
from tenure.log.held_segments import HeldSegments
from tenure.log.interface import Position, UnknownPosition

__all__ = ["CheckpointFold", "Made"]


class Made(NamedTuple):
    """A checkpoint that was written: its size in bytes, and the bases beside it."""

    size: int
    bases: list[StoredBase]


class CheckpointFold:
    """One checkpoint in the making: ``open``, then ``write`` with a position that became durable after that.

    Nothing that is dropped after ``open`` is missed, and everything that was dropped before it was declared before the
    position; so the segments held and the position always fit.
    """

    def __init__(self, disk: Disk, *, known: Sequence[Feature] = FEATURES) -> None:
        self._disk = disk
        self._segments = HeldSegments(disk, known=known)
        self._state = State()
        self._after: Position | None = None
        self._aborted = False

    def open(self) -> None:
        """Load the newest usable checkpoint and hold the segments after it. Raises Overloaded, Corrupt."""
        try:
            newest = newest_state(checkpoint.load(self._disk), self._segments.goes_through)
            self._state, self._after = newest or (State(), None)
            self._segments.hold(self._after)
        except OSError as error:
            raise _unreadable(error) from error

    def write(self, stop: Position, topics: Sequence[int] = ()) -> Made:
        """Fold the log up to ``stop`` and write the checkpoint, unpublished, and the bases of some topics beside it.

        Raises Overloaded where the disk does not read or take it, Corrupt where the log is damaged or ends elsewhere,
        Closed after ``abort``.
        """
        try:
            payload = self._fold(stop)
            checkpoint.write(self._disk, stop, payload)
            bases = write_bases(self._disk, stop.batch, self._bases(topics)) if topics else []
        except OSError as error:
            raise _unreadable(error) from error
        except UnknownPosition as error:
            raise Overloaded(f"the checkpoint cannot go on from the one before: {error}") from error
        finally:
            self._segments.close()
        return Made(len(payload), bases)

    def _bases(self, topics: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        state = self._state
        for topic in [state.by_id[topic_id] for topic_id in topics]:
            yield topic.id, dump_topic(topic, now_ms=state.log_ms)

    def _fold(self, stop: Position) -> bytes:
        state, scan = self._state, self._segments.scan(self._after, stop)
        for kind, _, location, body in scan.frames():
            fold(state, decode(kind, body), location)
            if self._aborted:
                raise Closed("the checkpoint was given up: the broker closes", code="closed")
        if state.orphans or scan.end[:5] != stop[:5]:
            raise Corrupt(f"the log does not lead to batch {stop.batch}: {scan.end}", batch=stop.batch)
        state.forget_segments(stop.dropped + 1)
        return dump_checkpoint(state)

    def abort(self) -> None:
        """Make ``write`` give up soon; from any thread."""
        self._aborted = True

    def close(self) -> None:
        """Let go of the segments."""
        self._segments.close()


def _unreadable(error: OSError) -> Overloaded:
    return Overloaded(f"the log could not be read for a checkpoint: {error.strerror or error}")
