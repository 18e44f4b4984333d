"""Things that stay open: a work stream that keeps a worker supplied, and a subscription to the life of jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.broker.answer import Answer
from tenure.broker.lifecycle import Lifecycle
from tenure.broker.replies import Claim
from tenure.core.topic import Topic
from tenure.errors import Overloaded, TenureError

__all__ = ["Subscription", "WorkStream"]


class WorkStream:
    """Jobs pushed to one connection, at most ``max_count`` of them unsettled at once.

    ``async for`` gives claims as they come. Closing it gives back at once what it still holds, and nothing else of
    that node; detaching it first leaves all that was read leased, for a worker that finishes what it began.

    A worker that lets a lease run out and has said nothing since it got it is taken to be stopped, with its connection
    open: it gets no more until its node settles or extends something (fault 24). Otherwise every lapse would push it
    the same jobs again, until their deliveries are used up.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        node: str,
        max_count: int,
        lease_ms: int | None,
        answer: Callable[[Answer[Claim]], Awaitable[Claim]],
        on_close: Callable[[WorkStream], None],
    ) -> None:
        self.topic = topic
        self.node = node
        self.max_count = max_count
        self.lease_ms = lease_ms
        self.claim_id: str | None = None
        self.auto_ack = False
        self._answer = answer
        self._on_close = on_close
        self._numbers: dict[int, int] = {}  # each lease, and how much the node had said when it was given
        self._said_count = 0
        self._is_mute = False
        self._given: deque[Answer[Claim]] = deque()
        self._arrival = asyncio.Event()
        self._error: TenureError | None = None
        self._closed = False

    def wants(self) -> int:
        """How many more jobs it may hold."""
        queue = self.topic.queue
        if self._closed or queue is None:
            return 0
        for number in [number for number in self._numbers if number not in queue.leases]:
            self._is_mute = self._is_mute or self._numbers[number] == self._said_count
            del self._numbers[number]
        if self._is_mute:
            return 0
        return max(0, self.max_count - sum(map(queue.held_count, self._numbers)))

    def give(self, answer: Answer[Claim]) -> bool:
        """Take in a claim."""
        self._numbers[answer.reply.lease] = self._said_count
        self._given.append(answer)
        self._arrival.set()
        return False

    def heard(self) -> bool:
        """Its node settled or extended something; True where that lets it be fed again."""
        self._said_count += 1
        was_mute, self._is_mute = self._is_mute, False
        return was_mute

    def refuse(self, error: TenureError) -> None:
        """The queue is gone."""
        self._error = error
        self._arrival.set()

    @property
    def leases(self) -> list[int]:
        """The leases that were delivered here, in order."""
        return sorted(self._numbers)

    def __aiter__(self) -> WorkStream:
        return self

    async def __anext__(self) -> Claim:
        while not self._given:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        return await self._answer(self._given.popleft())

    def detach(self) -> None:
        """Stop, and give back only what nobody has read yet: the rest stays leased until it is settled or runs out."""
        self._numbers = {answer.reply.lease: 0 for answer in self._given}
        self._given.clear()
        self.close()

    def close(self) -> None:
        """Stop, and give back what is held."""
        if not self._closed:
            self._closed = True
            self._arrival.set()
            self._on_close(self)

    async def __aenter__(self) -> WorkStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Subscription:
    """Lifecycle rows as they happen.

    A reader that lets too many pile up is cut off with Overloaded, so memory stays bounded.
    """

    def __init__(self, topic: str | None, *, rows_max: int, on_close: Callable[[Subscription], None]) -> None:
        self.topic = topic
        self._rows: deque[Lifecycle] = deque()
        self._rows_max = rows_max
        self._arrival = asyncio.Event()
        self._on_close = on_close
        self._overrun = False
        self._closed = False

    def offer(self, row: Lifecycle) -> None:
        """Take in a row, if it is about the topic asked for."""
        if self._overrun or (self.topic is not None and row.topic != self.topic):
            return
        if len(self._rows) >= self._rows_max:
            self._overrun = True
        else:
            self._rows.append(row)
        self._arrival.set()

    def drain(self) -> list[Lifecycle]:
        """Everything that has come so far, without waiting."""
        rows = list(self._rows)
        self._rows.clear()
        return rows

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Lifecycle:
        while not self._rows:
            if self._overrun:
                self.close()
                raise Overloaded("this reader fell too far behind: subscribe again", limit="subscriber_events_max")
            if self._closed:
                raise StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        return self._rows.popleft()

    def close(self) -> None:
        """Stop listening."""
        if not self._closed:
            self._closed = True
            self._arrival.set()
            self._on_close(self)
