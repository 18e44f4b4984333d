"""Helpers for tests on a buffer: quick settings, and entries produced and consumed."""

from __future__ import annotations

from tenure.buffer import BufferSettings, Consumer, ObjectStore, Producer
from tenure.buffer.manifest.fold import invariants
from tenure.buffer.manifest.format import State
from tenure.buffer.manifest.journal import Journal

QUICK = BufferSettings(
    flush_interval_ms=1, backoff_ms=0, conflict_ms_max=5, poll_ms=5, grace_ms=0, delivery_timeout_ms=5_000
)


def quick(**changes: object) -> BufferSettings:
    """Settings without any waiting to speak of."""
    given: dict[str, object] = {
        "flush_interval_ms": 1,
        "backoff_ms": 0,
        "conflict_ms_max": 5,
        "poll_ms": 5,
        "grace_ms": 0,
        "delivery_timeout_ms": 5_000,
    }
    return BufferSettings(**(given | changes))  # type: ignore[arg-type]


async def produced(store: ObjectStore, *batches: list[bytes], settings: BufferSettings = QUICK) -> None:
    """Each list becomes a batch of its own."""
    async with Producer(store, settings=settings) as producer:
        for entries in batches:
            await (await producer.produce(entries)).durable()


async def consumed(
    store: ObjectStore, *, group: str = "reader-of-tests", settings: BufferSettings = QUICK
) -> list[bytes]:
    """Every entry that a new group finds, in order; nothing is collected."""
    found: list[bytes] = []
    async with Consumer(store, group=group, settings=settings, collect=False) as consumer:
        while (batch := await consumer.next_batch()) is not None:
            found += batch.entries
    return found


async def folded(store: ObjectStore) -> State:
    """The manifest's present state, checked."""
    journal = Journal(store, settings=QUICK)
    state = await journal.open(create=False, writing=False)
    invariants(state)
    return state
