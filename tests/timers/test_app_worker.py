"""Timers in worker processes on a real Redis: killed, drained, cut off, and beside queues (faults 24, 36, 37)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tenure import Client
from tenure.timers import Timers
from tests.kit.processes import children_of
from tests.kit.redis_servers import Server, server, until
from tests.kit.restartable_server import Serving
from tests.timers.reminders import Note
from tests.timers.running import Journal, running


@pytest.fixture
def redis_server() -> Iterator[Server]:
    """A server of its own, because the app has one prefix; it keeps its timers when it is killed."""
    with server("--appendonly", "yes", "--appendfsync", "always") as found:
        yield found


@pytest.fixture
async def timers(redis_server: Server) -> AsyncIterator[Timers]:
    client = Redis(port=redis_server.port)
    async with Timers(client) as timers:
        yield timers
    await client.aclose()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


async def until_done(timers: Timers, topic: str = "reminders") -> None:
    async with asyncio.timeout(30):
        while True:
            stats = await timers.stats(topic)
            if not (stats.scheduled or stats.ready or stats.in_flight):
                return
            await asyncio.sleep(0.01)


async def test_a_killed_workers_timer_comes_back_after_its_lease(
    redis_server: Server, timers: Timers, journal: Journal, tmp_path: Path
):
    gate = tmp_path / "gate"
    with running(journal, redis_server.port) as first:
        await timers.schedule("reminders", Note(gate=str(gate)), timer_id="one", delay=0)
        await asyncio.to_thread(journal.wait_for, "begin")
        first.kill()
    stats = await timers.stats("reminders")
    assert (stats.in_flight, stats.ready) == (1, 0)
    with redis_server.client() as client:
        client.zadd("tenure:{reminders}:leased", {"one": 1})  # as though its lease had run out
    gate.touch()
    with running(journal, redis_server.port) as second:
        [line] = await asyncio.to_thread(journal.wait_for, "end")
        assert (line["timer_id"], line["deliveries"]) == ("one", 2)
        assert line["pid"] in children_of(second.process.pid)
        await until_done(timers)
    assert (await timers.stats("reminders")).lapsed_total == 1


@pytest.mark.full
@pytest.mark.parametrize("topic", ["reminders", "threads"])
async def test_heartbeats_keep_the_timer_of_a_handler_longer_than_its_lease(
    redis_server: Server, timers: Timers, journal: Journal, tmp_path: Path, topic: str
):
    gate = tmp_path / "gate"
    with running(journal, redis_server.port), running(journal, redis_server.port):
        await timers.schedule(topic, Note(gate=str(gate)), delay=0)
        await asyncio.to_thread(journal.wait_for, "begin")
        [info] = await timers.peek(topic, state="in_flight")
        while (await timers.stats(topic)).now_ms <= info.at_ms:
            await asyncio.sleep(0.1)
        gate.touch()
        await until_done(timers, topic)
    assert [line["deliveries"] for line in journal.lines("begin")] == [1]
    assert (await timers.stats(topic)).lapsed_total == 0


async def test_a_drain_gives_back_at_once_and_finishes_what_runs(
    redis_server: Server, timers: Timers, journal: Journal, tmp_path: Path
):
    gate = tmp_path / "gate"
    with running(journal, redis_server.port, "--drain", "10s") as worker:
        for n in range(40):
            await timers.schedule("reminders", Note(n=n, gate=str(gate)), delay=0)
        await asyncio.to_thread(journal.wait_for, "begin", 20)
        worker.process.terminate()
        async with asyncio.timeout(30):
            while (await timers.stats("reminders")).ready < 20:
                await asyncio.sleep(0.005)
        gate.touch()
        assert await asyncio.to_thread(worker.process.wait, 30) == 0
    stats = await timers.stats("reminders")
    assert (stats.ready, stats.in_flight, stats.committed_total, stats.lapsed_total) == (20, 0, 20, 0)


async def test_a_drain_that_is_over_gives_back_what_still_runs(
    redis_server: Server, timers: Timers, journal: Journal, tmp_path: Path
):
    with running(journal, redis_server.port, "--drain", "0s") as worker:
        await timers.schedule("reminders", Note(gate=str(tmp_path / "never")), delay=0)
        await asyncio.to_thread(journal.wait_for, "begin")
        assert await asyncio.to_thread(worker.terminate) == 0
    stats = await timers.stats("reminders")
    assert (stats.ready, stats.in_flight, stats.lapsed_total) == (1, 0, 0)


async def test_retries_end_in_a_dead_letter_that_says_why(redis_server: Server, timers: Timers, journal: Journal):
    with running(journal, redis_server.port):
        await timers.schedule("reminders", Note(fail="nobody is there"), timer_id="one", delay=0)
        await until_done(timers)
    assert [line["deliveries"] for line in journal.lines("begin")] == [1, 2, 3]
    [letter] = await timers.peek("reminders", state="dead")
    assert letter.reason.startswith("ValueError: nobody is there (reminders.py:")
    assert letter.failures == 2


async def test_a_payload_that_does_not_fit_is_a_dead_letter_unseen(
    redis_server: Server, timers: Timers, journal: Journal
):
    with running(journal, redis_server.port):
        await timers.schedule("reminders", {"n": "one"}, delay=0)
        await until_done(timers)
    [letter] = await timers.peek("reminders", state="dead")
    assert letter.reason == "payload does not fit: Expected `int`, got `str` - at `$.n`"
    assert not journal.lines("begin")


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_redis_that_is_restarted_is_found_again(
    redis_server: Server, timers: Timers, journal: Journal, tmp_path: Path, flushed: bool
):
    gate = tmp_path / "gate"
    with running(journal, redis_server.port) as worker:
        await timers.schedule("reminders", Note(n=1, gate=str(gate)), timer_id="one", delay=0)
        await asyncio.to_thread(journal.wait_for, "begin")
        await asyncio.to_thread(redis_server.kill)
        until(lambda: "waiting for the Redis" in worker.log(), "it notices")
        await asyncio.to_thread(redis_server.start)
        if flushed:
            with redis_server.client() as client:
                client.flushall()
        await timers.schedule("reminders", Note(n=2), timer_id="two", delay=0)
        lines = await asyncio.to_thread(journal.wait_for, "end")
        assert lines[0]["n"] == 2
        gate.touch()
        await until_done(timers)
        until(lambda: worker.log().count("is back") == 1, "it says so")
        assert worker.log().count("waiting for the Redis") == 1
        assert await asyncio.to_thread(worker.terminate) == 0


async def test_handlers_in_processes_and_what_they_schedule(redis_server: Server, timers: Timers, journal: Journal):
    with running(journal, redis_server.port):
        await timers.schedule("processes", Note(n=1), delay=0)
        lines = await asyncio.to_thread(journal.wait_for, "end", 2)
        assert [line["n"] for line in lines] == [1, 2]
        await until_done(timers, "processes")


async def test_queues_and_timers_in_one_worker(redis_server: Server, timers: Timers, journal: Journal, tmp_path: Path):
    broker = Serving(tmp_path / "data").start()
    with closing(broker), running(journal, redis_server.port, url=broker.address) as worker:
        await asyncio.to_thread(worker.wait_until_it_works, ("reminders", "jobs"))
        with Client(broker.address) as client:
            for n in range(10):
                client.produce("jobs", [{"n": n}])
        await asyncio.to_thread(journal.wait_for, "job", 10)
        lines = await asyncio.to_thread(journal.wait_for, "end", 10)
        assert {line["timer_id"] for line in lines} == {f"of-job-{n}" for n in range(10)}
        await until_done(timers)
        assert await asyncio.to_thread(worker.terminate) == 0


async def test_a_broker_that_is_away_keeps_no_timer_waiting(redis_server: Server, timers: Timers, journal: Journal):
    with running(journal, redis_server.port, url="http://127.0.0.1:9") as worker:
        await timers.schedule("reminders", Note(n=1), delay=0)
        await asyncio.to_thread(journal.wait_for, "end")
        until(lambda: "waiting for the broker" in worker.log(), "it waits for the other")
        assert await asyncio.to_thread(worker.terminate) == 0


async def test_an_app_with_timers_alone_asks_for_no_broker(redis_server: Server, timers: Timers, journal: Journal):
    with running(journal, redis_server.port, "--queues", "reminders") as worker:
        await timers.schedule("reminders", Note(n=1), delay=0)
        await asyncio.to_thread(journal.wait_for, "end")
        assert await asyncio.to_thread(worker.terminate) == 0
        assert "broker" not in worker.log()
