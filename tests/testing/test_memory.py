"""The broker that users test with is the one that is tested here."""

from __future__ import annotations

import doctest

import pytest

from tenure import Settings
from tenure.errors import Invalid
from tenure.testing import ManualClock, memory_broker, server


def test_the_example_in_the_docstring_runs():
    assert doctest.testmod(server) == (0, 4)


async def test_time_stands_still_without_a_clock():
    async with memory_broker() as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": 100})
        await broker.produce("q", [b"1"])
        claim = await broker.claim("q", node="n")
        assert (await broker.claim("q", node="m")).jobs == []
        assert (await broker.ack("q", node="n", lease_id=claim.lease_id)).count == 1


async def test_a_claim_that_waits_is_woken_by_the_clock():
    clock = ManualClock()
    async with memory_broker(clock) as broker:
        await broker.put_topic("q", {"type": "queue"})
        await broker.produce("q", [b"1"])
        await broker.claim("q", node="n", lease_ms=1_000)
        waiting = broker.claim("q", node="m", wait_ms=5_000)
        clock.advance(1_001)
        assert (await waiting).deliveries(1) == 2


async def test_settings_are_taken():
    async with memory_broker(settings=Settings(records_max=2)) as broker:
        with pytest.raises(Invalid):
            await broker.produce("t", [b"1", b"2", b"3"])
