"""Leases that isolate, returns, begins and hellos over a real server, with both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import Conflict, Denied, Invalid, LeaseLost
from tenure.client import Gone
from tests.client.both_clients import Both, make_client
from tests.kit.server import serving

LEASE_MS = 100
ISOLATED: dict[str, Any] = {"isolate": True, "lease_ms": LEASE_MS}


async def filled(client: Both, name: str, count: int, **config: Any) -> None:
    await client.put_topic(name, type="queue", **config)
    await client.produce(name, list(range(1, count + 1)))


async def until(look: Callable[[], Any], *, is_right: Callable[[Any], bool]) -> Any:
    """What a look finds once it is right."""
    async with asyncio.timeout(20):
        while not is_right(found := await look()):
            await asyncio.sleep(0.02)
    return found


async def suspects(client: Both, name: str, count: int) -> None:
    """Wait until so many suspects are ready."""
    await until(lambda: client.topic(name), is_right=lambda info: info.queue.suspects == count)


async def test_a_silent_worker_costs_its_jobs_no_try(client: Both, name: str) -> None:
    await filled(client, name, 3, max_deliveries=1)
    await client.claim(name, max_count=2, **ISOLATED)
    await suspects(client, name, 2)
    job = await client.job(name, 1)
    assert (job.deliveries, job.tries, job.lost, job.history[0].end) == (1, 0, 1, "lost")
    fresh = await client.claim(name, max_count=9, isolate=True)
    assert ([job.seq for job in fresh.jobs], fresh.suspects) == ([3], 2)
    again = await client.claim(name, max_count=9, isolate=True, suspects=True)
    assert [(job.seq, job.deliveries, job.tries, job.lost) for job in again.jobs] == [(1, 2, 1, 1), (2, 2, 1, 1)]
    assert (await client.ack(name, [1, 2])).count == 2


async def test_a_returned_job_was_not_tried(client: Both, name: str) -> None:
    await filled(client, name, 2, max_deliveries=1)
    claimed = await client.claim(name, max_count=2, isolate=True)
    settled = await client.return_jobs(name, [1], lease_ids=[claimed.lease_id], reason="a drain")
    assert (settled.count, settled.skipped, settled.ready, settled.in_flight) == (1, [], 1, 1)
    job = await client.job(name, 1)
    assert (job.tries, job.lost, job.history[0].end, job.history[0].reason) == (0, 0, "returned", "a drain")
    assert (await client.return_jobs(name, [2], delay_ms=60_000)).count == 1
    assert (await client.topic(name)).queue.delayed == 1
    assert (await client.return_jobs(name, [1, 2])).skipped == [1, 2]


async def test_a_group_begins_one_suspect_at_a_time(client: Both, name: str) -> None:
    await filled(client, name, 2)
    await client.claim(name, max_count=2, **ISOLATED)
    await suspects(client, name, 2)
    claimed = await client.claim(name, max_count=2, isolate=True, suspects=True, group=name)
    for _ in range(2):
        begun = await client.begin(name, 1, lease_id=claimed.lease_id)
        assert (begun.topic, begun.seq) == (name, 1)
    with pytest.raises(Conflict) as caught:
        await client.begin(name, 2, lease_id=claimed.lease_id)
    assert caught.value.code == "busy"
    with pytest.raises(LeaseLost):
        await client.begin(name, 1, lease_id=claimed.lease_id, node="another")
    await client.ack(name, [1])
    assert (await client.begin(name, 2, lease_id=claimed.lease_id)).seq == 2


async def test_a_hello_says_what_became_of_the_process_before(client: Both, name: str) -> None:
    await filled(client, name, 3)
    await client.claim(name, node=f"{name}-w", max_count=3, isolate=True)
    gone = Gone(node=f"{name}-w", exit_code=-9, begun={name: [2]})
    reply = await client.hello([name], group="g", host="h", version="1", gone=[gone])
    assert (reply.returns, reply.suspects) == (True, {name: 1})
    ends = [(await client.job(name, seq)).history[0] for seq in (1, 2, 3)]
    assert [(each.end, each.reason) for each in ends] == [
        ("returned", None),
        ("lost", "exit code -9"),
        ("returned", None),
    ]
    assert (await client.hello([name], gone=[gone])).suspects == {name: 1}, "a repeat changes nothing"


async def test_a_cut_stream_keeps_its_jobs_for_its_worker(client: Both, name: str) -> None:
    await filled(client, name, 1)
    feed = await client.work(name, isolate=True, group="g")
    async with Both(feed) as work:
        jobs: list[Any] = []
        while not jobs:
            jobs = await work.next()
    await client.extend(name, [1], lease_ms=60_000)
    assert (await client.job(name, 1)).state == "in_flight"
    assert (await client.ack(name, [1], lease_ids=[jobs[0].lease_id])).count == 1


async def test_a_stream_says_that_suspects_wait(client: Both, name: str) -> None:
    await filled(client, name, 2)
    await client.claim(name, max_count=2, **ISOLATED)
    await suspects(client, name, 2)
    feed = await client.work(name, isolate=True)
    async with Both(feed) as work:
        while not feed.source.suspects:
            assert await work.next() == []
        assert feed.source.suspects == 2


async def test_a_stream_for_suspects_gets_those_alone(client: Both, name: str) -> None:
    await filled(client, name, 1)
    await client.claim(name, **ISOLATED)
    await suspects(client, name, 1)
    await client.produce(name, [2])
    feed = await client.work(name, max_count=9, isolate=True, suspects=True)
    async with Both(feed) as work:
        jobs: list[Any] = []
        while not jobs:
            jobs = await work.next()
    assert [(job.seq, job.lost) for job in jobs] == [(1, 1)]


async def test_events_of_losses_and_returns_are_streamed(client: Both, name: str) -> None:
    await client.put_topic(name, type="queue")
    feed = await client.events(name)
    seen: dict[str, Any] = {}
    async with Both(feed) as events:
        first = asyncio.create_task(events.next())
        while not first.done():  # until the stream is open
            await client.produce(name, [1, 2])
            await asyncio.sleep(0.05)
        claimed = await client.claim(name, node=f"{name}-w", max_count=2, isolate=True)
        await client.begin(name, 2, lease_id=claimed.lease_id, node=f"{name}-w")
        await client.hello([name], gone=[Gone(node=f"{name}-w", exit_code=137, begun={name: [2]})])
        while not {"begun", "returned", "lost"} <= seen.keys():
            row = await events.next()
            seen[row.event] = row
    assert [seen[event].runs for event in ("begun", "lost", "returned")] == [[2, 1], [2, 1], [1, 1]]
    assert (seen["lost"].node, seen["lost"].reason) == (f"{name}-w", "exit code 137")


@pytest.mark.parametrize("verb", ["return", "begin", "claim", "hello"])
async def test_what_cannot_be_is_refused_as_invalid(client: Both, name: str, verb: str) -> None:
    await filled(client, name, 1)
    calls = {
        "return": lambda: client.return_jobs(name, [1], delay_ms=-1),
        "begin": lambda: client.begin(name, -1, lease_id="lease_1"),
        "claim": lambda: client.claim(name, suspects=True),
        "hello": lambda: client.hello([f"q{number}" for number in range(10_000)]),
    }
    with pytest.raises(Invalid):
        await calls[verb]()


async def test_a_key_with_a_prefix_says_hello_for_its_own_queues_only(kind: str, tmp_path: Path) -> None:
    with serving(tmp_path, TENURE_API_KEYS="root,blue:rwda:blue.") as server:
        async with make_client(kind, server.url, node="w", key="blue") as blue:
            assert (await blue.hello(["blue.q"])).returns is True
            for queues, gone in (["red.q"], []), (["blue.q"], [Gone(node="x", begun={"red.q": [1]})]):
                with pytest.raises(Denied):
                    await blue.hello(queues, gone=gone)
