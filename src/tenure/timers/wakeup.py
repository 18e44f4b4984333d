"""Sleeping until something is due, without polling.

For each topic that somebody waits on we keep when its next score is reached, on our own clock: every claim and every
look at the head tells a delay, and a message tells a shorter one. Delays travel, moments do not, so no clock is
compared with that of Redis. A message can only be missed while there is no subscription, and when one begins we look
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
from tenure.timers.calling import Keys
from tenure.timers.settings import TimersSettings
from tenure.timers.wire import NotSent, Wire

__all__ = ["Spot", "Wakeup"]

_log = logging.getLogger("tenure.timers")

_RETURN_MIN_MS: Final = 200
_RETURN_MAX_MS: Final = 10_000
_TICK_S: Final = 0.001
"""Scores are whole milliseconds: a sleep ends just behind its score, not just before."""


class Spot:
    """What is known of one topic: when its next score is reached, and whether we would hear of a sooner one."""

    def __init__(self) -> None:
        self.next_s = float("inf")
        self.stale = True
        self.live = False
        self._heard = 0
        self._turns = 0
        self._changed = asyncio.Event()

    def mark(self) -> tuple[int, int]:
        """What was heard so far, to be held against an answer that is asked for now."""
        return self._turns, self._heard

    def told(self, delay_ms: int, *, since: tuple[int, int]) -> None:
        """A script answered how long until the next score; ``since`` is the mark from before it was asked."""
        next_s = float("inf") if delay_ms < 0 else time.monotonic() + _seconds(delay_ms)
        if since[0] != self._turns:
            return  # asked before the subscription began: what came in between was heard by nobody
        # A message may have overtaken the answer, and then the sooner of the two holds.
        self.next_s = next_s if since[1] == self._heard else min(self.next_s, next_s)
        self.stale = False

    def hear(self, delay_ms: int) -> None:
        """A message: something is due this soon."""
        self._heard += 1
        self.next_s = min(self.next_s, time.monotonic() + _seconds(delay_ms))
        self._wake()

    def turn(self, *, live: bool) -> None:
        """The subscription began or ended: what we know may be old."""
        self._turns += 1
        self.live, self.stale = live, True
        self._wake()

    async def sleep(self, seconds: float) -> None:
        """Until something changes, or the time is over."""
        changed = self._changed
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Wakeup:
    """Everything that waits for Redis in this process, on one subscription."""

    def __init__(self, wire: Wire, keys_of: Callable[[str], Keys], settings: TimersSettings) -> None:
        self._wire = wire
        self._keys_of = keys_of
        self._settings = settings
        self._spots: dict[str, Spot] = {}
        self._topics: dict[bytes, Spot] = {}
        self._pubsub: PubSub | None = None
        self._asked: set[bytes] = set()
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    def spot(self, topic: str) -> Spot | None:
        """What is known of a topic that somebody waits on."""
        return self._spots.get(topic)

    async def wait(self, topic: str, *, head: Callable[[], Awaitable[int]], timeout_ms: int | None) -> bool:
        """Return True as soon as the next score is reached, False when the time is over. Raises what ``head`` does."""
        spot = self._listen(topic)
        end_s = float("inf") if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            while spot.stale:
                since = spot.mark()
                spot.told(await head(), since=since)
            now_s = time.monotonic()
            if spot.next_s <= now_s:
                spot.stale = True  # until a claim tells what comes next
                return True
            if now_s >= end_s:
                return False
            cap_s = now_s + (self._settings.wait_max_ms if spot.live else self._settings.poll_ms) / 1000
            until_s = min(spot.next_s, end_s, cap_s)
            await spot.sleep(until_s - now_s)
            if time.monotonic() >= cap_s:
                spot.stale = True

    async def close(self) -> None:
        """End the subscription."""
        await _end(self._task)
        self._task = None

    def _listen(self, topic: str) -> Spot:
        spot = self._spots.get(topic)
        if spot is None:
            if len(self._spots) >= self._settings.topics_max:
                why = f"{len(self._spots)} topics are waited on already: raise topics_max, or use further Timers"
                raise Overloaded(why, code="too_many_topics")
            spot = self._spots[topic] = Spot()
            self._topics[self._keys_of(topic).channel] = spot
            self._ask()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(), name="tenure-timers-wakeup")
        return spot

    def _ask(self) -> None:
        """Subscribe to what is new, one call at a time: two at once would each open a connection."""
        if self._pubsub is not None and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._subscribe_to_new(self._pubsub))

    async def _subscribe_to_new(self, pubsub: PubSub) -> None:
        with suppress(RedisError, OSError):  # the reader meets the same, and begins anew with all topics
            while pubsub is self._pubsub and (new := self._topics.keys() - self._asked):
                self._asked |= new
                await pubsub.subscribe(*(channel.decode() for channel in new))

    async def _read(self) -> None:
        """Keep one subscription for all topics, for as long as this object lives."""
        failures = 0
        while True:
            began_s = time.monotonic()
            try:
                await self._read_once()
            except (RedisError, OSError, NotSent) as error:
                if failures == 0:
                    _log.warning("no wake-ups from Redis, looking every %d ms: %s", self._settings.poll_ms, error)
            finally:
                for spot in self._spots.values():
                    spot.turn(live=False)
            lasted = time.monotonic() - began_s > _RETURN_MAX_MS / 1000
            failures = 0 if lasted else failures + 1
            await asyncio.sleep(backoff_ms(failures, min_ms=_RETURN_MIN_MS, max_ms=_RETURN_MAX_MS) / 1000)

    async def _read_once(self) -> None:
        pubsub = await self._wire.pubsub()
        try:
            self._asked = set(self._topics)
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
        spot = self._topics.get(channel if isinstance(channel, bytes) else channel.encode())
        if spot is None:
            return
        if message["type"] == "subscribe":  # also when redis-py came back by itself: what was said meanwhile is lost
            spot.turn(live=True)
        elif message["type"] == "message":
            with suppress(ValueError):  # not one of ours
                spot.hear(max(int(message["data"]), 0))


async def _end(task: asyncio.Task[None] | None) -> None:
    while task is not None and not task.done():
        task.cancel()  # more than once: redis-py may swallow one while it repairs a connection
        await asyncio.wait([task], timeout=_RETURN_MIN_MS / 1000)


def _seconds(delay_ms: int) -> float:
    return delay_ms / 1000 + _TICK_S if delay_ms else 0.0
