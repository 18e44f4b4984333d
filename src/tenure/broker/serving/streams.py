"""Work streams, which push jobs to a worker, and subscriptions to lifecycle events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tenure.broker.answer import Answer, OpenAnswer
from tenure.contract.commands import Claim
from tenure.contract.replies import Grant, Lifecycle
from tenure.core.state.topic import Topic
from tenure.errors import Overloaded, TenureError

__all__ = ["Book", "Subscription", "WorkStream"]


class Book(Protocol):
    """The book of what streams hold, as a stream sees it."""

    @property
    def unread_bytes_max(self) -> int:
        """How much one reader may have to read before it is given no more."""

    def lend(self, stream: WorkStream, number: int, job_count: int, *, signs_count: int) -> None:
        """Record that a stream is given a lease."""

    def read(self, answer: Answer[Grant]) -> Answer[Grant] | None:
        """Return the jobs that are still held of a claim which may have waited for its reader; None for none."""

    def answer(self, answer: Answer[Grant]) -> Answer[Grant] | OpenAnswer[Grant]:
        """Return the answer that resolves when a claim may be handed out."""

    def wake(self, stream: WorkStream) -> None:
        """Look at a stream again, which had stopped wanting jobs."""

    def end(self, stream: WorkStream, unread: list[int], *, is_cut: bool) -> None:
        """Remove a stream that has ended."""


class WorkStream:
    """Jobs pushed to one connection, at most ``max_count`` of them unsettled at once.

    ``async for`` yields claims as they come. Closing the stream gives back at once what it still holds, and nothing
    else of that node; detaching it first leaves all that was read leased, for a worker that finishes what it began.

    Where its leases isolate, closing it leaves what was read with the worker for a while (`Graces`), and gives back the
    rest. ``suspects`` is how many suspects wait on the queue, if that is news: a reader that takes it sets it to 0.

    Whether the worker behind it is alive is judged by this stream alone (fault 24), because each expiry of a stopped
    one would push it the same jobs again, until their deliveries are used up. A worker that let a lease expire which it
    had read, and has settled or extended nothing of this stream since it was given it, gets no more until it does. A
    reader that let one expire unread gets no more until it reads; it never reads a lease that has expired.

    ``leases`` and ``held_count`` are what it holds; `StreamLeases` keeps them. A reader that does not iterate calls
    `take` each time that ``on_arrival`` was called, until ``is_closed``.

    >>> import asyncio
    >>> from tenure.testing import memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker:
    ...         await broker.put_topic("mail", {"type": "queue"})
    ...         await broker.produce("mail", [b"1", b"2"])
    ...         async with broker.work("mail", node="worker-1", max_count=2) as stream:
    ...             async for grant in stream:
    ...                 return grant.seqs
    >>> asyncio.run(main())
    [1, 2]
    """

    def __init__(self, book: Book, topic: Topic, claim: Claim) -> None:
        self.topic = topic
        self.claim = claim
        self.node = claim.node
        self.max_count = claim.max_count
        self.leases: set[int] = set()
        self.held_count = 0
        self._book = book
        self._given: deque[Answer[Grant]] = deque()
        self._signs_count = 0
        self._is_silent = False
        self._is_unread = False
        self._queued_bytes = 0
        self._error: TenureError | None = None
        self.on_arrival: Callable[[], None] = _ignore
        self.is_closed = False
        self.suspects = 0

    # For the broker

    def wants(self) -> int:
        """Return how many more jobs it may hold; none while its reader has more to read than an answer carries."""
        if self.is_closed or self._is_silent or self._is_unread or self._queued_bytes >= self._book.unread_bytes_max:
            return 0
        return max(0, self.max_count - self.held_count)

    def hand(self, answer: Answer[Grant]) -> None:
        """Queue a claim for the reader."""
        claim = answer.reply
        self._book.lend(self, claim.lease, len(claim.jobs), signs_count=self._signs_count)
        if self._given:  # what is read next is not counted: an answer holds no more than a claim may
            self._queued_bytes += _bytes_of(claim)
        self._given.append(answer)
        self.on_arrival()

    def refuse(self, error: TenureError) -> None:
        """End with this error: the queue is gone."""
        self._error = error
        self.on_arrival()

    def announce(self, suspects: int) -> None:
        """Let the reader know that suspects wait."""
        self.suspects = suspects
        self.on_arrival()

    def expire(self, lease: int, *, signs_count: int) -> None:
        """Judge the worker after a lease expired, or a part of it. ``signs_count`` is how many signs of life the stream
        had when it was given that lease.
        """
        if self._given and lease >= self._given[0].reply.lease:  # leases are given and read in ascending order
            self._is_unread = True
        elif signs_count == self._signs_count:
            self._is_silent = True

    def note_alive(self) -> bool:
        """Record a sign of life: the worker settled or extended something that was given here. Return whether it had
        been silent.
        """
        was_silent, self._is_silent = self._is_silent, False
        self._signs_count += 1
        return was_silent

    # For the reader

    def __aiter__(self) -> WorkStream:
        return self

    async def __anext__(self) -> Grant:
        arrival = asyncio.Event()
        self.on_arrival = arrival.set
        while True:
            answer = self.take()
            if answer is not None:
                return await answer
            if self.is_closed:
                raise StopAsyncIteration
            await arrival.wait()
            arrival.clear()

    def take(self) -> Answer[Grant] | OpenAnswer[Grant] | None:
        """Return the next claim, as an answer that is done when it may be handed out; None where there is none now.

        Raises the error that the stream ended with.
        """
        while True:
            while self._given:
                answer = self._book.read(self._given[0])
                self._given.popleft()
                if self._given:
                    self._read_on()
                if answer is not None:
                    self._reads_again()
                    return self._book.answer(answer)
            self._reads_again()
            if not self._given:
                break
        if self._error is not None:
            raise self._error
        return None

    def _read_on(self) -> None:
        """Count the claim that is read next no more, and serve this stream again where it had too much to read."""
        had_too_much = self._queued_bytes >= self._book.unread_bytes_max
        self._queued_bytes -= _bytes_of(self._given[0].reply)
        if had_too_much and self._queued_bytes < self._book.unread_bytes_max:
            self._book.wake(self)

    def _reads_again(self) -> None:
        """Serve this stream again, where it was not served because its reader did not read."""
        if self._is_unread:
            self._is_unread = False
            self._book.wake(self)

    def detach(self) -> None:
        """Stop, and give back only what was not read yet: the rest stays leased until it is settled or expires."""
        self._end(is_cut=False)

    def close(self) -> None:
        """Stop, and give back what is held."""
        self._end(is_cut=True)

    def _end(self, *, is_cut: bool) -> None:
        unread = [answer.reply.lease for answer in self._given]
        if not is_cut:
            self._given.clear()
        if not self.is_closed:
            self.is_closed = True
            self.on_arrival()
            self._book.end(self, unread, is_cut=is_cut)

    async def __aenter__(self) -> WorkStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _bytes_of(claim: Grant) -> int:
    return sum(len(job.data) + len(job.meta or b"") for job in claim.jobs)


def _ignore() -> None:
    """Nobody reads the stream yet."""


class Subscription:
    """An iterator of lifecycle rows as they happen.

    A reader that lets too many pile up is cut off with Overloaded, so memory stays bounded.

    >>> import asyncio
    >>> from tenure.testing import memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker:
    ...         await broker.put_topic("mail", {"type": "queue"})
    ...         events = broker.events("mail")
    ...         await broker.produce("mail", [b"1"])
    ...         async for row in events:
    ...             return row.event, row.runs
    >>> asyncio.run(main())
    ('produced', [1, 1])
    """

    def __init__(self, topic: str | None, *, rows_max: int, on_close: Callable[[Subscription], None]) -> None:
        self.topic = topic
        self._rows: deque[Lifecycle] = deque()
        self._rows_max = rows_max
        self._arrival = asyncio.Event()
        self._on_close = on_close
        self._overrun = False
        self._error: TenureError | None = None
        self._closed = False

    def offer(self, row: Lifecycle) -> None:
        """Queue a row, if it is about the topic of this subscription."""
        if self._overrun or (self.topic is not None and row.topic != self.topic):
            return
        if len(self._rows) >= self._rows_max:
            self._overrun = True
        else:
            self._rows.append(row)
        self._arrival.set()

    def drain(self) -> list[Lifecycle]:
        """Return the rows that have come so far, without waiting."""
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
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        return self._rows.popleft()

    def refuse(self, error: TenureError) -> None:
        """End the subscription with this error; rows that were not read may be of events that never happened."""
        self._error = error
        self._rows.clear()
        self.close()

    def close(self) -> None:
        """End the subscription."""
        if not self._closed:
            self._closed = True
            self._arrival.set()
            self._on_close(self)
