"""The stream of a watch session: many topics on one connection, each in turn.

A topic that is behind is read a batch at a time, and sent before anything more is read: a slow reader costs the server
one batch, and gets larger ones (fault 33). A topic that is at its head joins the feed of all watchers there, and costs
nothing until something comes. The cursor in the session moves only after the frame was written to a peer that had room
for it, so coming back repeats or continues and never skips (fault 32).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from functools import partial

from tenure.broker.broker import Broker
from tenure.contract.commands import Diff
from tenure.contract.replies import Tombstone
from tenure.errors import Corrupt, NotFound
from tenure.http.api.render import encode, gap_text
from tenure.http.streams import sse
from tenure.http.streams.outlet import Outlet
from tenure.http.streams.watch import Following, Session, encode_cursors
from tenure.http.streams.watch_feed import Feeds
from tenure.http.streams.watch_portion import Portion
from tenure.http.wire.fair_turns import Caller, in_turn
from tenure.http.wire.message import Send

__all__ = ["Follower"]


class Follower:
    """One connection that reads a session."""

    def __init__(
        self, broker: Broker, session: Session, send: Send, *, feeds: Feeds, caller: Caller | None = None
    ) -> None:
        self._broker = broker
        self._caller = caller
        self._session = session
        self._following: Following = session.following
        self._feeds = feeds
        self._outlet = Outlet(send, heartbeat_ms=self._following.heartbeat_ms, heartbeat=_heartbeat)
        self._due = deque(session.cursors)
        self._joined: set[str] = set()
        self._live: set[str] = set()
        self._gone: set[str] = set()
        self._gaps_sent: dict[str, int] = {}
        self._error: BaseException | None = None
        self._replaced = False

    def replace(self) -> None:
        """Stop, because another connection reads the session now."""
        self._replaced = True
        self._outlet.wake()

    async def run(self) -> None:
        """Serve until the reader is gone or another one takes its place. Raises Closed after the broker is."""
        try:
            await self._outlet.send(sse.RETRY)
            while not self._replaced:
                if self._error is not None:
                    raise self._error
                if self._due:
                    await self._serve(self._due.popleft())
                else:
                    await self._outlet.wait()
        finally:
            for name in self._joined:
                self._feeds.part(self, name, limit=self._following.limit, strong=self._following.strong)

    # One topic's turn

    async def _serve(self, name: str) -> None:
        """Send a batch of one topic; queue the topic again if there is more, else follow it with all others there."""
        cursor = self._session.cursors.get(name)
        if cursor is None:
            return
        try:
            if name in self._gone:
                raise NotFound(f"topic {name!r} was deleted", code="topic_not_found")
            await self._outlet.room()  # nothing is read for a peer that has not taken what it was sent
            frame, reached = await in_turn(self._caller, partial(self._send_next, name, cursor))
            if frame is None:
                await self._outlet.room()  # while the peer takes what was sent, nothing of it is kept here
            else:
                await self._outlet.send(frame)
            self._move(name, reached)
            if not self._replaced and not self._join(name):
                self._due.append(name)
                await asyncio.sleep(0)  # a reader's own records are sent to nobody: no send would end the turn
        except NotFound:
            await self._send_deleted(name, cursor)
        except Corrupt as error:
            await self._send_damage(name, error)

    def _join(self, name: str) -> bool:
        """Have what comes next written by the feed of a topic; return False where there is more to read first."""
        following, cursor = self._following, self._session.cursors.get(name)
        if name not in self._live or cursor is None:
            return False
        if self._feeds.join(self, name, cursor=cursor, limit=following.limit, strong=following.strong):
            self._joined.add(name)
            return True
        return False

    def _send_next(self, name: str, cursor: int) -> tuple[bytes | None, int]:
        """Read on, and send what the peer has room for; what it has no room for is read again later.

        Return the cursor after it, and the frame that still has to be sent where there was no room for any.
        """
        following = self._following
        found = self._broker.run(Diff(topic=name, from_seq=cursor, limit=following.limit)).reply
        portion = Portion(self._broker, found, from_seq=cursor, strong=following.strong)
        sent = 0
        for event, data, to_seq in self._events(portion, cursor):
            if self._replaced:
                return None, cursor
            frame = sse.frame(event, data, event_id=encode_cursors(self._session.cursors | {name: to_seq}))
            if not self._outlet.push(frame):
                return (None, cursor) if sent else (frame, to_seq)
            sent, cursor = sent + 1, to_seq
        self._note_live(portion)
        return None, portion.reached

    def _events(self, portion: Portion, cursor: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield the events of a portion, and before them that of a gap, once."""
        name, gap = portion.name, portion.gap
        if gap is not None:
            onward = portion.records[0].seq - 1 if portion.records else portion.reached
            recreated = gap.reason == "recreated"
            if recreated or gap.gap_to > self._gaps_sent.get(name, 0):
                self._live.discard(name)
                cursor = onward if recreated else max(min(gap.gap_to, onward), cursor)
                yield b"tombstone", gap_text(gap, topic=name), cursor
                self._gaps_sent[name] = 0 if recreated else gap.gap_to
            portion.begin_after(cursor)
        yield from portion.events(self._following, caught_up=name in self._live)

    def _note_live(self, portion: Portion) -> None:
        """Record whether the reader is at the head of the topic after a portion."""
        if portion.is_last:
            self._live.add(portion.name)
        else:
            self._live.discard(portion.name)

    async def _send_damage(self, name: str, error: Corrupt) -> None:
        """Send which records cannot be read, and continue after them."""
        first, last = error.detail["first_seq"], error.detail["last_seq"]
        info = self._broker.topic(name, touch=False)
        gap = Tombstone(first, last, "unreadable", last - first + 1, info.earliest_seq, info.head_seq)
        self._live.discard(name)
        await self._emit(name, b"tombstone", gap_text(gap, topic=name), cursor=last)
        self._due.append(name)

    async def _send_deleted(self, name: str, cursor: int) -> None:
        """Send that a topic was deleted; this session drops it for good and goes on with the others."""
        self._gone.add(name)
        frame_id = encode_cursors(self._session.cursors)
        said = encode({"topic": name, "head_seq": cursor, "reason": "deleted"})
        await self._outlet.send(sse.frame(b"topic-deleted", said, event_id=frame_id))
        if not self._replaced:
            self._session.cursors.pop(name, None)

    async def _emit(self, name: str, event: bytes, data: bytes, *, cursor: int) -> None:
        """Send one frame; after it is taken, move the cursors to those of its id."""
        frame_id = encode_cursors(self._session.cursors | {name: cursor})
        await self._outlet.send(sse.frame(event, data, event_id=frame_id))
        self._move(name, cursor)

    def _move(self, name: str, cursor: int) -> None:
        if not self._replaced and name in self._session.cursors:
            self._session.cursors[name] = cursor

    # What the feed of a topic calls

    def take(self, portion: Portion) -> bool:
        """Write a portion to the reader at once, where the reader is at its beginning and has room for it."""
        name, cursors = portion.name, self._session.cursors
        cursor, live = cursors.get(name, -1), name in self._live
        if cursor != portion.from_seq:
            return cursor >= portion.reached
        for shared, to_seq in portion.shared(self._following, cursors, caught_up=live):
            if not self._outlet.offer(shared):
                return False
            cursors[name] = to_seq
        cursors[name] = portion.reached
        if live != portion.is_last:
            self._note_live(portion)
        return True

    def leave(self, name: str, error: BaseException | None = None) -> None:
        """Read a topic by itself again: the feed has stopped, or the reader could not take what came."""
        self._joined.discard(name)
        if isinstance(error, NotFound):
            self._gone.add(name)
        elif error is not None and not isinstance(error, Corrupt):  # damage is reported when the topic is served
            self._error = error
        self._due.append(name)
        self._outlet.wake()


def _heartbeat() -> bytes:
    return b": hb %d\n\n" % (time.time_ns() // 1_000_000)
