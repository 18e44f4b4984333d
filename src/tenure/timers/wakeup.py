"""`Wakeup`: wait until a timer is due, without polling, by a pub/sub subscription.

For each topic with waiters this keeps when the next timer is due, on our own clock: every claim and every read of the
head returns a delay, and a message contains a shorter one. Only delays are sent, not times, so no clock is compared
with that of Redis. A message can only be missed while there is no subscription, and when one begins the head is read
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from tenure.backoff import backoff_ms
from tenure.errors import Overloaded
from tenure.timers.scripts import Keys
from tenure.timers.settings import TimersSettings
from tenure.timers.wire import NotSent, Wire

__all__ = ["NextDue", "Wakeup"]

_log = logging.getLogger("tenure.timers")

_RETURN_MIN_MS: Final = 200
_RETURN_MAX_MS: Final = 10_000
_TICK_S: Final = 0.001
"""Scores are whole milliseconds: a sleep ends just after its score, not just before."""


class NextDue:
    """When the next timer of one topic is due. ``live``: a message would announce a sooner one. ``stale``: read the
    head.
    """

    def __init__(self) -> None:
        self.next_s = float("inf")
        self.stale = True
        self.live = False
        self._message_count = 0
        self._subscription_count = 0
        self._changed = asyncio.Event()

    def mark(self) -> tuple[int, int]:
        """Return the counts of subscriptions and messages, to detect one that overtakes an answer asked for now."""
        return self._subscription_count, self._message_count

    def learn(self, delay_ms: int, *, since: tuple[int, int]) -> None:
        """Take the delay until the next timer from a script; ``since`` is the mark from before the call."""
        next_s = float("inf") if delay_ms < 0 else time.monotonic() + _seconds(delay_ms)
        if since[0] != self._subscription_count:
            return  # asked before the subscription began: messages in between were missed
        # A message may have overtaken the answer: then the sooner of the two holds.
        self.next_s = next_s if since[1] == self._message_count else min(self.next_s, next_s)
        self.stale = False

    def shorten(self, delay_ms: int) -> None:
        """Take the shorter delay of a message, and wake the waiters."""
        self._message_count += 1
        self.next_s = min(self.next_s, time.monotonic() + _seconds(delay_ms))
        self._wake()

    def set_live(self, *, live: bool) -> None:
        """Note that the subscription began or ended: what is known may be old."""
        self._subscription_count += 1
        self.live, self.stale = live, True
        self._wake()

    async def sleep(self, seconds: float) -> None:
        """Sleep until a change, or for ``seconds``."""
        changed = self._changed
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Wakeup:
    """The waiters of one `Timers`, all on one subscription."""

    def __init__(self, wire: Wire, keys_of: Callable[[str], Keys], settings: TimersSettings) -> None:
        self._wire = wire
        self._keys_of = keys_of
        self._settings = settings
        self._by_topic: dict[str, NextDue] = {}
        self._by_channel: dict[bytes, NextDue] = {}
        self._pubsub: PubSub | None = None
        self._asked: set[bytes] = set()
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    def next_due(self, topic: str) -> NextDue | None:
        """Return what is known of a topic; None without waiters."""
        return self._by_topic.get(topic)

    async def wait(self, topic: str, *, head: Callable[[], Awaitable[int]], timeout_ms: int | None) -> bool:
        """Return True as soon as the next timer is due, False after ``timeout_ms``. Raises what ``head`` raises."""
        next_due = self._listen(topic)
        end_s = float("inf") if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            while next_due.stale:
                since = next_due.mark()
                next_due.learn(await head(), since=since)
            now_s = time.monotonic()
            if next_due.next_s <= now_s:
                next_due.stale = True  # until a claim returns the next delay
                return True
            if now_s >= end_s:
                return False
            cap_s = now_s + (self._settings.wait_max_ms if next_due.live else self._settings.poll_ms) / 1000
            until_s = min(next_due.next_s, end_s, cap_s)
            await next_due.sleep(until_s - now_s)
            if time.monotonic() >= cap_s:
                next_due.stale = True

    async def close(self) -> None:
        """End the subscription."""
        await _end(self._task)
        self._task = None

    def _listen(self, topic: str) -> NextDue:
        next_due = self._by_topic.get(topic)
        if next_due is None:
            if len(self._by_topic) >= self._settings.topics_max:
                why = f"{len(self._by_topic)} topics are waited on already: raise topics_max, or use further Timers"
                raise Overloaded(why, code="too_many_topics")
            next_due = self._by_topic[topic] = NextDue()
            self._by_channel[self._keys_of(topic).channel] = next_due
            self._ask()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(), name="tenure-timers-wakeup")
        return next_due

    def _ask(self) -> None:
        """Subscribe to new topics, one call at a time: two at once would each open a connection."""
        if self._pubsub is not None and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._subscribe_to_new(self._pubsub))

    async def _subscribe_to_new(self, pubsub: PubSub) -> None:
        with suppress(RedisError, OSError):  # the reader meets the same error, and subscribes to all topics again
            while pubsub is self._pubsub and (new := self._by_channel.keys() - self._asked):
                self._asked |= new
                await pubsub.subscribe(*(channel.decode() for channel in new))

    async def _read(self) -> None:
        """Keep one subscription for all topics until `close`, with back-off after a failure."""
        failures = 0
        while True:
            began_s = time.monotonic()
            try:
                await self._read_once()
            except (RedisError, OSError, NotSent) as error:
                if failures == 0:
                    _log.warning("no wake-ups from Redis, looking every %d ms: %s", self._settings.poll_ms, error)
            finally:
                for next_due in self._by_topic.values():
                    next_due.set_live(live=False)
            lasted = time.monotonic() - began_s > _RETURN_MAX_MS / 1000
            failures = 0 if lasted else failures + 1
            await asyncio.sleep(backoff_ms(failures, min_ms=_RETURN_MIN_MS, max_ms=_RETURN_MAX_MS) / 1000)

    async def _read_once(self) -> None:
        pubsub = await self._wire.pubsub()
        try:
            self._asked = set(self._by_channel)
            async with asyncio.timeout(self._settings.connect_ms / 1000):
                await pubsub.subscribe(*(channel.decode() for channel in self._asked))
            self._pubsub = pubsub
            self._ask()
            async for message in pubsub.listen():
                self._take(message)
        finally:
            self._pubsub = None
            await _end(self._asking)
            with suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    def _take(self, message: dict[str, Any]) -> None:
        channel = message["channel"]
        next_due = self._by_channel.get(channel if isinstance(channel, bytes) else channel.encode())
        if next_due is None:
            return
        if message["type"] == "subscribe":  # also after a reconnect by redis-py: messages in between are lost
            next_due.set_live(live=True)
        elif message["type"] == "message":
            with suppress(ValueError):  # not a message of the scripts
                next_due.shorten(max(int(message["data"]), 0))


async def _end(task: asyncio.Task[None] | None) -> None:
    while task is not None and not task.done():
        task.cancel()  # repeatedly: redis-py may swallow a cancel while it reconnects
        await asyncio.wait([task], timeout=_RETURN_MIN_MS / 1000)


def _seconds(delay_ms: int) -> float:
    return delay_ms / 1000 + _TICK_S if delay_ms else 0.0
