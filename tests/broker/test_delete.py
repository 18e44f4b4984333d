"""Deleting records: below a seq, by tag, by seq, and all of these together."""

from __future__ import annotations

from tenure import Broker
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import read, reopen, seqs, tagged


async def test_a_delete_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await broker.produce("t", tagged("a", "b", "c"))
    await broker.delete_records("t", match="b")
    async with await reopen(broker, log, clock) as broker:
        assert seqs(await read(broker, "t")) == [1, 3]
        assert (await broker.delete_records("t", match=["tag", "Glob", "*"])).deleted == 2
