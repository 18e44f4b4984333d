"""`FakeTimers`: timers without Redis on a manual clock: the scripts in Python, under the same ``Timers``.

Arguments are checked and split, and replies decoded, by the code of the real timers; only the scripts are implemented
again here. One contract suite runs against both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tenure.contract.repeat import Repeat
from tenure.testing.clock import ManualClock
from tenure.timers.outage_log import Outage, log_report
from tenure.timers.scripts import Answer
from tenure.timers.settings import TimersSettings
from tenure.timers.timers import Timers
from tenure.timers.wire import Command

__all__ = ["FakeTimers"]

_OK, _LOST, _SUPERSEDED, _DEAD = range(4)
_CREATED, _REPLACED, _KEPT = range(3)
_COUNTERS: Final = (
    *("scheduled", "replaced", "delivered", "lapsed", "committed", "nacked", "dead", "cancelled", "redriven"),
    "orphaned",
)


class FakeTimers(Timers):
    """The calls of `Timers`, in memory. Time stands still until ``clock.advance``, which also wakes waiters.

    >>> import asyncio
    >>> from tenure.testing import FakeTimers
    >>> async def main():
    ...     timers = FakeTimers()
    ...     await timers.schedule("reminders", {"to": 42}, delay=60_000)
    ...     timers.clock.advance(60_000)
    ...     return [held.json() for held in await timers.claim("reminders")]
    >>> asyncio.run(main())
    [{'to': 42}]
    """

    def __init__(self, clock: ManualClock | None = None, *, settings: TimersSettings | None = None) -> None:
        self.clock = clock or ManualClock()
        self.settings = settings or TimersSettings()
        self._outage = Outage(log_report)
        self._scripts = _MemoryScripts(self.clock)


@dataclass
class _Timer:
    timer_id: bytes
    version: int
    due: int
    payload: bytes
    score: int
    deliveries: int = 0
    failures: int = 0
    leased: bool = False
    token: bytes = b""
    node: bytes = b""
    reason: bytes = b""

    def row(self) -> tuple[Any, ...]:
        about = (self.version, self.deliveries, self.failures, self.due, self.score)
        return (self.timer_id, self.payload, *about, self.node, self.reason)


@dataclass
class _Topic:
    live: dict[bytes, _Timer] = field(default_factory=dict)
    dead: dict[int, _Timer] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0))
    version: int = 0

    def by_score(self, *, leased: bool) -> list[_Timer]:
        found = (timer for timer in self.live.values() if timer.leased is leased)
        return sorted(found, key=lambda timer: (timer.score, timer.timer_id))

    def letters(self) -> list[_Timer]:
        return sorted(self.dead.values(), key=lambda timer: (timer.score, timer.version))

    def head(self) -> int | None:
        return min((timer.score for timer in self.live.values()), default=None)


class _MemoryScripts:
    """Every script by its name, over dictionaries. No answer is ever lost, so none is repeated."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._changed = asyncio.Event()
        clock.subscribe(self._wake)

    async def call(self, name: str, topic: str, args: Command, *, repeat: Repeat) -> Answer:
        values = [arg if isinstance(arg, int) else arg.encode() if isinstance(arg, str) else arg for arg in args]
        reply = getattr(self, f"_{name}")(self._topics.setdefault(topic, _Topic()), values)
        self._wake()
        return Answer(reply, False)

    async def wait(self, topic: str, *, timeout_ms: int | None) -> bool:
        end = None if timeout_ms is None else self._now() + timeout_ms
        while True:
            head = self._topics.setdefault(topic, _Topic()).head()
            if head is not None and head <= self._now():
                return True
            if end is not None and self._now() >= end:
                return False
            await self._changed.wait()

    async def ping(self) -> bool:
        return True

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _now(self) -> int:
        return self._clock.wall_ms()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _next_version(self, topic: _Topic) -> int:
        topic.version = max(topic.version + 1, self._now() * 1000)
        return topic.version

    def _schedule(self, topic: _Topic, args: list[Any]) -> Any:
        timers_max, on_conflict, rows = args[0], args[1], list(_split(args[2:], 5))
        ids: set[bytes] = set()
        conflicts: list[bytes] = []
        for timer_id, *_ in rows:
            if timer_id in topic.live or timer_id in ids:
                conflicts.append(timer_id)
            ids.add(timer_id)
        if conflicts and on_conflict == b"error":
            return [b"conflict", *conflicts]
        total = len(topic.live) + len(topic.dead)
        fresh = len(ids - topic.live.keys())
        if fresh and total + fresh > timers_max:
            return [b"full", total]
        return [b"ok", *_pack(self._schedule_one(topic, row, keep=on_conflict == b"keep") for row in rows)]

    def _schedule_one(self, topic: _Topic, row: Sequence[Any], *, keep: bool) -> tuple[int, int, int]:
        timer_id, _, kind, ms, payload = row
        old = topic.live.get(timer_id)
        if old and keep:
            return (old.version, old.due, _KEPT)
        due = self._now() + ms if kind == b"in" else ms
        new = topic.live[timer_id] = _Timer(timer_id, self._next_version(topic), due, payload, due)
        topic.counters["scheduled"] += 1
        topic.counters["replaced"] += bool(old)
        return (new.version, due, _REPLACED if old else _CREATED)

    def _claim(self, topic: _Topic, args: list[Any]) -> Any:
        limit, bytes_max, lease_ms, token, node, max_deliveries = args
        ready = [t for leased in (True, False) for t in topic.by_score(leased=leased) if t.score <= self._now()]
        taken: list[_Timer] = []
        size = 0
        for count, timer in enumerate(ready[:limit]):
            size += len(timer.payload)
            if count and size > bytes_max:
                break
            if timer.deliveries >= max_deliveries:
                timer.reason = timer.reason or b"its lease ran out at delivery %d" % timer.deliveries
                self._bury(topic, timer)
                continue
            topic.counters["lapsed"] += timer.leased
            timer.deliveries += 1
            timer.leased, timer.token, timer.node, timer.score = True, token, node, self._now() + lease_ms
            taken.append(timer)
        topic.counters["delivered"] += len(taken)
        head = topic.head()
        delay = -1 if head is None else max(head - self._now(), 0)
        rows = ((t.timer_id, t.payload, t.version, t.deliveries, t.failures, t.due) for t in taken)
        return [self._now() + lease_ms, delay, *_pack(rows)]

    def _bury(self, topic: _Topic, timer: _Timer) -> None:
        topic.live.pop(timer.timer_id)
        topic.dead[timer.version] = replace(timer, score=self._now(), leased=False)
        topic.counters["dead"] += 1

    def _held(self, topic: _Topic, row: Sequence[Any]) -> tuple[_Timer | None, int]:
        timer = topic.live.get(row[0])
        if timer and timer.version != row[2]:
            return None, _SUPERSEDED
        if timer is None or not timer.token or timer.token != row[1]:
            return None, _LOST
        return timer, _OK

    def _commit(self, topic: _Topic, args: list[Any]) -> bytes:
        places = []
        for row in _split(args, 3):
            timer, place = self._held(topic, row)
            if timer:
                topic.live.pop(timer.timer_id)
                topic.counters["committed"] += 1
            places.append(place)
        return msgspec.msgpack.encode(places)

    def _reject(self, topic: _Topic, args: list[Any]) -> bytes:
        places = []
        for row in _split(args, 4):
            timer, place = self._held(topic, row)
            if timer:
                timer.reason = row[3]
                self._bury(topic, timer)
            places.append(place)
        return msgspec.msgpack.encode(places)

    def _nack(self, topic: _Topic, args: list[Any]) -> bytes:
        max_deliveries, unused = args[0], args[1] == b"1"
        places = []
        for row in _split(args[2:], 5):
            timer, place = self._held(topic, row)
            if timer:
                place = self._nack_one(topic, timer, row, max_deliveries=max_deliveries, unused=unused)
            places.append(place)
        return msgspec.msgpack.encode(places)

    def _nack_one(self, topic: _Topic, timer: _Timer, row: Sequence[Any], *, max_deliveries: int, unused: bool) -> int:
        topic.counters["nacked"] += 1
        if unused:
            timer.deliveries -= 1
        elif row[4]:
            timer.failures, timer.reason = timer.failures + 1, row[4]
        if timer.deliveries >= max_deliveries:
            self._bury(topic, timer)
            return _DEAD
        timer.leased, timer.token, timer.node, timer.score = False, b"", b"", self._now() + row[3]
        return _OK

    def _extend(self, topic: _Topic, args: list[Any]) -> Any:
        deadline, places = self._now() + args[0], []
        for row in _split(args[1:], 3):
            timer, place = self._held(topic, row)
            if timer:
                timer.score = deadline
            places.append(place)
        return [deadline, msgspec.msgpack.encode(places)]

    def _cancel(self, topic: _Topic, args: list[Any]) -> bytes:
        timer = topic.live.get(args[1])
        if timer is None:
            return b"unknown"
        if not self._is_loose(timer):
            return b"in_flight"
        topic.live.pop(timer.timer_id)
        topic.counters["cancelled"] += 1
        return b"cancelled"

    def _cancel_all(self, topic: _Topic, args: list[Any]) -> list[int]:
        loose = [t for leased in (True, False) for t in topic.by_score(leased=leased) if self._is_loose(t)]
        for timer in loose[: args[0]]:
            topic.live.pop(timer.timer_id)
        gone = min(len(loose), args[0])
        topic.counters["cancelled"] += gone
        return [gone, len(loose) - gone]

    def _is_loose(self, timer: _Timer) -> bool:
        return not timer.leased or timer.score <= self._now()

    def _stats(self, topic: _Topic, args: list[Any]) -> list[int]:
        now, head = self._now(), topic.head()
        due, leased = topic.by_score(leased=False), topic.by_score(leased=True)
        ready, lapsed = (sum(t.score <= now for t in timers) for timers in (due, leased))
        counts = [now, len(due) - ready, ready, lapsed, len(leased) - lapsed, len(topic.dead)]
        return [*counts, -1 if head is None else head, *(topic.counters[name] for name in _COUNTERS)]

    def _peek(self, topic: _Topic, args: list[Any]) -> Any:
        state, offset, limit, bytes_max = args
        timers = topic.letters() if state == b"dead" else topic.by_score(leased=state == b"in_flight")
        shown: list[_Timer] = []
        size = 0
        for timer in timers[offset : offset + limit]:
            size += len(timer.payload)
            if shown and size > bytes_max:
                break
            shown.append(timer)
        return _pack(timer.row() for timer in shown)

    def _get(self, topic: _Topic, args: list[Any]) -> Any:
        timer = topic.live.get(args[0])
        if timer is None:
            return []
        return [b"in_flight" if timer.leased else b"waiting", *_pack([timer.row()])]

    def _redrive(self, topic: _Topic, args: list[Any]) -> list[int]:
        limit, versions = args[1], args[2:] or [timer.version for timer in topic.letters()]
        count, skipped = 0, []
        for version in versions[:limit] if not args[2:] else versions:
            letter = topic.dead.get(version)
            if letter is None or letter.timer_id in topic.live:
                skipped.append(version)
                continue
            new = replace(topic.dead.pop(version), version=self._next_version(topic), score=self._now())
            new.deliveries = new.failures = 0
            new.token = new.node = b""
            topic.live[new.timer_id] = new
            count += 1
        topic.counters["redriven"] += count
        return [count, *skipped]

    def _discard(self, topic: _Topic, args: list[Any]) -> int:
        versions = args[1:] or [timer.version for timer in topic.letters()][: args[0]]
        return sum(topic.dead.pop(version, None) is not None for version in versions)


def _split(flat: Sequence[Any], width: int) -> Iterable[Sequence[Any]]:
    return (flat[start : start + width] for start in range(0, len(flat), width))


def _pack(rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Return rows as the scripts pack them."""
    numbers: list[int] = []
    texts: list[bytes] = []
    for row in rows:
        for value in row:
            if isinstance(value, bytes):
                texts.append(value)
                value = len(value)
            numbers.append(value)
    return [msgspec.msgpack.encode(numbers), b"".join(texts)]
