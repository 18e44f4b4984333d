"""Producers while their server is killed and started again: what was answered is there, once, under the seq told."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.errors import Closed, Indeterminate, Overloaded
from tests.kit.ports import free_port
from tests.kit.server import serving

TASKS = 16
BEFORE, AFTER = 400, 800


class Puts:
    """What many tasks put, and what they were told."""

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self.arrived = asyncio.Condition()
        self._next = 0

    async def put(self, client: AsyncClient) -> None:
        async with client.producer("q") as producer:

            async def caller() -> None:
                while len(self.seqs) < AFTER:
                    self._next += 1
                    number = self._next
                    try:
                        self.seqs[number] = await producer.put({"n": number})
                    except Indeterminate:
                        self.unknown.add(number)
                    except (Overloaded, Closed):  # the next server answers before it has read its log
                        self.refused.add(number)
                    async with self.arrived:
                        self.arrived.notify_all()

            await asyncio.gather(*(caller() for _ in range(TASKS)))

    async def until(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.seqs) >= count)


async def stored(client: AsyncClient) -> list[tuple[int, int]]:
    """(seq, number) of everything in the queue."""
    found: list[tuple[int, int]] = []
    at, caught_up = 0, False
    while not caught_up:
        page = await client.diff("q", from_seq=at, limit=1_000)
        found += [(record.seq, msgspec.json.decode(record.data)["n"]) for record in page.records if record.data]
        at, caught_up = page.next_from_seq, page.caught_up
    return found


@pytest.mark.parametrize("attempts_max", [20, 1])
async def test_what_was_answered_is_stored_once_also_when_the_server_is_killed(tmp_path: Path, attempts_max: int):
    """Faults 26 and 30."""
    port, puts = free_port(), Puts()
    settings = ClientSettings(attempts_max=attempts_max, backoff_max_ms=100)
    async with AsyncClient(f"http://127.0.0.1:{port}", settings=settings) as client:
        with serving(tmp_path / "data", "--port", str(port)) as first:
            await client.put_topic("q", type="queue", durability="fsync")
            putting = asyncio.create_task(puts.put(client))
            await puts.until(BEFORE)
            first.signal(signal.SIGKILL)
            await asyncio.to_thread(first.wait)
        with serving(tmp_path / "data", "--port", str(port)):
            await putting
            records = await stored(client)
    numbers = [number for _, number in records]
    assert len(set(numbers)) == len(numbers), "nothing twice"
    assert {(seq, number) for number, seq in puts.seqs.items()} <= set(records), "all that was answered, where told"
    assert set(numbers) <= set(puts.seqs) | puts.unknown, "nothing that was refused"
    if attempts_max > 1:
        assert not puts.unknown
        assert not puts.refused
