"""`Timers`: schedule messages for a time, kept in Redis and handed out on leases."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Any

from redis.asyncio import Redis, RedisCluster

from tenure.contract.names import check_node, check_topic_name
from tenure.contract.repeat import Repeat
from tenure.contract.values import check_within
from tenure.errors import Conflict, Indeterminate, Invalid, Overloaded
from tenure.timers import replies
from tenure.timers.encode import Entry, chunks, cut_reason, entry_of, operations, spread, timer_id_of
from tenure.timers.model import (
    At,
    Cancelled,
    Delay,
    Extended,
    Held,
    NewTimer,
    OnConflict,
    Redriven,
    Scheduled,
    Settled,
    State,
    Stats,
    Timer,
    TimerInfo,
)
from tenure.timers.outage_log import Outage, Report, log_report
from tenure.timers.redis_scripts import RedisScripts
from tenure.timers.scripts import Scripts
from tenure.timers.settings import TimersSettings

__all__ = ["Timers"]


class Timers:
    """The timers of one Redis, Valkey, or Redis Cluster. ``async with`` or ``close`` ends its connections and tasks.

    The given client still belongs to the caller: of a single server its connection pool is used, of a cluster its
    connection parameters. Every call raises Invalid for arguments out of bounds, Overloaded where Redis cannot be
    reached or refuses and nothing changed, Indeterminate where the outcome is unknown, and Denied where Redis forbids
    the scripts.

    >>> import asyncio
    >>> from tenure.testing import FakeTimers  # Timers(Redis()) without Redis
    >>> async def main():
    ...     timers = FakeTimers()
    ...     await timers.schedule("reminders", {"to": 42}, delay=0, timer_id="reminder-42")
    ...     held = await timers.claim("reminders", node="worker-1")
    ...     return (await timers.commit("reminders", held)).count
    >>> asyncio.run(main())
    1
    """

    def __init__(
        self, redis: Redis | RedisCluster, *, prefix: str = "tenure", settings: TimersSettings | None = None
    ) -> None:
        self.settings = settings or TimersSettings()
        self._outage = Outage(log_report)
        self._scripts: Scripts = RedisScripts(redis, prefix=prefix, settings=self.settings, outage=self._outage)

    async def __aenter__(self) -> Timers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the wake-up subscription and connections opened here; the given client stays open."""
        await self._scripts.close()

    # Scheduling

    async def schedule(
        self,
        topic: str,
        payload: Any,
        *,
        delay: Delay | None = None,
        at: At | None = None,
        timer_id: str | None = None,
        on_conflict: OnConflict = "replace",
    ) -> Scheduled:
        """Keep a message until it is due. Raises Conflict where the id is in use and ``on_conflict`` is ``error``.

        ``payload`` is bytes, or a value that becomes JSON. An id that waits or runs already is replaced by a new
        version: a running handler is not stopped, but its verdict does not touch the new version.
        """
        new = NewTimer(payload=payload, delay=delay, at=at, timer_id=timer_id)
        return (await self.schedule_many(topic, [new], on_conflict=on_conflict))[0]

    async def schedule_many(
        self, topic: str, timers: Iterable[NewTimer], *, on_conflict: OnConflict = "replace"
    ) -> list[Scheduled]:
        """Keep many messages, ``batch_max`` to a script; each script takes effect as a whole.

        An error's ``detail["scheduled"]`` holds the timers that earlier scripts of the call scheduled.
        """
        check_topic_name(topic)
        if on_conflict not in ("replace", "keep", "error"):
            raise Invalid('on_conflict must be "replace", "keep" or "error"')
        entries = [
            entry_of(new, self.settings, op=op) for op, new in zip(operations(os.urandom(8)), timers, strict=False)
        ]
        done: list[Scheduled] = []
        for chunk in chunks(entries, [len(entry.payload) for entry in entries], self.settings):
            try:
                done += await self._schedule(topic, chunk, on_conflict)
            except (Conflict, Overloaded) as error:
                error.detail["scheduled"] = done
                raise
        return done

    async def _schedule(self, topic: str, entries: Sequence[Entry], on_conflict: OnConflict) -> list[Scheduled]:
        args = [self.settings.timers_max, on_conflict, *(arg for entry in entries for arg in entry.args())]
        answer = await self._scripts.call("schedule", topic, args, repeat=Repeat.SAFE)
        return replies.scheduled(answer.reply, entries, topic)

    async def cancel(self, topic: str, timer_id: str) -> Cancelled:
        """Remove a timer that no worker holds; one that a worker holds is ``in_flight`` and left alone."""
        check_topic_name(topic)
        args = (os.urandom(8), timer_id_of(timer_id, self.settings))
        answer = await self._scripts.call("cancel", topic, args, repeat=Repeat.SAFE)
        return replies.cancelled(answer.reply)

    async def cancel_all(self, topic: str) -> int:
        """Remove every timer of a topic that no worker holds, and return how many.

        One script removes up to ``batch_max``, so that Redis is not blocked, and the call ends after as many timers as
        were there at its first script. Not repeated after a lost answer (Indeterminate): call it again. An error's
        ``detail["cancelled"]`` holds how many earlier scripts of the call removed.
        """
        check_topic_name(topic)
        count, left = 0, None
        while left is None or left > 0:
            try:
                answer = await self._scripts.call("cancel_all", topic, (self.settings.batch_max,), repeat=Repeat.NEVER)
            except (Overloaded, Indeterminate) as error:
                error.detail["cancelled"] = count
                raise
            gone, rest = answer.reply
            count += gone
            left = rest if left is None else min(rest, left - gone)
        return count

    # Workers

    async def claim(
        self,
        topic: str,
        *,
        max_count: int = 1,
        node: str = "",
        lease_ttl_ms: int | None = None,
        max_deliveries: int | None = None,
    ) -> list[Timer]:
        """Take up to ``max_count`` due timers on one lease, and do not wait for any.

        A timer that was delivered ``max_deliveries`` times becomes a dead letter instead. Not repeated after a lost
        answer (Indeterminate): its timers come back when the lease runs out.
        """
        check_topic_name(topic)
        count = check_within(max_count, "max_count", least=1, most=self.settings.batch_max)
        lease_ms, deliveries = self._lease_ms(lease_ttl_ms), self._deliveries(max_deliveries)
        token, holder = os.urandom(16), check_node(node) if node else ""
        args = (count, self.settings.batch_bytes_max, lease_ms, token, holder, deliveries)
        answer = await self._scripts.call("claim", topic, args, repeat=Repeat.NEVER)
        return replies.claimed(answer.reply, topic=topic, token=token, lease_ms=lease_ms)

    async def wait(self, topic: str, *, timeout_ms: int | None = None) -> bool:
        """Wait until a timer may be claimed (True) or ``timeout_ms`` have passed (False), without polling.

        True is a hint: another worker may claim first.
        """
        check_topic_name(topic)
        return await self._scripts.wait(topic, timeout_ms=timeout_ms)

    async def commit(self, topic: str, timers: Sequence[Timer | Held]) -> Settled:
        """Remove handled timers for good."""
        return await self._settle("commit", topic, timers, ())

    async def reject(self, topic: str, timers: Sequence[Timer | Held], *, reason: str | Sequence[str] = "") -> Settled:
        """Move timers to the dead letters, with a reason for all or for each."""
        reasons = [(cut_reason(one, self.settings),) for one in spread(reason, str, len(timers), "reason")]
        return await self._settle("reject", topic, timers, (), reasons)

    async def nack(
        self,
        topic: str,
        timers: Sequence[Timer | Held],
        *,
        delay_ms: int | Sequence[int] = 0,
        reason: str | Sequence[str] = "",
        max_deliveries: int | None = None,
        unused: bool = False,
    ) -> Settled:
        """Give timers back, due again after a delay. With a reason it counts as a failure.

        A timer whose deliveries are spent becomes a dead letter. ``unused`` does not count the delivery: no handler saw
        it.
        """
        reasons = spread(reason, str, len(timers), "reason")
        delays = spread(delay_ms, int, len(timers), "delay_ms")
        more = [
            (check_within(ms, "delay_ms", least=0, most=self.settings.delay_ms_max), cut_reason(why, self.settings))
            for ms, why in zip(delays, reasons, strict=True)
        ]
        first = (self._deliveries(max_deliveries), b"1" if unused else b"0")
        return await self._settle("nack", topic, timers, first, more)

    async def extend(self, topic: str, timers: Sequence[Timer | Held], *, lease_ttl_ms: int | None = None) -> Extended:
        """Set leases to end ``lease_ttl_ms`` from now. A handler of a ``superseded`` timer may go on."""
        check_topic_name(topic)
        lease_ms = self._lease_ms(lease_ttl_ms)
        merged = Extended(0, 0, [], [])
        for chunk in self._chunks(timers):
            args = [lease_ms, *(arg for held in chunk for arg in (held.timer_id, held.token, held.version))]
            answer = await self._scripts.call("extend", topic, args, repeat=Repeat.SAFE)
            merged = replies.extended(answer.reply, chunk, before=merged)
        return merged

    async def _settle(
        self,
        name: str,
        topic: str,
        timers: Sequence[Timer | Held],
        first: tuple[bytes | str | int, ...],
        more: Sequence[tuple[bytes | str | int, ...]] | None = None,
    ) -> Settled:
        check_topic_name(topic)
        merged, place = Settled(0, [], [], []), 0
        for chunk in self._chunks(timers):
            args = list(first)
            for held in chunk:
                args += (held.timer_id, held.token, held.version, *(more[place] if more else ()))
                place += 1
            answer = await self._scripts.call(name, topic, args, repeat=Repeat.SAFE)
            merged = replies.settled(answer, chunk, before=merged)
        return merged

    # Operators

    async def ping(self, *, timeout_ms: int | None = None) -> bool:
        """Return whether Redis answers within ``timeout_ms``, by default ``connect_ms``. It is asked once."""
        limit_ms = self.settings.connect_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(max(limit_ms, 0) / 1000):
                return await self._scripts.ping()
        except TimeoutError:
            return False

    def report_to(self, report: Report) -> None:
        """Report the begin and the end of an outage of Redis here, and not to the logger ``tenure.timers``."""
        self._outage.report = report

    async def peek(self, topic: str, *, state: State = "waiting", limit: int = 100, offset: int = 0) -> list[TimerInfo]:
        """Return timers without claiming them, the soonest (or the longest dead) first; fewer where they are large."""
        check_topic_name(topic)
        if state not in ("waiting", "in_flight", "dead"):
            raise Invalid('state must be "waiting", "in_flight" or "dead"')
        count = check_within(limit, "limit", least=1, most=self.settings.batch_max)
        args = (state, check_within(offset, "offset", least=0, most=2**53), count, self.settings.batch_bytes_max)
        answer = await self._scripts.call("peek", topic, args, repeat=Repeat.READ)
        return replies.infos(answer.reply, topic, state)

    async def get(self, topic: str, timer_id: str) -> TimerInfo | None:
        """Return one timer that waits or runs, or None."""
        check_topic_name(topic)
        answer = await self._scripts.call("get", topic, (timer_id_of(timer_id, self.settings),), repeat=Repeat.READ)
        return replies.info(answer.reply, topic)

    async def stats(self, topic: str) -> Stats:
        """Return the counts of a topic."""
        check_topic_name(topic)
        answer = await self._scripts.call("stats", topic, (), repeat=Repeat.READ)
        return replies.stats(answer.reply)

    async def redrive(self, topic: str, *, versions: Sequence[int] | None = None, max_count: int = 100) -> Redriven:
        """Make dead letters due now, with no deliveries: those of ``versions`` (see ``peek``), or the oldest ones."""
        args: tuple[bytes | int, ...] = (os.urandom(6), *self._letters(topic, versions, max_count))
        if versions is not None and not versions:
            return Redriven(0, [])
        answer = await self._scripts.call("redrive", topic, args, repeat=Repeat.NEVER)
        return Redriven(answer.reply[0], answer.reply[1:])

    async def discard(self, topic: str, *, versions: Sequence[int] | None = None, max_count: int = 100) -> int:
        """Remove dead letters for good: those of ``versions``, or the oldest ones. Returns how many are gone."""
        args = self._letters(topic, versions, max_count)
        if versions is not None and not versions:
            return 0
        answer = await self._scripts.call("discard", topic, args, repeat=Repeat.NEVER)
        return int(answer.reply)

    # Arguments

    def _letters(self, topic: str, versions: Sequence[int] | None, max_count: int) -> tuple[int, ...]:
        check_topic_name(topic)
        most = self.settings.batch_max
        if versions is not None and len(versions) > most:
            raise Invalid(f"at most {most} versions at a time; got {len(versions)}")
        return (check_within(max_count, "max_count", least=1, most=most), *(versions or ()))

    def _lease_ms(self, lease_ttl_ms: int | None) -> int:
        if lease_ttl_ms is None:
            return self.settings.lease_ttl_ms
        return check_within(lease_ttl_ms, "lease_ttl_ms", least=1, most=self.settings.lease_ttl_ms_max)

    def _deliveries(self, max_deliveries: int | None) -> int:
        if max_deliveries is None:
            return self.settings.max_deliveries
        return check_within(max_deliveries, "max_deliveries", least=1, most=2**31)

    def _chunks(self, timers: Sequence[Timer | Held]) -> Iterable[Sequence[Timer | Held]]:
        return chunks(timers, [0] * len(timers), self.settings)
