"""Work streams: a worker kept supplied, its jobs given back the moment it is gone."""

from __future__ import annotations

import pytest

from tenure import Broker, NotFound
from tenure.broker.serving.streams import WorkStream
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, numbers, start, turn


async def take(stream: WorkStream, count: int) -> list[int]:
    """The next ``count`` jobs of a stream."""
    found: list[int] = []
    while len(found) < count:
        found += (await anext(stream)).seqs
    return found


async def test_a_stream_is_fed_at_once_and_as_jobs_come(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    async with broker.work("q", node="w", max_count=5) as stream:
        first = await anext(stream)
        assert (first.seqs, first.node) == ([1, 2], "w")
        waiting = await start(anext(stream))
        assert not waiting.done()
        await broker.produce("q", [b"3"])
        assert (await waiting).seqs == [3]


async def test_a_stream_holds_at_most_what_it_asked_for(broker: Broker) -> None:
    await make_queue(broker, jobs=10)
    async with broker.work("q", node="w", max_count=3) as stream:
        assert await take(stream, 3) == [1, 2, 3]
        waiting = await start(anext(stream))
        assert not waiting.done()
        assert numbers(broker)["in_flight"] == 3
        await broker.ack("q", node="w", seqs=[2])
        assert (await waiting).seqs == [4], "an ack makes room"
        waiting = await start(anext(stream))
        await broker.nack("q", node="w", seqs=[1], delay_ms=5000)
        assert (await waiting).seqs == [5], "a nack does too"
        assert numbers(broker)["in_flight"] == 3


async def test_a_job_that_runs_out_makes_room_and_comes_again(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=3)
    async with broker.work("q", node="w", max_count=2, lease_ms=1000) as stream:
        assert await take(stream, 2) == [1, 2]
        await broker.extend("q", node="w", seqs=[2], lease_ms=60_000)
        waiting = await start(anext(stream))
        clock.advance(1001)
        await turn()
        claim = await waiting
        assert (claim.seqs, claim.deliveries(1)) == ([1], 2)


async def test_the_lease_time_of_a_stream_is_its_own(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, lease_ms=9000)
    async with broker.work("q", node="w", lease_ms=1500) as stream:
        assert (await anext(stream)).deadline == clock.wall_ms() + 1500


async def test_the_depth_of_a_stream_is_clamped(broker: Broker) -> None:
    await make_queue(broker, jobs=3)
    async with broker.work("q", node="w", max_count=0) as stream:
        assert (await anext(stream)).seqs == [1]
        assert numbers(broker)["in_flight"] == 1


async def test_closing_a_stream_gives_back_what_it_holds_and_nothing_else_of_its_node(broker: Broker) -> None:
    await make_queue(broker, jobs=6)
    poll = await broker.claim("q", node="w", max_count=2)
    other = broker.work("q", node="w", max_count=1)
    stream = broker.work("q", node="w", max_count=2)
    assert (await take(other, 1), await take(stream, 2)) == ([3], [4, 5])
    await broker.ack("q", node="w", seqs=[4])
    assert (await anext(stream)).seqs == [6]
    stream.close()
    assert [job.seq for job in broker.jobs("q", state="in_flight").items] == [*poll.seqs, 3]
    claim = await broker.claim("q", node="v", max_count=9)
    assert (claim.seqs, claim.deliveries(5)) == ([5, 6], 2)
    other.close()


async def test_what_was_pushed_but_never_read_is_given_back_too(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    stream = broker.work("q", node="w", max_count=2)
    assert numbers(broker)["in_flight"] == 2
    stream.close()
    assert numbers(broker)["ready"] == 2


async def test_a_release_wakes_whoever_waits(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    stream = broker.work("q", node="w")
    waiting = await start(broker.claim("q", node="v", wait_ms=5000))
    stream.close()
    await turn()
    assert waiting.result().seqs == [1]


async def test_a_closed_stream_ends_its_reader_and_takes_no_more(broker: Broker) -> None:
    await make_queue(broker)
    stream = broker.work("q", node="w")
    waiting = await start(anext(stream))
    stream.close()
    stream.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    await broker.produce("q", [b"1"])
    assert numbers(broker)["ready"] == 1
    assert broker._serving.coordinator.waiting == 0


async def test_the_reader_hears_that_the_queue_is_gone(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    stream = broker.work("q", node="w", max_count=2)
    await anext(stream)
    waiting = await start(anext(stream))
    await broker.delete_topic("q")
    with pytest.raises(NotFound):
        await waiting
    await broker.put_topic("q")
    stream.close()
    assert broker.topic("q").count == 0, "closing it afterwards touches nothing"


async def test_a_stream_dead_letters_what_it_must_not_deliver(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead")
    async with broker.work("q", node="w", lease_ms=1000) as stream:
        assert (await anext(stream)).seqs == [1]
        waiting = await start(anext(stream))
        clock.advance(1001)
        assert (await broker.extend("q", node="w", seqs=[1], lease_ms=1000)).skipped == [1]
        await turn()
        assert not waiting.done()
        assert broker.topic("dead").count == 1
        await broker.produce("q", [b"2"])
        assert (await waiting).seqs == [2]


async def test_a_detached_stream_ends_and_leaves_leased_what_was_read(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    mine, other = broker.work("q", node="w", max_count=1), broker.work("q", node="v", max_count=1)
    assert (await take(mine, 1), await take(other, 1)) == ([1], [2])
    assert broker.detach("q", node="w") == 1
    with pytest.raises(StopAsyncIteration):
        await anext(mine)
    mine.close()
    assert numbers(broker)["in_flight"] == 2, "closing it afterwards gives nothing back"
    assert (await broker.ack("q", node="w", seqs=[1])).count == 1
    await broker.produce("q", [b"3", b"4"])
    assert numbers(broker)["ready"] == 2, "it takes no more"
    assert broker.detach() == 1, "without a name all of them"
    other.close()
    assert numbers(broker)["in_flight"] == 1


async def test_a_detached_stream_gives_back_what_nobody_has_read(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    stream = broker.work("q", node="w", max_count=2)
    assert numbers(broker)["in_flight"] == 2
    stream.detach()
    assert numbers(broker)["in_flight"] == 0


async def test_fault_24_a_stream_whose_worker_is_silent_gets_no_job_twice(broker: Broker, clock: ManualClock) -> None:
    """A worker that was stopped keeps its connection: the job must not run through its deliveries there."""
    await make_queue(broker, jobs=1)
    async with broker.work("q", node="w", max_count=2, lease_ms=1000) as stream:
        assert await take(stream, 1) == [1]
        waiting = await start(anext(stream))
        clock.advance(1001)
        await turn()
        assert numbers(broker)["ready"] == 1, "it is there for others"
        await broker.produce("q", [b"2"])
        await turn()
        assert not waiting.done()
        extended = await broker.extend("q", node="w", seqs=[1], lease_ms=1000)
        assert extended.skipped == [1], "that it lives is all that it could show"
        assert (await waiting).seqs == [1, 2]


async def test_a_worker_that_gives_word_may_let_a_lease_run_out(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=2)
    async with broker.work("q", node="w", max_count=2, lease_ms=1000) as stream:
        assert await take(stream, 2) == [1, 2]
        await broker.ack("q", node="w", seqs=[2])
        waiting = await start(anext(stream))
        clock.advance(1001)
        await turn()
        assert (await waiting).seqs == [1]
