"""`TimerSource`: the timers of a topic, claimed as they become due, with a sleep until the next one."""

from __future__ import annotations

import asyncio

from tenure.timers.model import Timer
from tenure.timers.timers import Timers
from tenure.worker.backends.redis_payload import unpack
from tenure.worker.options import TaskOptions
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed, Source

__all__ = ["TimerSource", "held_timer", "lease_id_of", "token_and_id"]

_TOKEN_BYTES = 16


class TimerSource(Source):
    """The timers of one topic. It does not poll: a schedule that is due sooner wakes it."""

    def __init__(
        self, timers: Timers, options: TaskOptions, *, feed: Feed, link: Link, node: str, deliveries_max: int
    ) -> None:
        super().__init__(options.queue, feed, link)
        self._timers = timers
        self._lease_ms = options.lease_ms
        self._node = node
        self._deliveries_max = deliveries_max
        self._claiming = False

    async def _flow(self) -> None:
        opened = False
        while not self._unwanted.is_set():
            await self._until_room(self._room_min)
            count_max = min(self._feed.room(), self._timers.settings.batch_max)
            found = await self._claim(count_max)
            if not opened:
                opened = True
                await self._report_open()
            if len(found) < count_max and not self._unwanted.is_set():
                await self._timers.wait(self._queue)

    async def _claim(self, count_max: int) -> list[Timer]:
        self._claiming = True
        try:
            found = await self._timers.claim(
                self._queue,
                max_count=count_max,
                node=self._node,
                lease_ttl_ms=self._lease_ms,
                max_deliveries=self._deliveries_max,
            )
            if found:
                jobs = [held_timer(timer, self._node) for timer in found]
                await self._feed.deliver(jobs, found[0].deadline_ms - self._lease_ms)
        finally:
            self._claiming = False
        return found

    async def _finish_flow(self, flowing: asyncio.Task[None]) -> None:
        """Await a claim in flight, so that its timers can be given back."""
        if self._claiming:
            await asyncio.wait((flowing,))

    async def _recover_cut(self) -> None:
        """Do nothing: a claim without an answer cannot be repeated, so its timers come back after their lease."""


def held_timer(timer: Timer, node: str, *, lease_ms: int = 0) -> HeldJob:
    """Return a delivery as the runtime holds it; ``lease_ms`` where it was claimed for longer than the task's lease."""
    data, meta = unpack(timer.payload)
    return HeldJob(
        topic=timer.topic,
        seq=timer.version,
        lease_id=lease_id_of(timer),
        node=node,
        data=data,
        meta=meta,
        ts=timer.due_ms,
        deliveries=timer.deliveries,
        failures=timer.failures,
        timer_id=timer.timer_id,
        lease_ms=lease_ms,
    )


def lease_id_of(timer: Timer) -> str:
    """Return the token and the id in one text: with the version, they settle a timer."""
    return timer.token.hex() + timer.timer_id


def token_and_id(lease_id: str) -> tuple[bytes, str]:
    """Return the token and the timer id of a `lease_id_of`."""
    return bytes.fromhex(lease_id[: 2 * _TOKEN_BYTES]), lease_id[2 * _TOKEN_BYTES :]
