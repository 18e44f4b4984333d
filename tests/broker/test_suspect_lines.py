"""Who is handed suspects while callers wait: those that ask for them, one for each group, and plain claims last."""

from __future__ import annotations

import pytest

from tenure import Broker, Conflict, Settings
from tenure.broker.serving.streams import WorkStream
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, numbers, start, turn
from tests.kit.counted_steps import count_steps

WAIT_MS = 30_000


async def hold(broker: Broker, count: int) -> list[int]:
    """Put so many jobs in, and have a worker run them."""
    await broker.produce("q", [b"1"] * count)
    return (await broker.claim("q", node="dying", max_count=count, isolate=True)).seqs


async def lose(broker: Broker, seqs: list[int]) -> None:
    """Lose the worker that runs these jobs."""
    await broker.end_node("q", node="dying", seqs=seqs)


def drain(stream: WorkStream) -> None:
    while stream.take() is not None:
        pass


async def test_a_stream_that_asks_for_suspects_gets_them_at_once_and_nothing_else(broker: Broker) -> None:
    await make_queue(broker)
    held = await hold(broker, 10)
    stream = broker.work("q", node="s", max_count=8, isolate=True, group="g", suspects=True)
    await broker.produce("q", [b"fresh"])
    await turn()
    assert stream.held_count == 0
    await lose(broker, held)
    await turn()
    assert (stream.held_count, numbers(broker)["suspects"]) == (8, 2)


async def test_an_ordinary_stream_goes_on_with_fresh_work_while_suspects_wait(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker)
    dying = await hold(broker, 3)
    stream = broker.work("q", node="w", max_count=100, isolate=True, group="g")
    await lose(broker, dying)
    await turn()
    held = stream.held_count
    await broker.produce("q", [b"fresh"] * 5)
    await turn()
    assert (held, stream.held_count, numbers(broker)["suspects"]) == (0, 5, 3)


async def test_streams_hear_once_that_suspects_wait_and_nobody_asks_for_them(broker: Broker) -> None:
    await make_queue(broker)
    held = await hold(broker, 3)
    stream = broker.work("q", node="w", max_count=100, isolate=True, group="g")
    await lose(broker, held)
    await turn()
    assert stream.suspects == 3
    stream.suspects = 0
    await broker.produce("q", [b"fresh"])
    await turn()
    assert stream.suspects == 0, "it was said already"
    taker = broker.work("q", node="s", max_count=8, isolate=True, group="g", suspects=True)
    await turn()
    drain(taker)
    assert (taker.held_count, numbers(broker)["suspects"]) == (3, 0)


async def test_a_stream_that_comes_later_hears_of_suspects_too(broker: Broker) -> None:
    await make_queue(broker)
    await lose(broker, await hold(broker, 2))
    stream = broker.work("q", node="w", isolate=True, group="g")
    await turn()
    assert stream.suspects == 2


async def test_streams_hear_again_once_the_one_that_asked_for_suspects_is_gone(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker)
    held = await hold(broker, 2)
    stream = broker.work("q", node="w", isolate=True, group="g")
    taker = broker.work("q", node="s", max_count=1, isolate=True, group="g", suspects=True)
    await lose(broker, held)
    await turn()
    assert (taker.held_count, stream.suspects) == (1, 0)
    taker.close()
    await turn()
    assert stream.suspects == 2, "what it had not read came back"


async def test_without_a_claim_for_them_suspects_go_to_each_group_one_at_a_time(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker)
    dying = await hold(broker, 5)
    streams = [broker.work("q", node=f"w{n}", max_count=100, isolate=True, group=f"g{n % 2}") for n in range(4)]
    await lose(broker, dying)
    await turn()
    assert sum(stream.held_count for stream in streams) == 0
    clock.advance(WAIT_MS)
    await turn()
    for stream in streams:
        drain(stream)
    assert sorted(stream.held_count for stream in streams) == [0, 0, 1, 1]
    held = [stream for stream in streams if stream.held_count]
    assert {stream.claim.group for stream in held} == {"g0", "g1"}
    await broker.ack("q", node=held[0].node, lease_id=broker.leases("q").items[0].lease_id)
    await broker.ack("q", node=held[1].node, lease_id=broker.leases("q").items[0].lease_id)
    await turn()
    assert sum(stream.held_count for stream in streams) == 2, "the next ones"


async def test_a_claim_for_suspects_keeps_them_from_the_others_for_a_while_again(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker)
    await lose(broker, await hold(broker, 5))
    clock.advance(WAIT_MS - 1)
    assert (await broker.claim("q", node="s", isolate=True, group="g", suspects=True)).seqs == [1]
    clock.advance(WAIT_MS - 1)
    assert not (await broker.claim("q", node="w", isolate=True, group="g")).jobs
    clock.advance(1)
    assert (await broker.claim("q", node="w", max_count=9, isolate=True, group="g")).seqs == [2]
    assert not (await broker.claim("q", node="v", max_count=9, isolate=True, group="g")).jobs, "the group has one"


