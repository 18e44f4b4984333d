"""A leader that has much to send on a slow uplink: it keeps its lead, and answers what is not durable meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from unittest import mock

import msgspec
import pytest

from tenure.chain import sending
from tests.chain.members.clients import LOG, Producer
from tests.chain.members.directed import Directed

MIB = 1 << 20


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Bulk(Directed):
    """Two members with one uplink each; the leader takes an append that takes many grants to send."""

    def __init__(self, bytes_per_s: int, size: int) -> None:
        super().__init__(1, lambda life: self._load())
        self._bytes_per_s, self._size = bytes_per_s, size
        engine = msgspec.structs.replace(self.setting.engine, segment_bytes=4 * MIB, checkpoint_bytes=64 * MIB)
        chain = msgspec.structs.replace(self.setting.chain, grant_ms=300)
        self.setting = self.setting._replace(engine=engine, chain=chain)
        self.took_ms = 0
        self.refused_reads = 0

    @property
    def leads(self) -> int:
        return sum(line.endswith(" leads") for line in self.story)

    async def _load(self) -> None:
        await self.until(lambda: len(self.shared.acked) > 0)
        self.store.uplinks.bytes_per_s |= dict.fromkeys(("m0", "m1"), self._bytes_per_s)
        producer = self._client("bulk", Producer)
        ids = [f"bulk-{number}" for number in range(self._size // 700_000)]
        records = [b'"%s"' % each.encode() + b" " * 700_000 for each in ids]
        process, began_ms = self.leader.process, self.loop.now_ms
        assert process is not None
        producer._note(LOG, ids, "invoke")
        appending = process.ask(lambda broker: broker.produce(LOG, records))
        while not appending.done():
            await asyncio.wait({appending}, timeout=0.05)
            self.refused_reads += process.broker is None or not process.broker._serving.committer.has_grant()
        producer._note(LOG, ids, "ok", seqs=appending.result().seqs)
        self.took_ms = self.loop.now_ms - began_ms


@pytest.mark.parametrize(("bytes_per_s", "size"), [(500_000, 3 * MIB), (4_000_000, 24 * MIB)])
def test_a_leader_that_sends_for_long_keeps_its_lead_and_its_grant(bytes_per_s: int, size: int) -> None:
    """Naive: nothing goes past a link, and who uploads for longer than its grant is taken for dead."""
    life = Bulk(bytes_per_s, size)
    life.play()
    assert life.took_ms > 10 * life.setting.chain.grant_ms
    assert life.leads == 2, "the first one, and the machine that reads the home at the end"
    assert life.refused_reads == 0


def test_without_beats_beside_its_parts_it_would_lose_the_lead() -> None:
    async def store_alone(*arguments: object) -> object:
        return await sending._store(arguments[0], arguments[1])  # type: ignore[arg-type]

    life = Bulk(500_000, 3 * MIB)
    with mock.patch.object(sending, "_store_beating", store_alone), pytest.raises(Exception, match=r"taken over"):
        life.play()
