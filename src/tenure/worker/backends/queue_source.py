"""`QueueSource`: the jobs of a queue from a push stream, or from long-poll claims where a stream is not possible.

A silent stream is dead (fault 31): the broker sends a heartbeat every 15 seconds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import msgspec

from tenure.contract.replies import Claimed, Job
from tenure.errors import Closed, Overloaded, TenureError
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed, Source

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient
    from tenure.client.streams.work import Work

__all__ = ["Isolation", "QueueSource", "held_job"]

log = logging.getLogger("tenure.worker")

_NO_STREAM = frozenset({404, 405, 406, 501})


class _NotPushed(Exception):
    """A proxy before the broker, or an old broker, does not support streams."""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How claims isolate: the ``group`` that dies together, and whether only ``suspects`` are taken."""

    group: str | None = None
    suspects: bool = False


class QueueSource(Source):
    """The jobs of one queue of a broker; pushed unless ``push`` is False."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        *,
        feed: Feed,
        link: Link,
        lease_ms: int,
        push: bool,
        isolation: Isolation = Isolation(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(queue, feed, link)
        self._client = client
        self._lease_ms = lease_ms
        self._push = push
        self._group = isolation.group
        self._suspects = isolation.suspects
        self._heard_ms = 0
        self._lingers = False
        self._no_push_until_ms = 0
        self._claim_id: str | None = None

    async def _flow(self) -> None:
        try:
            if self._push and self._timing.now_ms() >= self._no_push_until_ms:
                await self._watched_stream()
            else:
                await self._claims()
        except _NotPushed as why:
            log.warning("%s: jobs cannot be pushed, so they are claimed: %s", self._queue, why)
            self._no_push_until_ms = self._timing.now_ms() + self._settings.push_again_ms
            return
        raise Closed("the broker ended the stream", code="disconnected")

    async def _finish_flow(self, flowing: asyncio.Task[None]) -> None:
        """Detach the stream and read it to its end, so that jobs in flight can be given back."""
        if self._heard_ms and await self._client.detach(self._queue):
            await asyncio.wait((flowing,))

    async def _recover_cut(self) -> None:
        """Repeat a claim that was cut, with its id: it returns the same jobs, to be given back."""
        claim_id, self._claim_id = self._claim_id, None
        if claim_id is not None:
            claimed = await self._claim(max_count=1, wait_ms=0, claim_id=claim_id)
            if claimed.jobs:
                await self._deliver(claimed.jobs)

    async def _deliver(self, jobs: list[Job]) -> None:
        claimed_wall_ms = min(job.deadline or 0 for job in jobs) - self._lease_ms
        node = self._client.node
        await self._feed.deliver([held_job(self._queue, job, node) for job in jobs], claimed_wall_ms)

    # Push stream

    async def _watched_stream(self) -> None:
        """Read the stream, and end it after ``silence_ms`` without a message."""
        self._lingers = self._lingers or bool(self._heard_ms)
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
        if self._lingers:  # the broker may not know that the last stream is gone, and feed it
            await self._client.detach(self._queue)
            self._lingers = False
        try:
            await self._read()
        except TenureError as error:
            if not self._heard_ms and error.code != "topic_not_found" and error.detail.get("status") in _NO_STREAM:
                raise _NotPushed(error.message) from error
            raise

    async def _read(self) -> None:
        feed = self._client.work(
            self._queue,
            max_count=self._feed.depth,
            lease_ms=self._lease_ms,
            isolate=True,
            group=self._group,
            suspects=self._suspects,
        )
        work = cast("Work", feed.source)
        async with feed as stream:
            async for jobs in stream:
                first, self._heard_ms = not self._heard_ms, self._timing.now_ms()
                if first:
                    await self._report_open()
                if jobs:
                    await self._deliver(jobs)
                if work.suspects:  # said once
                    count, work.suspects = work.suspects, 0
                    self._feed.hear_suspects(count)

    # Claims

    async def _claims(self) -> None:
        opened = False
        while not self._unwanted.is_set() and (not self._push or self._timing.now_ms() < self._no_push_until_ms):
            await self._until_room(self._room_min)
            self._claim_id = uuid4().hex
            # The first claim does not wait: it shows at once whether the broker answers.
            wait_ms = self._settings.poll_wait_ms if opened else 0
            claimed = await self._claim(max_count=self._feed.room(), wait_ms=wait_ms, claim_id=self._claim_id)
            self._claim_id = None
            if not opened:
                opened = True
                await self._report_open()
            self._feed.hear_suspects(claimed.suspects)
            if claimed.jobs:
                await self._deliver(claimed.jobs)

    async def _claim(self, *, max_count: int, wait_ms: int, claim_id: str) -> Claimed:
        return await self._client.claim(
            self._queue,
            max_count=max_count,
            lease_ms=self._lease_ms,
            wait_ms=wait_ms,
            claim_id=claim_id,
            isolate=True,
            group=self._group,
            suspects=self._suspects,
        )


def held_job(queue: str, job: Job, node: str, *, lease_ms: int = 0) -> HeldJob:
    """Return a delivery as the runtime holds it; ``lease_ms`` where it was claimed for longer than the task's lease."""
    return HeldJob(
        topic=queue,
        seq=job.seq,
        lease_id=job.lease_id or "",
        node=node,
        data=bytes(job.data),
        meta=None if job.meta is None else bytes(job.meta),
        tag=job.tag,
        ts=job.ts,
        deliveries=job.deliveries,
        tries=job.tries,
        lost_count=job.lost,
        lease_ms=lease_ms,
    )
