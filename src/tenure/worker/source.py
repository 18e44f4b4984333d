"""Where jobs come from: a push stream, or claims that wait where a stream cannot be had.

Whatever breaks, the source comes back by itself, after a wait drawn by chance, so that a fleet does not return to a
restarted broker in one moment (fault 36). A stream that has gone silent is dead (fault 31): the broker says a word
every 15 seconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from tenure.client.replies import Job
from tenure.errors import Closed, Overloaded, TenureError
from tenure.worker.link import Link
from tenure.worker.metrics import QueueStats
from tenure.worker.settings import WorkerSettings
from tenure.worker.timing import Timing, within

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient

__all__ = ["Source"]

log = logging.getLogger("tenure.worker")

_NO_STREAM = frozenset({404, 405, 406, 501})


class _NotPushed(Exception):
    """Something on the way to the broker, or an old broker, has no streams."""


class Source:
    """The jobs of one queue. ``deliver`` takes what comes, ``room`` says how many more may, and ``on_open`` is awaited
    each time that the broker answers again.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        *,
        lease_ms: int,
        depth: int,
        spare: int,
        push: bool,
        timing: Timing,
        settings: WorkerSettings,
        stats: QueueStats,
        link: Link,
        room: Callable[[], int],
        deliver: Callable[[list[Job]], Awaitable[None]],
        on_open: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._queue = queue
        self._lease_ms = lease_ms
        self._depth = depth
        # Claims are not made for a handful while there is still enough to do.
        self._room_min = max(1, spare // 2)
        self._push = push
        self._timing = timing
        self._settings = settings
        self._stats = stats
        self._link = link
        self._room = room
        self._deliver = deliver
        self._on_open = on_open
        self._failures = 0
        self._stopping = False
        self._freed = asyncio.Event()
        self._heard_ms = 0
        self._no_push_until_ms = 0
        self._claim_id: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin to take jobs."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def freed(self) -> None:
        """A job is not held any more."""
        self._freed.set()

    async def stop(self) -> None:
        """Take no more, and keep what was taken: the broker is told before the line is cut (fault 37)."""
        self._stopping = True
        if self._task is None:
            return
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._settings.flush_ms, self._detach(self._task))
        await self.cut()
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._settings.flush_ms, self._give_up_claim())

    async def cut(self) -> None:
        """Take no more, at once: whatever is on its way comes back after its lease."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _detach(self, reading: asyncio.Task[None]) -> None:
        """What was on its way when the broker heard of it is read to the end, so that it can be given back."""
        if self._heard_ms and await self._client.detach(self._queue):
            await asyncio.wait((reading,))

    async def _give_up_claim(self) -> None:
        """A claim that was cut may have been answered: asking again with its id gives the same jobs, to give back."""
        claim_id, self._claim_id = self._claim_id, None
        if claim_id is not None:
            claimed = await self._client.claim(self._queue, max_count=1, claim_id=claim_id)
            await self._deliver(claimed.jobs)

    # Coming back

    async def _run(self) -> None:
        error: TenureError
        while not self._is_stopping():
            try:
                if self._push and self._timing.now_ms() >= self._no_push_until_ms:
                    await self._watched_stream()
                else:
                    await self._claims()
                error = Closed("the broker ended the stream", code="disconnected")
            except _NotPushed as why:
                log.warning("%s: jobs cannot be pushed, so they are claimed: %s", self._queue, why)
                self._no_push_until_ms = self._timing.now_ms() + self._settings.push_again_ms
                continue
            except TenureError as problem:
                error = problem
            if self._is_stopping():
                return
            self._link.down(self._queue, error)
            self._stats.reconnects += 1
            self._failures += 1
            await self._timing.sleep_ms(self._pause_ms())

    def _is_stopping(self) -> bool:
        return self._stopping

    def _pause_ms(self) -> float:
        """Full jitter: anything from nothing to the bound, which doubles with each failure."""
        bound = self._settings.reconnect_min_ms * 2.0 ** min(self._failures - 1, 32)
        return random.uniform(0, min(bound, self._settings.reconnect_max_ms))

    async def _opened(self) -> None:
        self._failures = 0
        self._link.up(self._queue)
        await self._on_open()

    # Pushed

    async def _watched_stream(self) -> None:
        """Read the stream, and end it when it is silent for too long."""
        self._heard_ms = 0
        began_ms, reading = self._timing.now_ms(), asyncio.ensure_future(self._stream())
        settings = self._settings
        try:
            while not reading.done():
                limit_ms = settings.silence_ms if self._heard_ms else settings.first_word_ms
                left_ms = (self._heard_ms or began_ms) + limit_ms - self._timing.now_ms()
                if left_ms <= 0:
                    break
                sleeper = asyncio.ensure_future(self._timing.sleep_ms(left_ms))
                await asyncio.wait((reading, sleeper), return_when=asyncio.FIRST_COMPLETED)
                sleeper.cancel()
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
        if not self._heard_ms:
            raise _NotPushed(f"no word came within {settings.first_word_ms} ms")
        raise Overloaded("the stream has gone silent", code="disconnected")

    async def _stream(self) -> None:
        await self._until_room(0)
        try:
            await self._read()
        except TenureError as error:
            if not self._heard_ms and error.code != "topic_not_found" and error.detail.get("status") in _NO_STREAM:
                raise _NotPushed(error.message) from error
            raise

    async def _read(self) -> None:
        async with self._client.work(self._queue, max_count=self._depth, lease_ms=self._lease_ms) as stream:
            async for jobs in stream:
                first, self._heard_ms = not self._heard_ms, self._timing.now_ms()
                if first:
                    await self._opened()
                if jobs:
                    await self._deliver(jobs)

    # Claimed

    async def _claims(self) -> None:
        opened = False
        while not self._stopping and (not self._push or self._timing.now_ms() < self._no_push_until_ms):
            await self._until_room(self._room_min)
            self._claim_id = uuid4().hex
            claimed = await self._client.claim(
                self._queue,
                max_count=self._room(),
                lease_ms=self._lease_ms,
                # The first one tells at once whether the broker is there.
                wait_ms=self._settings.poll_wait_ms if opened else 0,
                claim_id=self._claim_id,
            )
            self._claim_id = None
            if not opened:
                opened = True
                await self._opened()
            if claimed.jobs:
                await self._deliver(claimed.jobs)

    async def _until_room(self, count: int) -> None:
        """What an earlier stream brought may still be held: with it and with a full new one, memory stays bounded."""
        while self._room() < count:
            self._freed.clear()
            await self._freed.wait()
