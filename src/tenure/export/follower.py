"""From the tail of a log to lifecycle rows: a fold of its own, in another process than the broker's.

Rows need what the log alone does not say: who held a job that was acked, how often it was delivered, that its lease ran
out. So the log is folded here once more, and each event is looked at right before it changes the state. Nothing but
the log decides which rows come, so a second pass over the same batches gives the same rows.

A lease that ran out is told as soon as the log shows a later time: with the next event on its queue, and for all queues
whenever log time enters another second or the broker notes the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tenure.broker.lifecycle import expired, translate
from tenure.core.events import (
    Acked,
    Appended,
    Claimed,
    ClockSet,
    DeadLettered,
    Event,
    Extended,
    Redriven,
    Released,
    TopicCarried,
    TopicDeleted,
    decode,
)
from tenure.core.fold import fold
from tenure.core.state import State
from tenure.export.rows import encode_row, gap
from tenure.log.disk import Disk
from tenure.log.home import Position
from tenure.log.tail import TailBatch, Tailer, TailGap

__all__ = ["Follower", "Step"]

_SWEEP_MS: Final = 1_000
_OF_A_LIFE: Final = (Appended, Claimed, Acked, Released, Extended, DeadLettered, Redriven)


class Step(NamedTuple):
    """What one batch of the log (or a gap) amounts to, and the position behind it."""

    position: Position
    rows: list[bytes]
    is_gap: bool = False


class Follower:
    """Folds a log as it grows and gives its rows. ``state`` and ``position`` belong together between two steps.

    ``unknown`` are topics whose events came before the log said what they are, each with the first batch it was met
    in. That happens only where the beginning of the log is gone; it is reported as a gap once the topic is known.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        state: State | None = None,
        position: Position | None = None,
        unknown: dict[int, int] | None = None,
    ) -> None:
        self.state = _listened(state or State())
        self.position = position
        self.unknown = unknown or {}
        self._tailer = Tailer(disk, position)
        self._segment = position.segment if position is not None else 0

    def poll(self) -> Iterator[Step]:
        """Give everything durable that is new, batch by batch, then end.

        Raises UnknownPosition where the log never went through the position, Corrupt where it is damaged.
        """
        for item in self._tailer.poll():
            step = self._miss(item) if isinstance(item, TailGap) else self._follow(item)
            self.position = item.position
            if self.position.segment != self._segment:
                self._segment = self.position.segment
                self.state.forget_segments(self._segment)  # where records lie does not matter here
                self.state.orphans.clear()
            yield step

    def _miss(self, item: TailGap) -> Step:
        """What was known does not hold behind a gap: begin anew with what the log still says."""
        ts = self._wall(self.state.log_ms)
        self.state, self.unknown = _listened(State()), {}
        first, last = item.first_batch, item.last_batch
        return Step(item.position, [gap("trimmed", ts=ts, batch=last, first_batch=first, last_batch=last)], True)

    def _follow(self, item: TailBatch) -> Step:
        state, rows = self.state, list[bytes]()
        for kind, topic_id, location, body in item.frames:
            event = decode(kind, body)
            self._pass_time(event, topic_id)
            if state.ended:
                self._tell_expired(item.batch, rows)
            row = translate(state, event)
            if row is not None:
                rows.append(encode_row(row, batch=item.batch, n=len(rows)))
            elif topic_id not in state.by_id and isinstance(event, _OF_A_LIFE):
                self.unknown.setdefault(topic_id, item.batch)
            fold(state, event, location)
            if topic_id in self.unknown:
                self._tell_unknown(event, topic_id, item.batch, rows)
        return Step(item.position, rows)

    def _pass_time(self, event: Event, topic_id: int) -> None:
        """Let time reach an event before it is looked at, as the broker did before it decided on it."""
        state, at = self.state, event.at
        if at // _SWEEP_MS > state.log_ms // _SWEEP_MS or isinstance(event, ClockSet):
            for _, topic in sorted(state.by_id.items()):
                state.pass_time(topic, at)
        elif topic_id in state.by_id:
            state.pass_time(state.by_id[topic_id], at)

    def _tell_expired(self, batch: int, rows: list[bytes]) -> None:
        for topic, ended in self.state.ended or ():
            rows.append(encode_row(expired(self.state, topic, ended), batch=batch, n=len(rows)))
        self.state.ended = []

    def _tell_unknown(self, event: Event, topic_id: int, batch: int, rows: list[bytes]) -> None:
        """Report what could not be told of a topic, once its name is known or never will be."""
        if isinstance(event, TopicCarried | TopicDeleted):
            topic = self.state.by_id.get(topic_id)
            name, first = topic.name if topic is not None else "", self.unknown.pop(topic_id)
            about = {"batch": batch, "n": len(rows), "first_batch": first, "last_batch": batch}
            rows.append(gap("unknown_topic", ts=self._wall(event.at), topic=name, **about))

    def _wall(self, log_ms: int) -> int:
        return log_ms + self.state.wall_offset_ms


def _listened(state: State) -> State:
    """A state that collects the leases that run out."""
    state.ended = []
    return state
