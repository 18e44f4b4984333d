"""`AsyncProducer` against a real server, over a wire that a test can hold."""

from __future__ import annotations

import asyncio
import random

import pytest

from tenure import Record
from tenure.client.batching.producer import AsyncProducer
from tenure.client.batching.settings import PUT_BYTES
from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.errors import Closed, Indeterminate, Invalid, NotFound, Overloaded
from tests.client.held_clients import held_client


async def test_puts_of_one_turn_go_out_together_and_each_gets_its_own_seq(server):
    async with held_client(server) as b, b.producer() as producer:
        seqs = await asyncio.gather(*(producer.put({"n": n}) for n in range(32)))
        assert seqs == list(range(1, 33))
        assert b.wire.sizes == [32]
        assert await b.stored() == [{"n": n} for n in range(32)]


async def test_puts_that_come_during_a_request_make_up_the_next_one(server):
    async with held_client(server) as b, b.producer() as producer:
        b.wire.hold()
        first = asyncio.create_task(producer.put("first"))
        await b.wire.arrived()
        others = []
        for n in range(5):
            others.append(asyncio.create_task(producer.put(n)))
            await asyncio.sleep(0)
        b.wire.release()
        assert await first == 1
        assert await asyncio.gather(*others) == [2, 3, 4, 5, 6]
        assert b.wire.sizes == [1, 5]


async def test_callers_that_put_again_as_soon_as_they_are_answered_stay_together(server):
    async with held_client(server) as b, b.producer() as producer:

        async def caller() -> None:
            for n in range(20):
                await producer.put(n)

        await asyncio.gather(*(caller() for _ in range(16)))
        assert b.wire.sizes == [16] * 20


