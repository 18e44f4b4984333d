"""`Producer`: batches call by call, with and without idempotency keys, or single puts that are gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

from tenure import AsyncClient, Indeterminate, TenureError
from tenure.testing.history import Outcome
from tests.soak.journal import Journal
from tests.soak.worker import POISON

__all__ = ["Producer"]

_DEPTH_MAX: Final = 300
_PAUSE_S: Final = 0.05
_GATHERED: Final = 6
_DELAY_MS_MAX: Final = 800


class Producer:
    """One client that writes to one topic, one call or one group of puts after the other, until it is told to stop."""

    def __init__(
        self, client: AsyncClient, journal: Journal, topic: str, *, random: Random, stopping: asyncio.Event
    ) -> None:
        self._client, self._journal, self._topic, self._name = client, journal, topic, client.node
        self._random, self._stopping = random, stopping
        self._number = 0

    async def call_by_call(self, *, keyed: bool) -> None:
        """Send batches. A batch with a key is sent again after an unknown outcome; now and then one is given up."""
        async with self._client:
            while not self._stopping.is_set():
                ids = self._next_ids(self._random.choice((1, 1, 1, 4, 20)))
                key = f"{self._name}-{self._number}" if keyed else None
                await _Produce(self._client, self._journal, self._topic, self._name, ids, key=key).run(
                    self._random, self._stopping
                )
                await self._pause()

    async def gathering(self) -> None:
        """Put single jobs at once, some of them with a delay, through a producer that gathers them."""
        async with self._client, self._client.producer(self._topic) as producer:
            while not self._stopping.is_set():
                puts = [self._put(producer.put, id) for id in self._next_ids(_GATHERED)]
                await asyncio.gather(*puts)
                await self._pause()

    async def _put(self, put: Callable[..., Awaitable[int]], id: str) -> None:
        """Put one job; puts of one client may be answered in any order, so each counts as a producer of its own."""
        journal, sent_ms = self._journal, self._journal.now_ms()
        note = partial(journal.history.produce, [id], topic=self._topic, by=id)
        delay_ms = self._random.randrange(_DELAY_MS_MAX) if self._random.random() < 0.3 else 0
        journal.delay_ms[id] = delay_ms
        note("invoke", at=sent_ms)
        try:
            seq = await put(id, delay_ms=delay_ms)
        except Indeterminate:
            note("unknown", at=journal.now_ms())
        except TenureError:
            note("fail", at=journal.now_ms())
        else:
            note("ok", at=journal.now_ms(), seqs=[seq])

    def _next_ids(self, count: int) -> list[str]:
        self._number += 1
        kind = POISON if self._random.random() < 0.04 else "job"
        return [f"{self._name}-{kind}-{self._number}-{index}" for index in range(count)]

    async def _pause(self) -> None:
        await asyncio.sleep(_PAUSE_S)
        while self._journal.depth.get(self._topic, 0) > _DEPTH_MAX and not self._stopping.is_set():
            await asyncio.sleep(_PAUSE_S)


class _Produce:
    """One batch: sent once, or with a key again until its outcome is known, and sometimes once more after that."""

    def __init__(
        self, client: AsyncClient, journal: Journal, topic: str, name: str, ids: list[str], *, key: str | None
    ) -> None:
        self._client, self._journal, self._topic, self._name = client, journal, topic, name
        self._ids, self._key = ids, key

    async def run(self, random: Random, stopping: asyncio.Event) -> None:
        pad_bytes = random.randrange(random.choice((10, 300, 300, 8_000)))
        records = [b'"%s%s"' % (id.encode(), b"." * pad_bytes) for id in self._ids]
        self._note("invoke")
        unknown = False
        while True:
            patience_s = random.uniform(0.001, 0.05) if random.random() < 0.05 else None
            try:
                await self._send(records, patience_s)
                break
            except (Indeterminate, TimeoutError):
                unknown = True
            except TenureError:
                if not unknown:
                    self._note("fail")
                    await asyncio.sleep(_PAUSE_S)
                    return
            if self._key is None or random.random() < 0.3 or stopping.is_set():
                self._note("unknown")
                return
        if self._key is not None and random.random() < 0.1:
            await self._once_more(records)

    async def _send(self, records: list[bytes], patience_s: float | None) -> None:
        sending = self._client.produce(self._topic, records, idempotency_key=self._key)
        produced = await asyncio.wait_for(sending, patience_s)
        self._note("ok", seqs=produced.seqs)

    async def _once_more(self, records: list[bytes]) -> None:
        """Send a batch that is known to be there: it may be refused or lost, and must not be appended."""
        with suppress(TenureError):
            await self._send(records, None)

    def _note(self, outcome: Outcome, *, seqs: range | tuple[()] = ()) -> None:
        journal = self._journal
        journal.history.produce(self._ids, outcome, at=journal.now_ms(), topic=self._topic, by=self._name, seqs=seqs)
