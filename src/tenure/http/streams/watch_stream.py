"""The stream of a watch session: many topics on one connection, each in turn.

A topic that is behind is read a batch at a time, and sent before anything more is read: a slow reader costs the server
one batch, and gets larger ones (fault 33). A topic that is at its head has one waiter on the broker and costs nothing
until something comes. What the reader has been given is noted in the session only after it was taken, so coming back
repeats or continues and never skips (fault 32).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Iterator
from typing import Final, TypeVar

from tenure.broker.broker import Broker
from tenure.contract.records import Stored
from tenure.contract.replies import Difference, Tombstone
from tenure.errors import Corrupt, NotFound
from tenure.http.api.render import encode, gap_text, record
from tenure.http.streams import sse
from tenure.http.streams.watch import Following, Session, encode_cursors
from tenure.http.wire.message import Send

__all__ = ["Follower"]

T = TypeVar("T")
_WAIT_MS: Final = 30_000


class Follower:
    """One connection that reads a session."""

    def __init__(self, broker: Broker, session: Session, send: Send) -> None:
        self._broker = broker
        self._session = session
        self._following: Following = session.following
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._said_at = self._loop.time()
        self._due = deque(session.cursors)
        self._waiting: dict[str, asyncio.Future[object]] = {}
        self._arrival = asyncio.Event()
        self._live: set[str] = set()
        self._gone: set[str] = set()
        self._gaps_told: dict[str, int] = {}
        self._synced_at: dict[str, int] = {}
        self._error: BaseException | None = None
        self._replaced = False

    def replace(self) -> None:
        """Another connection reads the session now: stop."""
        self._replaced = True
        self._arrival.set()

    async def run(self) -> None:
        """Serve until the reader is gone or another one takes its place. Raises what the broker does, if it closes."""
        try:
            await self._say(sse.RETRY)
            while not self._replaced:
                if self._error is not None:
                    raise self._error
                if self._due:
                    await self._serve(self._due.popleft())
                else:
                    await self._rest()
        finally:
            for waiter in self._waiting.values():
                waiter.cancel()

    async def _say(self, data: bytes) -> None:
        await self._send(data)
        self._said_at = self._loop.time()

    async def _rest(self) -> None:
        """Wait until something is due; a heartbeat goes out only when nothing else has for so long."""
        self._arrival.clear()
        try:
            async with asyncio.timeout_at(self._said_at + self._following.heartbeat_ms / 1000):
                await self._arrival.wait()
        except TimeoutError:
            await self._say(b": hb %d\n\n" % (time.time_ns() // 1_000_000))

    # One topic's turn

    async def _serve(self, name: str) -> None:
        """Hand over a batch of one topic; come back to it if there is more, else let it wait."""
        cursor = self._session.cursors.get(name)
        if cursor is None:
            return
        try:
            if name in self._gone:
                raise NotFound(f"topic {name!r} was deleted", code="topic_not_found")
            following = self._following
            found = await self._broker.diff(name, from_seq=cursor, limit=following.limit, node=following.nodes)
            cursor = await self._hand_over(name, found, cursor)
            if name not in self._live:
                self._due.append(name)
            elif not self._replaced:
                self._wait_for_more(name, cursor)
        except NotFound:
            await self._tell_deleted(name, cursor)
        except Corrupt as error:
            await self._tell_damage(name, error)

    async def _hand_over(self, name: str, found: Difference, cursor: int) -> int:
        """Send what was found; returns where the reader then is."""
        records, reached, head = found.records, found.next_from_seq, found.head_seq
        if self._following.strong:
            durable = self._broker.topic(name, touch=False).durable_seq
            records = [stored for stored in records if stored.seq <= durable]
            reached, head = min(reached, durable), min(head, durable)
        if found.tombstone is not None:
            cursor = await self._tell_gap(name, found.tombstone, cursor, records[0].seq - 1 if records else reached)
        reached = max(reached, cursor)
        head = max(head, reached)
        for batch, last in _batches(records, self._following.batch_bytes_max):
            if self._replaced:
                return cursor
            to_seq = reached if last else batch[-1].seq
            await self._emit(name, b"record", self._batch(name, batch, cursor, to_seq, head), cursor=to_seq)
            cursor = to_seq
        self._move(name, reached)
        if reached < head:
            self._live.discard(name)
        elif name not in self._live:
            self._live.add(name)
            await self._emit(name, b"caught-up", encode({"topic": name, "head_seq": head}), cursor=reached)
        return reached

    def _batch(self, name: str, batch: list[Stored], from_seq: int, to_seq: int, head_seq: int) -> bytes:
        asked = self._following
        return b'{"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
            name.encode(),
            b",".join(
                [
                    record(stored, tags=asked.include_tags, meta=asked.include_meta, data=asked.include_data)
                    for stored in batch
                ]
            ),
            from_seq,
            to_seq,
            head_seq,
        )

    async def _tell_gap(self, name: str, gap: Tombstone, cursor: int, onward: int) -> int:
        """Tell of loss, once. Behind the frame the cursor stands before the first record that is left."""
        recreated = gap.reason == "recreated"
        if not recreated and gap.gap_to <= self._gaps_told.get(name, 0):
            return cursor
        self._gaps_told[name] = 0 if recreated else gap.gap_to
        self._live.discard(name)
        cursor = onward if recreated else max(min(gap.gap_to, onward), cursor)
        await self._emit(name, b"tombstone", gap_text(gap, topic=name), cursor=cursor)
        return cursor

    async def _tell_damage(self, name: str, error: Corrupt) -> None:
        """Tell which records cannot be read, and go on behind them."""
        first, last = error.detail["first_seq"], error.detail["last_seq"]
        info = self._broker.topic(name, touch=False)
        gap = Tombstone(first, last, "unreadable", last - first + 1, info.earliest_seq, info.head_seq)
        self._live.discard(name)
        await self._emit(name, b"tombstone", gap_text(gap, topic=name), cursor=last)
        self._due.append(name)

    async def _tell_deleted(self, name: str, cursor: int) -> None:
        """The topic is gone, for good as far as this session goes; the others go on."""
        self._gone.add(name)
        frame_id = encode_cursors(self._session.cursors)
        said = encode({"topic": name, "head_seq": cursor, "reason": "deleted"})
        await self._say(sse.frame(b"topic-deleted", said, event_id=frame_id))
        if not self._replaced:
            self._session.cursors.pop(name, None)

    async def _emit(self, name: str, event: bytes, data: bytes, *, cursor: int) -> None:
        """Send one frame; once it is taken, the reader has come as far as its id says."""
        frame_id = encode_cursors(self._session.cursors | {name: cursor})
        await self._say(sse.frame(event, data, event_id=frame_id))
        self._move(name, cursor)

    def _move(self, name: str, cursor: int) -> None:
        if not self._replaced and name in self._session.cursors:
            self._session.cursors[name] = cursor

    # Waiting

    def _wait_for_more(self, name: str, cursor: int) -> None:
        """Have the broker wake us: when a record comes, or, where one came that is not durable yet, when it is.

        One record is asked for, so that what comes while a slow reader is being served takes no room.
        """
        coming: Awaitable[object] | None = None
        if self._following.strong:
            head = self._broker.topic(name, touch=False).head_seq
            if cursor < head and self._synced_at.get(name) != head:
                self._synced_at[name] = head
                coming = self._broker.synced()
        if coming is None:
            coming = self._broker.diff(name, from_seq=cursor, limit=1, node=self._following.nodes, wait_ms=_WAIT_MS)
        waiter = asyncio.ensure_future(_outcome(coming))
        self._waiting[name] = waiter
        waiter.add_done_callback(lambda _: self._wake(name))

    def _wake(self, name: str) -> None:
        """A topic has something to tell: it is due, or it is gone."""
        waiter = self._waiting.pop(name)
        if waiter.cancelled():
            return
        error = waiter.exception()
        if isinstance(error, NotFound):
            self._gone.add(name)
        elif error is not None and not isinstance(error, Corrupt):  # damage is told when the topic is served
            self._error = error
        self._due.append(name)
        self._arrival.set()


async def _outcome(coming: Awaitable[T]) -> T:
    return await coming


def _batches(records: list[Stored], bytes_max: int) -> Iterator[tuple[list[Stored], bool]]:
    """Records in batches of at most so many bytes, at least one in each; True with the last."""
    batch: list[Stored] = []
    size = 0
    for stored in records:
        weight = len(stored.data) + len(stored.meta or b"")
        if batch and size + weight > bytes_max:
            yield batch, False
            batch, size = [], 0
        batch.append(stored)
        size += weight
    if batch:
        yield batch, True
