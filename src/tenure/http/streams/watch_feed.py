"""Feeds: watchers that have read all of a topic share one read of what comes next.

A watcher that has caught up joins the feed of its topic. The feed has one waiter on the broker; a record that comes is
read once, its frame is encoded once for each form in which members want it, and written to all of them without waking
their tasks. A member that cannot take the frame, because it is slow, busy with another topic or not where the others
are, leaves: it reads on by itself at its own pace and joins again after it has caught up. So a slow watcher costs what
it keeps for itself, and the others nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

from tenure.broker.broker import Broker
from tenure.http.streams.slices import Slices
from tenure.http.streams.watch_portion import Portion

__all__ = ["Feeds", "Member"]

_WAIT_MS: Final = 30_000


class Member(Protocol):
    """A watcher in a feed."""

    def take(self, portion: Portion) -> bool:
        """Write a portion to the reader at once; return False where it has to read by itself."""

    def leave(self, name: str, error: BaseException | None = None) -> None:
        """Read by itself from now on; ``error`` is that of the read for all."""


class _Key(NamedTuple):
    """What the members of a feed have in common: they read the same records in the same portions."""

    name: str
    limit: int
    strong: bool


class Feeds:
    """The feeds of one server."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._feeds: dict[_Key, _Feed] = {}
        self._slices = Slices()

    def join(self, member: Member, name: str, *, cursor: int, limit: int, strong: bool) -> bool:
        """Serve a watcher from now on; return False where it is behind the others, and has to read on first."""
        key = _Key(name, limit, strong)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = _Feed(self, key, cursor=cursor)
        return feed.join(member, cursor)

    def part(self, member: Member, name: str, *, limit: int, strong: bool) -> None:
        """Serve a watcher no more. A feed without members ends."""
        feed = self._feeds.get(_Key(name, limit, strong))
        if feed is not None:
            feed.part(member)


class _Feed:
    """One feed, which is a task while it has members. All of them have read up to ``_cursor``, or further."""

    __slots__ = ("_cursor", "_feeds", "_key", "_members", "_task")

    def __init__(self, feeds: Feeds, key: _Key, *, cursor: int) -> None:
        self._feeds = feeds
        self._key = key
        self._cursor = cursor
        self._members: dict[Member, None] = {}
        self._task = asyncio.ensure_future(self._run())

    def join(self, member: Member, cursor: int) -> bool:
        if cursor < self._cursor:
            return False
        self._members[member] = None
        return True

    def part(self, member: Member) -> None:
        self._members.pop(member, None)
        if not self._members:
            self._task.cancel()
            self._forget()

    def _forget(self) -> None:
        feeds = self._feeds._feeds
        if feeds.get(self._key) is self:
            del feeds[self._key]

    async def _run(self) -> None:
        try:
            while self._members:
                portion = await self._read()
                if portion.gap is not None:  # how much of it each has missed is its own
                    break
                await self._spread(portion)
            self._end(None)
        except Exception as error:  # raised again in the task of each member
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._forget()
        members, self._members = self._members, {}
        for member in members:
            member.leave(self._key.name, error)

    async def _read(self) -> Portion:
        """Wait for a record to come, or, where one came that is not durable yet and has to be, for its sync."""
        broker, (name, limit, strong), cursor = self._feeds._broker, self._key, self._cursor
        wait_ms = _WAIT_MS
        if strong and cursor < broker.topic(name, touch=False).head_seq:
            await broker.synced()
            wait_ms = 0
        found = await broker.diff(name, from_seq=cursor, limit=limit, wait_ms=wait_ms)
        return Portion(broker, found, from_seq=cursor, strong=strong)

    async def _spread(self, portion: Portion) -> None:
        """Write a portion to all members; those that join meanwhile have it, or read it first."""
        self._cursor = portion.reached

        def give(member: Member) -> None:
            if member in self._members and not member.take(portion):
                del self._members[member]
                member.leave(portion.name)

        await self._feeds._slices.each(list(self._members), give)
