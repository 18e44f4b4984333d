"""A producer at a store that is away: it bears ``delivery_timeout_ms``, reports what was written, and goes on.

Time is virtual: the loop goes to its next timer at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tenure.buffer import BufferSettings, Producer, StoreFull, StoreRefused
from tenure.errors import Closed, Indeterminate, Overloaded, TenureError
from tenure.testing.simstore import Call, Fault, SimStore
from tests.chain.worlds.loop import VirtualLoop
from tests.kit.buffers import consumed

SHORT = BufferSettings(flush_interval_ms=10, delivery_timeout_ms=5_000)
TOLERANCE_S = 2.5
"""A wait between two attempts may begin right before the time is over."""

Play = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def play() -> Iterator[Play]:
    loop = VirtualLoop()
    yield loop.run_until_complete
    assert loop.escaped == []
    loop.end()


class Away:
    """Fails every call at keys with a prefix while ``fault`` is set."""

    def __init__(self, store: SimStore, prefix: str = "") -> None:
        self.fault: Fault | None = None
        self._prefix = prefix
        store.hook = self._fail

    def _fail(self, call: Call) -> Fault | None:
        return self.fault if call.key.startswith(self._prefix) else None


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("fault", ["lost_request", "lost_reply", "late"])
def test_an_outage_of_a_minute_fails_no_call_under_the_defaults(sim: SimStore, play: Play, fault: Fault):
    """Naive: eight attempts are used up within a second, and the producer halts."""

    async def main() -> None:
        away, handles, produced = Away(sim), [], []
        async with Producer(sim) as producer:
            for number in range(800):  # 80 s, of which the store is away for 60
                away.fault = fault if 100 <= number < 700 else None
                produced.append(b"%d" % number)
                handles.append(await producer.produce([produced[-1]]))
                await asyncio.sleep(0.1)
            for handle in handles:
                await handle.durable()
            assert producer.metrics.snapshot(0)["store_away_ms"] == 0
        sim.deliver_late()
        assert await consumed(sim) == produced

    play(main())


def test_an_upload_that_is_given_up_was_not_written_and_later_batches_are(sim: SimStore, play: Play):
    """Naive: the outcome is unknown, and the caller chooses between a loss and a repeat."""

    async def main() -> None:
        away = Away(sim, "data/")
        async with Producer(sim, settings=SHORT) as producer:
            away.fault = "lost_reply"
            began_s = now_s()
            with pytest.raises(Overloaded, match="produce them again") as caught:
                await (await producer.produce([b"a"])).durable()
            assert caught.value.code == "not_written"
            assert 5 <= now_s() - began_s < 5 + TOLERANCE_S
            assert producer.metrics.away_since_ms > 0
            away.fault = None
            await (await producer.produce([b"b"])).durable()
            assert producer.metrics.batches_failed == 1
        assert await consumed(sim) == [b"b"]

    play(main())


@pytest.mark.parametrize(("fault", "stored"), [("lost_request", [b"c"]), ("lost_reply", [b"a", b"c"])])
def test_a_commit_is_in_doubt_only_where_it_was_sent(sim: SimStore, play: Play, fault: Fault, stored: list[bytes]):
    """Naive: a manifest that does not answer halts the producer for good, and each batch is unknown."""

    async def main() -> None:
        away = Away(sim, "manifest/0")
        async with Producer(sim, settings=SHORT) as producer:
            away.fault = fault
            sent = await producer.produce([b"a"])
            await asyncio.sleep(1)
            waiting = await producer.produce([b"b"])
            with pytest.raises(Indeterminate, match="may be in the buffer"):
                await sent.durable()
            with pytest.raises(Overloaded, match="produce them again"):
                await waiting.durable()
            away.fault = None
            await (await producer.produce([b"c"])).durable()
        assert await consumed(sim) == stored

    play(main())


def test_close_during_an_outage_ends_with_the_time_of_what_is_held_and_reports_it(sim: SimStore, play: Play):
    """Naive: batches that wait for their turn bear the outage one after the other."""

    async def main() -> None:
        away = Away(sim)
        producer = await Producer.open(sim, settings=SHORT)
        away.fault = "lost_request"
        for number in range(200):
            await producer.produce([b"%d" % number])
            await asyncio.sleep(0.02)
        began_s = now_s()
        with pytest.raises(Overloaded, match="produce them again"):
            await producer.close()
        assert now_s() - began_s < 5 + 2 * TOLERANCE_S
        sim.hook = lambda call: None
        assert await consumed(sim) == []

    play(main())


def test_produce_waits_within_its_budget_while_the_store_is_away(sim: SimStore, play: Play):
    async def main() -> None:
        settings = BufferSettings(flush_bytes=10_000, call_bytes_max=10_000, inflight_bytes_max=100_000)
        away, entry, held = Away(sim), b"x" * 5_000, list[int]()
        async with Producer(sim, settings=settings) as producer:
            away.fault = "lost_request"
            asyncio.get_running_loop().call_later(60, setattr, away, "fault", None)
            for _ in range(200):
                await producer.produce([entry])
                held.append(producer.metrics.inflight_bytes)
            await producer.flush()
        assert max(held) <= 100_000
        assert len(await consumed(sim)) == 200

    play(main())


@pytest.mark.parametrize("prefix", ["data/", "manifest/0"])
def test_a_refusal_is_not_repeated_and_later_batches_are_written(sim: SimStore, play: Play, prefix: str):
    async def main() -> None:
        away = Away(sim, prefix)
        async with Producer(sim, settings=SHORT) as producer:
            away.fault = "refused"
            began_s = now_s()
            with pytest.raises(StoreRefused):
                await (await producer.produce([b"a"])).durable()
            assert now_s() - began_s < 1
            away.fault = None
            await (await producer.produce([b"b"])).durable()
        assert await consumed(sim) == [b"b"]

    play(main())


@pytest.mark.parametrize("prefix", ["data/", "manifest/0"])
def test_a_full_store_is_reported_after_the_usual_attempts(sim: SimStore, play: Play, prefix: str):
    async def main() -> None:
        async with Producer(sim, settings=BufferSettings()) as producer:

            def full(call: Call) -> None:
                if call.key.startswith(prefix):
                    raise StoreFull("no room")

            sim.hook = full
            began_s = now_s()
            with pytest.raises(StoreFull):
                await (await producer.produce([b"a"])).durable()
            assert now_s() - began_s < 10
            sim.hook = lambda call: None
            await (await producer.produce([b"b"])).durable()
        assert await consumed(sim) == [b"b"]

    play(main())


def test_a_producer_whose_batches_must_all_be_there_halts_with_the_first_that_is_not(sim: SimStore, play: Play):
    """Naive: a later batch takes the ordinal after it, and the one that failed is never made again."""

    async def main() -> None:
        away, answers = Away(sim), list[TenureError]()
        producer = Producer(sim, settings=SHORT, name="export", replays=True)
        await producer.start()
        away.fault = "lost_request"
        handles = [await producer.produce([b"0"])]
        await asyncio.sleep(1)
        handles.append(await producer.produce([b"1"]))
        for handle in handles:
            with pytest.raises(TenureError) as caught:
                await handle.durable()
            answers.append(caught.value)
            away.fault = None
        with pytest.raises(Closed, match="halted"):
            await producer.produce([b"2"])
        await producer.close()
        assert [answer.code for answer in answers] == ["not_written"] * 2
        assert await consumed(sim) == []

    play(main())