async def test_plain_claims_get_suspects_after_everything_else(broker: Broker) -> None:
    await make_queue(broker)
    await lose(broker, await hold(broker, 2))
    await broker.produce("q", [b"fresh"])
    assert (await broker.claim("q", node="p", max_count=2)).seqs == [1, 3]
    assert (await broker.claim("q", node="p", max_count=2)).seqs == [2]


async def test_a_plain_caller_that_waits_is_handed_a_suspect_at_once(broker: Broker) -> None:
    await make_queue(broker)
    held = await hold(broker, 1)
    isolating = broker.work("q", node="w", isolate=True, group="g")
    waiting = await start(broker.claim("q", node="p", wait_ms=20_000))
    await lose(broker, held)
    await turn()
    assert waiting.done()
    assert ((await waiting).seqs, isolating.held_count) == ([1], 0)


async def test_the_reply_to_a_claim_that_isolates_says_how_many_suspects_wait(broker: Broker) -> None:
    await make_queue(broker)
    await lose(broker, await hold(broker, 3))
    assert (await broker.claim("q", node="w", isolate=True)).suspects == 3
    assert (await broker.claim("q", node="s", isolate=True, suspects=True)).suspects == 2
    assert (await broker.claim("q", node="s", max_count=5, isolate=True, suspects=True)).suspects == 0


async def test_a_cap_in_flight_holds_for_suspects_too(broker: Broker) -> None:
    await make_queue(broker, max_in_flight=2)
    await lose(broker, await hold(broker, 2))
    await broker.produce("q", [b"fresh"])
    stream = broker.work("q", node="s", max_count=8, isolate=True, suspects=True)
    other = broker.work("q", node="w", max_count=8, isolate=True)
    await turn()
    assert (stream.held_count, other.held_count) == (2, 0)


async def test_a_suspect_that_runs_long_lets_the_next_one_begin_and_is_not_blamed_any_more(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, "other")
    await make_queue(broker, lease_ms=600_000)
    await lose(broker, await hold(broker, 2))
    grant = await broker.claim("q", node="s", max_count=2, isolate=True, group="g", suspects=True)
    lease_id = grant.lease_id or ""
    await broker.begin("q", node="s", seq=1, lease_id=lease_id)
    clock.advance(WAIT_MS - 1)
    with pytest.raises(Conflict) as refused:
        broker.begin("q", node="s", seq=2, lease_id=lease_id)
    assert refused.value.code == "busy"
    clock.advance(1)
    await broker.begin("q", node="s", seq=2, lease_id=lease_id)
    await broker.end_node("q", node="s", seqs=[1, 2])
    assert [(broker.job("q", seq).tries, broker.job("q", seq).lost) for seq in (1, 2)] == [(0, 2), (1, 2)]


async def test_suspects_that_wait_are_no_holes_that_keep_fresh_work_back(broker: Broker) -> None:
    await make_queue(broker, max_ack_holes=1)
    held = await hold(broker, 5)
    await broker.ack("q", node="dying", seqs=[2, 4])
    await lose(broker, [1, 3, 5])
    await broker.produce("q", [b"fresh"])
    assert held == [1, 2, 3, 4, 5]
    assert (await broker.claim("q", node="w", isolate=True)).seqs == [6]


async def test_ten_thousand_suspects_make_a_pass_no_longer(broker: Broker) -> None:
    """A pass for an ordinary stream looks at none of them."""
    await make_queue(broker)
    held = await hold(broker, 10)
    stream = broker.work("q", node="w", max_count=100, isolate=True, group="g")
    await lose(broker, held)
    few = count_steps(lambda: broker.produce("q", [b"fresh"]))
    stream.close()
    for _ in range(10):
        await lose(broker, await hold(broker, 1_000))
    stream = broker.work("q", node="v", max_count=100, isolate=True, group="g")
    many = count_steps(lambda: broker.produce("q", [b"fresh"]))
    assert stream.held_count
    assert many <= few * 1.1


@pytest.mark.parametrize("was_read", [False, True])
async def test_a_stream_that_had_stopped_is_lent_a_suspect_once_it_goes_on_though_the_time_for_it_has_passed(
    clock: ManualClock, was_read: bool
) -> None:
    """Its own jobs were lost when their lease expired, unread, or read and not a word of them. It wanted more than it
    held, so no pass had set it apart, and the alarm for the loan rings while it wants nothing.
    """
    async with await Broker.open(None, clock=clock, settings=Settings(suspects_wait_ms=200)) as broker:
        await make_queue(broker, jobs=5, lease_ms=150)
        stream = broker.work("q", node="w", max_count=10, isolate=True, group="g")
        await turn()
        if was_read:
            drain(stream)
        for _ in range(10):
            clock.advance(100)
            await turn()
        assert (stream.held_count, stream.wants(), numbers(broker)["suspects"]) == (0, 0, 5)
        if was_read:
            await broker.extend("q", node="w", seqs=[1], lease_ms=1_000)  # a sign of life, too late for the job
        else:
            drain(stream)
        await turn()
        assert (stream.held_count, numbers(broker)["suspects"]) == (1, 4)
