"""The stream of a watch session: many topics on one connection, each in turn.

A topic that is behind is read a batch at a time, and sent before anything more is read: a slow reader costs the server
one batch, and gets larger ones (fault 33). A topic that is at its head has one waiter on the broker and costs nothing
until something comes. The cursor in the session moves only after the reader has taken the frame, so coming back repeats
or continues and never skips (fault 32).
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
        self._sent_at_s = self._loop.time()
        self._due = deque(session.cursors)
        self._waiting: dict[str, asyncio.Future[object]] = {}
        self._arrival = asyncio.Event()
        self._live: set[str] = set()
        self._gone: set[str] = set()
        self._gaps_sent: dict[str, int] = {}
        self._synced_at: dict[str, int] = {}
        self._error: BaseException | None = None
        self._replaced = False

    def replace(self) -> None:
        """Stop, because another connection reads the session now."""
        self._replaced = True
        self._arrival.set()

    async def run(self) -> None:
        """Serve until the reader is gone or another one takes its place. Raises Closed after the broker is."""
        try:
            await self._send_bytes(sse.RETRY)
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

    async def _send_bytes(self, data: bytes) -> None:
        await self._send(data)
        self._sent_at_s = self._loop.time()

    async def _rest(self) -> None:
        """Wait until a topic is due; send a heartbeat when nothing else was sent for its interval."""
        self._arrival.clear()
        try:
            async with asyncio.timeout_at(self._sent_at_s + self._following.heartbeat_ms / 1000):
                await self._arrival.wait()
        except TimeoutError:
            await self._send_bytes(b": hb %d\n\n" % (time.time_ns() // 1_000_000))

    # One topic's turn

    async def _serve(self, name: str) -> None:
        """Send a batch of one topic; queue the topic again if there is more, else wait for more."""
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
            await self._send_deleted(name, cursor)
        except Corrupt as error:
            await self._send_damage(name, error)

    async def _hand_over(self, name: str, found: Difference, cursor: int) -> int:
        """Send what was found; return the cursor of the reader after it."""
        records, reached, head = found.records, found.next_from_seq, found.head_seq
        if self._following.strong:
            durable = self._broker.topic(name, touch=False).durable_seq
            records = [stored for stored in records if stored.seq <= durable]
            reached, head = min(reached, durable), min(head, durable)
        if found.tombstone is not None:
            cursor = await self._send_gap(name, found.tombstone, cursor, records[0].seq - 1 if records else reached)
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

    async def _send_gap(self, name: str, gap: Tombstone, cursor: int, onward: int) -> int:
        """Send a gap frame, once. After it the cursor is before the first record that is left."""
        recreated = gap.reason == "recreated"
        if not recreated and gap.gap_to <= self._gaps_sent.get(name, 0):
            return cursor
        self._gaps_sent[name] = 0 if recreated else gap.gap_to
        self._live.discard(name)
        cursor = onward if recreated else max(min(gap.gap_to, onward), cursor)
        await self._emit(name, b"tombstone", gap_text(gap, topic=name), cursor=cursor)
        return cursor

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
        await self._send_bytes(sse.frame(b"topic-deleted", said, event_id=frame_id))
        if not self._replaced:
            self._session.cursors.pop(name, None)

    async def _emit(self, name: str, event: bytes, data: bytes, *, cursor: int) -> None:
        """Send one frame; after it is taken, move the cursors to those of its id."""
        frame_id = encode_cursors(self._session.cursors | {name: cursor})
        await self._send_bytes(sse.frame(event, data, event_id=frame_id))
        self._move(name, cursor)

    def _move(self, name: str, cursor: int) -> None:
        if not self._replaced and name in self._session.cursors:
            self._session.cursors[name] = cursor

    # Waiting

    def _wait_for_more(self, name: str, cursor: int) -> None:
        """Wait at the broker for a record to come, or, where one came that is not durable yet, for it to be.

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
        """Queue a topic whose wait has ended: it is due, or it was deleted."""
        waiter = self._waiting.pop(name)
        if waiter.cancelled():
            return
        error = waiter.exception()
        if isinstance(error, NotFound):
            self._gone.add(name)
        elif error is not None and not isinstance(error, Corrupt):  # damage is reported when the topic is served
            self._error = error
        self._due.append(name)
        self._arrival.set()


async def _outcome(coming: Awaitable[T]) -> T:
    return await coming


def _batches(records: list[Stored], bytes_max: int) -> Iterator[tuple[list[Stored], bool]]:
    """Yield records in batches of a bounded size, at least one in each; True with the last."""
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
