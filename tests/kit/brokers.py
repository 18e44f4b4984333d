"""Helpers for tests on a broker: a queue in one line, a disk that can be blocked, and a loop that runs until idle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from msgspec.structs import asdict

from tenure import Broker, Record
from tenure.contract.records import Stored
from tenure.contract.replies import Grant
from tenure.core.state.snapshot import dump_checkpoint
from tenure.log.interface import Sync
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock

T = TypeVar("T")


async def make_queue(broker: Broker, name: str = "q", *, jobs: int = 0, **config: Any) -> None:
    """A queue with ``jobs`` jobs in it, whose data are their seqs."""
    await broker.put_topic(name, {"type": "queue", **config})
    if jobs:
        await broker.produce(name, [b"%d" % seq for seq in range(1, jobs + 1)])


def tagged(*tags: str | None) -> list[Record]:
    """One record for each tag, its data the tag."""
    return [Record(data=(tag or "").encode(), tag=tag) for tag in tags]


def seqs(records: Iterable[Stored]) -> list[int]:
    return [record.seq for record in records]


def datas(records: Iterable[Stored]) -> list[bytes]:
    return [record.data for record in records]


async def read(broker: Broker, topic: str) -> list[Stored]:
    """Every record that a reader from the start can see."""
    return (await broker.diff(topic, limit=1000)).records


def numbers(broker: Broker, topic: str = "q") -> dict[str, int]:
    """The counters of a queue."""
    queue = broker.topic(topic).queue
    assert queue is not None
    return asdict(queue)


def snapshot(broker: Broker) -> bytes:
    """The whole state as canonical bytes: equal before and after means that nothing changed."""
    return dump_checkpoint(broker._engine.state)


async def turn() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


async def start(awaitable: Awaitable[T]) -> asyncio.Future[T]:
    """Begin to wait for something, and go as far as it goes."""

    async def wait() -> T:
        return await awaitable

    task = asyncio.ensure_future(wait())
    await turn()
    return task


async def fail_by_expiry(broker: Broker, clock: ManualClock, times: int = 1, *, topic: str = "q") -> Grant | None:
    """Claim everything and let the leases run out, some times over; the last claim."""
    claim = None
    for _ in range(times):
        claim = await broker.claim(topic, node="w", max_count=1000, lease_ms=1000)
        clock.advance(1001)
    return claim


async def reopen(broker: Broker, log: MemoryLog, clock: ManualClock) -> Broker:
    """Close a broker and open another on what it wrote."""
    await broker.close()
    return await Broker.open(log.reopen(), clock=clock)


class GatedLog(MemoryLog):
    """A log whose syncs last until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def begin_sync(self) -> Sync:
        sync = super().begin_sync()
        sync.run, sync.is_instant = self._pass, False  # type: ignore[method-assign, misc]
        return sync

    def _pass(self) -> None:
        assert self.gate.wait(30), "a test left the gate shut"
