"""The follower: it folds the tail of a log into lifecycle rows, in a process of its own.

Rows need facts that a single log event lacks: who held a job that was acked, how often it was delivered, that its lease
expired. So the follower folds the log once more, and makes each event's rows right before the event changes the state.
Nothing but the log decides which rows come, so a second pass over the same batches gives the same rows.

The follower reports an expired lease as soon as the log shows a later time: with the next event on its queue, and for
all queues whenever log time enters another second or the broker notes the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tenure.core.events import (
    Acked,
    Appended,
    Begun,
    Claimed,
    ClockSet,
    DeadLettered,
    Event,
    Extended,
    Lost,
    Opened,
    Redriven,
    Released,
    Returned,
    TopicDeleted,
    decode,
)
from tenure.core.fold import fold
from tenure.core.lifecycle import expired, translate
from tenure.core.state.state import State
from tenure.export.rows import TRIMMED_N, Place, encode_row, first_position, gap
from tenure.log.disk import Disk
from tenure.log.interface import Position
from tenure.log.tail import TailBatch, Tailer, TailGap

__all__ = ["Follower", "Step"]

_SWEEP_MS: Final = 1_000
_STEP_ROWS_MAX: Final = 1_000
_STEP_BYTES_MAX: Final = 1 << 20
"""The size above which a batch's rows come in several steps: never a million expired leases at once."""
_OF_A_LIFE: Final = (
    *(Appended, Claimed, Acked, Released, Extended, DeadLettered, Redriven),
    *(Begun, Returned, Lost),
)


class Step(NamedTuple):
    """The rows from ``first`` to ``after``: those of one batch of the log or of a gap, or some of a batch with many."""

    first: Place
    rows: list[bytes]
    after: Place
    is_gap: bool = False


class Follower:
    """A fold of a growing log that yields its rows.

    ``state`` and ``position`` belong together after each step that ends a batch; within a batch the state is ahead.

    ``unknown`` are topics whose events came before the log named them, each with the first batch it was met in. That
    happens only where the beginning of the log is gone; it is reported as a gap once the topic is known.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        state: State | None = None,
        position: Position | None = None,
        unknown: dict[int, int] | None = None,
    ) -> None:
        self.state = _collecting_expiries(state or State())
        self.position = position
        self.unknown = unknown or {}
        self._disk = disk
        self._tailer: Tailer | None = None
        self._segment = position.segment if position is not None else 0

    def poll(self) -> Iterator[Step]:
        """Yield everything durable that is new, then end.

        The caller must exhaust the iterator: only it knows the rest of its batch. Raises UnknownPosition where the log
        never went through the position, Corrupt where it is damaged.
        """
        if self._tailer is None:
            self.position = self.position or first_position(self._disk)
            if self.position is None:
                return
            self._tailer = Tailer(self._disk, self.position)
        for item in self._tailer.poll():
            if isinstance(item, TailGap):
                yield self._miss(item)
            else:
                yield from self._follow(item)

    def _reach(self, position: Position) -> Place:
        """Note that the batch that ends here is folded."""
        self.position = position
        if position.segment != self._segment:
            self._segment = position.segment
            self.state.forget_segments(self._segment)  # where records lie does not matter here
            self.state.orphans.clear()
        return Place(position)

    def _miss(self, item: TailGap) -> Step:
        """Begin again after a gap, with what the log still shows: the old state does not hold there."""
        assert self.position is not None
        before = Place(self.position)
        ts = self._wall(self.state.log_ms)
        self.state, self.unknown = _collecting_expiries(State()), {}
        first, last = item.first_batch, item.last_batch
        row = gap("trimmed", ts=ts, batch=last, n=TRIMMED_N, first_batch=first, last_batch=last)
        return Step(before, [row], self._reach(item.position), is_gap=True)

    def _follow(self, item: TailBatch) -> Iterator[Step]:
        assert self.position is not None
        first, rows, size = Place(self.position), list[bytes](), 0
        for row in self._rows(item):
            rows.append(row)
            size += len(row)
            if len(rows) >= _STEP_ROWS_MAX or size >= _STEP_BYTES_MAX:
                after = Place(self.position, first.rows + len(rows))
                yield Step(first, rows, after)
                first, rows, size = after, [], 0
        yield Step(first, rows, self._reach(item.position))

    def _rows(self, item: TailBatch) -> Iterator[bytes]:
        """Fold a batch and yield its rows, each right before its event is folded."""
        state, n = self.state, 0
        for kind, topic_id, location, body in item.frames:
            event = decode(kind, body)
            self._pass_time(event, topic_id)
            ended, state.ended = state.ended or (), []
            for topic, end in ended:
                yield encode_row(expired(state, topic, end), batch=item.batch, n=n)
                n += 1
            row = translate(state, event)
            if row is not None:
                yield encode_row(row, batch=item.batch, n=n)
                n += 1
            elif topic_id not in state.by_id and isinstance(event, _OF_A_LIFE):
                self.unknown.setdefault(topic_id, item.batch)
            fold(state, event, location)
            if topic_id in self.unknown and (topic_id in state.by_id or isinstance(event, TopicDeleted)):
                yield self._unknown_gap(event, topic_id, batch=item.batch, n=n)
                n += 1

    def _pass_time(self, event: Event, topic_id: int) -> None:
        """Advance time to an event before its rows are made, as the broker did before it decided on it."""
        state, at = self.state, event.at_ms
        if isinstance(event, Opened):
            at = state.log_ms  # what runs out between two openings is judged by the later one
        if at // _SWEEP_MS > state.log_ms // _SWEEP_MS or isinstance(event, ClockSet):
            for _, topic in sorted(state.by_id.items()):
                state.pass_time(topic, at)
        elif topic_id in state.by_id:
            state.pass_time(state.by_id[topic_id], at)

    def _unknown_gap(self, event: Event, topic_id: int, *, batch: int, n: int) -> bytes:
        """Report the missing events of a topic, once its name is known or never will be."""
        topic = self.state.by_id.get(topic_id)
        name, first = topic.name if topic is not None else "", self.unknown.pop(topic_id)
        at = self._wall(event.at_ms)
        return gap("unknown_topic", ts=at, topic=name, batch=batch, n=n, first_batch=first, last_batch=batch)

    def _wall(self, log_ms: int) -> int:
        return log_ms + self.state.wall_offset_ms


def _collecting_expiries(state: State) -> State:
    """Return a state that collects expired leases."""
    state.ended = []
    return state