async def test_a_linger_waits_for_more_but_not_when_the_batch_is_full(server):
    async with held_client(server) as b, b.producer(linger_ms=5, batch_records_max=3) as producer:
        first = asyncio.create_task(producer.put(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert list(await asyncio.gather(first, producer.put(2), producer.put(3))) == [1, 2, 3]
        assert b.wire.sizes == [3]
        assert await producer.put(4) == 4


async def test_records_keep_their_tag_meta_and_delay(server):
    async with held_client(server) as b, b.producer() as producer:
        at = 4_000_000_000_000
        await asyncio.gather(
            producer.put({"a": 1}, tag="t", meta={"m": [1]}),
            producer.put(b'{"z": 1,  "a":2}'),
            producer.put(Record(data=b"3", tag="u")),
            producer.put(4, delay_ms=60_000),
            producer.put(5, deliver_at=at),
        )
        records = (await b.client.diff(b.topic, include_tags=True)).records
        assert [(record.tag, record.meta and bytes(record.meta)) for record in records[:3]] == [
            ("t", b'{"m":[1]}'),
            (None, None),
            ("u", None),
        ]
        assert bytes(records[1].data or b"") == b'{"z": 1,  "a":2}'
        delayed = (await b.client.jobs(b.topic, state="delayed")).jobs
        assert [job.seq for job in delayed] == [4, 5]


async def test_unique_records_go_alone_and_answer_the_living_job(server):
    async with held_client(server) as b, b.producer() as producer:
        seqs = await asyncio.gather(
            *(producer.put(n, unique_key="k" if n % 2 == 0 else None) for n in range(1, 5)),
        )
        assert seqs == [1, 2, 3, 2]
        assert b.wire.sizes == [1, 1, 1, 1]


# What fails


async def test_one_bad_record_does_not_fail_its_neighbours(server):
    async with held_client(server) as b, b.producer(record_bytes_max=100) as producer:
        outcomes = await asyncio.gather(
            producer.put(1),
            producer.put("x" * 200),
            producer.put(2),
            producer.put(b"{not json"),
            producer.put(3, tag="refused-by-the-server-alone"),
            producer.put(4),
            return_exceptions=True,
        )
        assert [outcome if isinstance(outcome, int) else type(outcome) for outcome in outcomes] == [
            1,
            Invalid,
            2,
            Invalid,
            Invalid,
            3,
        ]
        assert await b.stored() == [1, 2, 4]


async def test_a_failing_batch_fails_its_callers_and_nobody_else(server):
    async with held_client(server) as b, AsyncProducer(b.client, "absent-topic", create=False) as producer:
        outcomes = await asyncio.gather(*(producer.put(n) for n in range(3)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {NotFound}
        assert len({id(outcome) for outcome in outcomes}) == 3
        await b.client.put_topic("absent-topic", type="queue")
        assert await producer.put("later") == 1


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_stored_twice(server):
    """Fault 26."""
    async with held_client(server) as b, b.producer() as producer:
        b.wire.lose_answers(1)
        assert await asyncio.gather(*(producer.put(n) for n in range(4))) == [1, 2, 3, 4]
        assert b.wire.sizes == [4, 4]
        assert await b.stored() == [0, 1, 2, 3]


async def test_an_outcome_that_stays_unknown_is_told_to_every_caller_of_the_batch(server):
    """Fault 30."""
    async with held_client(server, attempts_max=2) as b, b.producer() as producer:
        b.wire.lose_answers(2)
        outcomes = await asyncio.gather(*(producer.put(n) for n in range(3)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Indeterminate}
        assert await producer.put("after") == 4
        assert await b.stored() == [0, 1, 2, "after"]


async def test_a_server_that_cannot_be_reached_is_overloaded(server):
    settings = ClientSettings(attempts_max=1)
    async with AsyncClient("http://127.0.0.1:9", settings=settings) as client, AsyncProducer(client, "q") as producer:
        with pytest.raises(Overloaded) as raised:
            await producer.put(1)
        assert raised.value.code == "unreachable"


async def test_a_bug_reaches_the_callers_and_the_producer_lives_on(server):
    async with held_client(server) as b, b.producer() as producer:
        b.wire.fail_once(RuntimeError("a bug"))
        with pytest.raises(RuntimeError):
            await producer.put(1)
        assert await producer.put(2) == 1


# Cancelling and room


async def test_a_put_cancelled_before_it_was_sent_is_not_sent(server):
    async with held_client(server) as b, b.producer() as producer:
        b.wire.hold()
        first = asyncio.create_task(producer.put("first"))
        await b.wire.arrived()
        others = [asyncio.create_task(producer.put(n)) for n in range(3)]
        await asyncio.sleep(0)
        others[1].cancel()
        await asyncio.wait([others[1]])
        b.wire.release()
        assert [await first, await others[0], await others[2]] == [1, 2, 3]
        assert others[1].cancelled()
        assert await b.stored() == ["first", 0, 2]


async def test_a_put_cancelled_after_it_was_sent_does_not_disturb_the_others(server):
    async with held_client(server) as b, b.producer() as producer:
        b.wire.hold()
        puts = [asyncio.create_task(producer.put(n)) for n in range(3)]
        await b.wire.arrived()
        puts[0].cancel()
        await asyncio.wait([puts[0]])
        b.wire.release()
        assert [await puts[1], await puts[2]] == [2, 3]
        assert await b.stored() == [0, 1, 2]


async def test_puts_wait_for_room_in_order_and_a_cancelled_wait_leaks_nothing(server):
    async with held_client(server) as b, b.producer(pending_bytes_max=2 * PUT_BYTES, batch_records_max=2) as producer:
        b.wire.hold()
        puts = [asyncio.create_task(producer.put(n)) for n in range(8)]
        await b.wire.arrived()
        puts[4].cancel()
        await asyncio.wait([puts[4]])
        b.wire.release()
        rest = [put for put in puts if put is not puts[4]]
        assert await asyncio.gather(*rest) == [1, 2, 3, 4, 5, 6, 7]
        assert await b.stored() == [0, 1, 2, 3, 5, 6, 7]
        assert producer._batcher.idle
        assert producer._batcher._bytes == 0


@pytest.mark.parametrize("seed", range(4))
async def test_under_cancels_and_lost_answers_everybody_gets_the_seq_of_their_own_record(server, seed):
    """Fault 26."""
    chance = random.Random(seed)
    async with held_client(server) as b, b.producer(batch_records_max=7, pending_bytes_max=20 * PUT_BYTES) as producer:
        told: dict[int, int] = {}

        async def put(number: int) -> None:
            told[await producer.put(number)] = number

        tasks = []
        for number in range(300):
            tasks.append(asyncio.create_task(put(number)))
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                chance.choice(tasks).cancel()
            if chance.random() < 0.02:
                b.wire.lose_answers(1)
        await asyncio.wait(tasks)
        stored = await b.stored()
        assert len(set(stored)) == len(stored)
        assert all(stored[seq - 1] == number for seq, number in told.items())
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        assert stored == sorted(stored), "in the order of the calls"
        assert producer._batcher.idle


# Many at once, and the end


async def test_put_many_returns_its_seqs_in_order(server):
    async with held_client(server) as b, b.producer(batch_records_max=100) as producer:
        assert await producer.put_many(range(250)) == list(range(1, 251))
        assert b.wire.sizes == [100, 100, 50]
        assert await producer.put_many([]) == []
        with pytest.raises(Invalid) as raised:
            await producer.put_many([1, object(), 2])
        assert raised.value.__notes__ == ["item 1 of 3"]
        assert (await b.stored())[250:] == [1, 2]


async def test_put_many_raises_the_first_error_once_all_have_their_outcome(server):
    async with held_client(server) as b, b.producer() as producer:
        bad = Record(data=b"2", tag="refused-by-the-server-alone")
        with pytest.raises(Invalid):
            await producer.put_many([1, bad, 3])
        assert await b.stored() == [1, 3]


async def test_put_many_draws_items_only_as_there_is_room(server):
    async with held_client(server) as b, b.producer(pending_bytes_max=4 * PUT_BYTES, batch_records_max=2) as producer:
        drawn: list[int] = []

        def draw(number: int) -> int:
            drawn.append(number)
            return number

        b.wire.hold()
        many = asyncio.create_task(producer.put_many(map(draw, range(1, 21))))
        await b.wire.arrived()
        assert len(drawn) <= 5
        b.wire.release()
        assert await many == list(range(1, 21))
        assert await b.stored() == list(range(1, 21))


async def test_a_put_many_that_is_cancelled_sends_nothing_more(server):
    async with held_client(server) as b, b.producer(batch_records_max=2) as producer:
        b.wire.hold()
        many = asyncio.create_task(producer.put_many(range(10)))
        await b.wire.arrived()
        many.cancel()
        await asyncio.wait([many])
        b.wire.release()
        assert await producer.put("after") == 3
        assert await b.stored() == [0, 1, "after"]


async def test_flush_returns_once_what_was_put_before_has_its_outcome(server):
    async with held_client(server) as b, b.producer(batch_records_max=2) as producer:
        await producer.flush()
        puts = [asyncio.create_task(producer.put(n)) for n in range(5)]
        await asyncio.sleep(0)
        await producer.flush()
        assert len(await b.stored()) == 5
        assert await asyncio.gather(*puts) == [1, 2, 3, 4, 5]


async def test_closing_sends_what_is_pending_and_takes_nothing_more(server):
    async with held_client(server) as b:
        producer = b.producer()
        b.wire.hold()
        puts = [asyncio.create_task(producer.put(n)) for n in range(2)]
        await b.wire.arrived()
        puts += [asyncio.create_task(producer.put(n)) for n in range(2, 4)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        with pytest.raises(Closed):
            await producer.put("late")
        b.wire.release()
        await closing
        assert await asyncio.gather(*puts) == [1, 2, 3, 4]
        await producer.close()


async def test_closing_by_a_deadline_tells_what_was_not_sent_from_what_is_unknown(server):
    async with held_client(server) as b:
        producer = b.producer()
        b.wire.hold()
        flying = asyncio.create_task(producer.put(1))
        await b.wire.arrived()
        pending = asyncio.create_task(producer.put(2))
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        await producer.close(deadline_ms=1)
        with pytest.raises(Indeterminate):
            await flying
        with pytest.raises(Closed):
            await pending
        await flushing
        b.wire.release()


async def test_a_client_makes_producers_and_a_name_that_is_none_is_refused(server):
    async with held_client(server) as b:
        async with b.client.producer(b.topic, linger_ms=1) as producer:
            assert await producer.put(1) == 1
            assert producer.settings.linger_ms == 1
        with pytest.raises(Invalid):
            AsyncProducer(b.client, "no/topic")
