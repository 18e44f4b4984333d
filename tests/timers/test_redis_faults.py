"""Fault 55 and its relatives on real servers: down, restarted, flushed, full, read-only, busy, forbidden."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from tenure.errors import Conflict, Denied, Indeterminate, Overloaded, TenureError
from tenure.timers import NewTimer, Timers, TimersSettings
from tests.kit import redis_servers as servers
from tests.kit.redis_servers import Server

QUICK = TimersSettings(attempts_max=2, retry_for_ms=500, backoff_max_ms=50, poll_ms=50)
"""Gives up soon where Redis refuses, and not where a busy machine is slow."""
SHORT = TimersSettings(attempts_max=2, retry_for_ms=500, backoff_max_ms=50, connect_ms=500, answer_ms=500)
PATIENT = TimersSettings(attempts_max=1_000, retry_for_ms=30_000, backoff_max_ms=50, connect_ms=5_000)
NO_LOOKING = TimersSettings(wait_max_ms=600_000, poll_ms=600_000)
HOUR_MS = 3_600_000


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own, to be mistreated."""
    with servers.server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@asynccontextmanager
async def timers_on(port: int, settings: TimersSettings = QUICK, **options: object) -> AsyncIterator[Timers]:
    client = Redis(port=port, **{"retry": Retry(NoBackoff(), 0), **options})  # type: ignore[arg-type]
    async with Timers(client, settings=settings) as timers:
        yield timers
    await client.aclose()


async def test_a_server_that_is_down_is_overloaded_and_recovery_comes_by_itself_fault_55(server: Server):
    async with timers_on(server.port) as timers:
        await timers.schedule("t", 1, delay=0, timer_id="a")
        server.kill()
        # The first call may find a line that looks alive, so it is a read: to have sent it into the void is harmless.
        for call in (timers.stats, timers.claim, timers.wait, timers.peek):
            with pytest.raises(Overloaded) as caught:
                await call("t")
            assert caught.value.code == "unreachable"
        server.start()
        (timer,) = await timers.claim("t", max_count=10)
        assert timer.timer_id == "a"


async def test_a_call_waits_out_a_short_restart(server: Server):
    async with timers_on(server.port, PATIENT) as timers:
        await timers.stats("t")
        server.kill()
        scheduling = asyncio.create_task(timers.schedule("t", 1, delay=0))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.start)
        await scheduling
        assert (await timers.stats("t")).ready == 1


async def test_waiters_come_back_after_a_restart(server: Server):
    async with timers_on(server.port, PATIENT) as timers, timers_on(server.port, PATIENT) as other:
        waiting = asyncio.create_task(timers.wait("t"))
        await other.schedule("t", 1, delay=HOUR_MS)
        server.kill()
        await asyncio.to_thread(server.start)
        await other.schedule("t", 2, delay=0)
        assert await asyncio.wait_for(waiting, 30) is True


async def test_a_server_that_stopped_answering_is_indeterminate_for_what_changes_things(server: Server):
    async with timers_on(server.port) as timers, timers_on(server.port, SHORT) as impatient:
        await timers.schedule("t", 1, delay=0, timer_id="a")
        async with asyncio.timeout(30):
            while not await impatient.ping():  # it has a line, also where the machine is busy
                await asyncio.sleep(0.01)
        server.signal(signal.SIGSTOP)
        with pytest.raises(Indeterminate):
            await impatient.schedule("t", 2, delay=0, timer_id="b")
        with pytest.raises(Overloaded):
            await impatient.stats("t")
        server.signal(signal.SIGCONT)
        assert {timer.timer_id for timer in await timers.claim("t", max_count=10)} >= {"a"}


async def test_a_flush_loses_what_was_there_and_no_old_lease_touches_what_comes_after_fault_55(server: Server):
    async with timers_on(server.port) as timers:
        before = await timers.schedule("t", "old", delay=0, timer_id="a")
        held = await timers.claim("t")
        with server.client() as client:
            client.flushall()
        after = await timers.schedule("t", "new", delay=0, timer_id="a")
        assert after.version > before.version
        assert (await timers.commit("t", held)).superseded == ["a"]
        (timer,) = await timers.claim("t")
        assert (timer.json(), timer.deliveries) == ("new", 1)


async def test_scripts_that_the_server_forgot_are_sent_again(server: Server):
    async with timers_on(server.port) as timers:
        await timers.schedule("t", 1, delay=0)
        with server.client() as client:
            client.script_flush()
        assert len(await timers.claim("t")) == 1


async def test_scripts_are_sent_in_full_only_once(server: Server):
    async with timers_on(server.port) as timers:
        for _ in range(3):
            await timers.schedule("t", 1, delay=0)
        with server.client() as client:
            calls = client.info("commandstats")
        assert (calls["cmdstat_eval"]["calls"], calls["cmdstat_evalsha"]["calls"]) == (1, 3)


async def test_a_replica_is_refused_and_its_promotion_recovers_fault_55(server: Server):
    with servers.server("--replicaof", "127.0.0.1", str(server.port)) as replica:
        async with timers_on(server.port) as primary, timers_on(replica.port) as timers:
            await primary.schedule("t", 1, delay=0)
            with replica.client() as client:
                servers.until(lambda: client.dbsize() > 0, "the replica follows")
                for call in (timers.schedule("t", 2, delay=0), timers.claim("t")):
                    with pytest.raises(Overloaded) as caught:
                        await call
                    assert caught.value.code == "read_only_replica"
                client.execute_command("REPLICAOF", "NO", "ONE")
            assert len(await timers.claim("t", max_count=10)) == 1


async def test_a_promoted_replica_that_missed_a_claim_hands_out_again_and_fences_nobody_wrongly_fault_55(
    server: Server,
):
    with servers.server("--replicaof", "127.0.0.1", str(server.port)) as replica:
        async with timers_on(server.port) as primary, timers_on(replica.port) as stale:
            await primary.schedule("t", 1, delay=0, timer_id="a")
            with replica.client() as client:
                servers.until(lambda: client.dbsize() > 0, "the replica follows")
                client.execute_command("REPLICAOF", "NO", "ONE")
            first = await primary.claim("t")
            second = await stale.claim("t")
            assert [timer.timer_id for timer in first] == [timer.timer_id for timer in second] == ["a"]
            assert (await stale.commit("t", first)).lost == ["a"]
            assert (await stale.commit("t", second)).count == 1


async def test_at_maxmemory_schedules_are_refused_and_the_work_goes_on(server: Server):
    async with timers_on(server.port) as timers:
        await timers.schedule_many("t", [NewTimer(payload=b"x" * 1_000, at=1 + i) for i in range(4)])
        with server.client() as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(Overloaded) as caught:
                await timers.schedule("t", 1, delay=0)
            assert caught.value.code == "out_of_memory"
            committed, nacked, rejected, extended = await timers.claim("t", max_count=4)
            assert (await timers.commit("t", [committed])).count == 1
            assert (await timers.nack("t", [nacked], delay_ms=HOUR_MS)).count == 1
            assert (await timers.reject("t", [rejected], reason="no")).count == 1
            assert (await timers.extend("t", [extended])).count == 1
            assert await timers.cancel("t", nacked.timer_id) == "cancelled"
            client.config_set("maxmemory", "0")
        await timers.schedule("t", 1, delay=0)
        stats = await timers.stats("t")
        assert (stats.ready, stats.in_flight, stats.dead) == (1, 1, 1)


def endless(server: Server) -> threading.Thread:
    """Somebody else's script that never ends."""

    def run() -> None:
        with server.client() as client, pytest.raises(ResponseError, match="killed"):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


async def test_a_busy_server_is_overloaded_and_passes_when_the_script_is_killed(server: Server):
    with server.client() as client:
        client.config_set("lua-time-limit", "10")
        async with timers_on(server.port) as timers, timers_on(server.port, PATIENT) as patient:
            await timers.schedule("t", 1, delay=0)
            thread = endless(server)
            servers.until(lambda: _is_busy(server), "the script holds the server up")
            with pytest.raises(Overloaded) as caught:
                await timers.claim("t")
            assert caught.value.code == "busy_script"
            claiming = asyncio.create_task(patient.claim("t"))
            await asyncio.sleep(0.05)
            client.script_kill()
            assert len(await claiming) == 1
            await asyncio.to_thread(thread.join)


def _is_busy(server: Server) -> bool:
    with server.client() as client:
        try:
            client.ping()
        except RedisError as error:
            return "BUSY" in str(error)
    return False


async def test_where_pubsub_is_forbidden_a_wait_looks_by_itself(server: Server):
    with server.client() as client:
        client.execute_command("ACL SETUSER", "plain", "on", ">secret", "~*", "+@all", "-subscribe", "resetchannels")
    async with timers_on(server.port, username="plain", password="secret") as timers:
        waiting = asyncio.create_task(timers.wait("t"))
        await asyncio.sleep(0)
        await timers.schedule("t", 1, delay=0)
        assert await asyncio.wait_for(waiting, 30) is True


async def test_a_user_who_may_not_run_scripts_is_told_so(server: Server):
    with server.client() as client:
        client.execute_command("ACL SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection")
    async with timers_on(server.port, username="reader", password="secret") as timers:
        with pytest.raises(Denied):
            await timers.stats("t")
    async with timers_on(server.port, username="reader", password="wrong", retry=None) as timers:
        with pytest.raises(Denied):
            await timers.stats("t")


async def test_keys_of_somebody_else_are_a_conflict(timers: Timers, redis: Redis):
    prefix = timers._scripts._prefix  # type: ignore[attr-defined]
    await redis.set(f"{prefix}:{{t}}:record", "mine")
    with pytest.raises(Conflict):
        await timers.schedule("t", 1, delay=0)


async def test_a_timer_whose_payload_redis_lost_is_dropped_and_counted(timers: Timers, redis: Redis):
    prefix = timers._scripts._prefix  # type: ignore[attr-defined]
    await timers.schedule("t", 1, delay=0, timer_id="a")
    await redis.delete(f"{prefix}:{{t}}:record")
    await timers.schedule("t", 2, delay=0, timer_id="b")
    assert [timer.timer_id for timer in await timers.claim("t", max_count=10)] == ["b"]
    assert (await timers.stats("t")).orphaned_total == 1


async def test_hole_4_a_sleeper_is_woken_by_what_is_due_sooner_and_never_looks(redis: Redis):
    """With looking put off for ten minutes, only a message can end this wait."""
    prefix = f"t-{os.urandom(6).hex()}"
    async with (
        Timers(redis, prefix=prefix, settings=NO_LOOKING) as sleeper,
        Timers(redis, prefix=prefix, settings=NO_LOOKING) as scheduler,
    ):
        for topic in ("t", "u"):  # the second joins a subscription that runs already
            await scheduler.schedule(topic, 1, delay=HOUR_MS)
            waiting = asyncio.create_task(sleeper.wait(topic))
            await _asleep(sleeper, topic)
            await scheduler.schedule(topic, 2, delay=HOUR_MS // 2)
            await scheduler.schedule(topic, 3, delay=20)
            assert await asyncio.wait_for(waiting, 30) is True


async def test_hole_4_sleepers_that_begin_together_share_one_subscription_and_are_all_woken(redis: Redis):
    prefix, topics = f"t-{os.urandom(6).hex()}", [f"topic-{number}" for number in range(50)]
    async with (
        Timers(redis, prefix=prefix, settings=NO_LOOKING) as sleeper,
        Timers(redis, prefix=prefix, settings=NO_LOOKING) as scheduler,
    ):
        waiting = [asyncio.create_task(sleeper.wait(topic)) for topic in topics]
        for topic in topics:
            await _asleep(sleeper, topic)
        assert (
            len([one for one in await redis.client_list() if one["cmd"] == "subscribe" and int(one["sub"]) == 50]) == 1
        )
        for topic in topics:
            await scheduler.schedule(topic, 1, delay=0)
        assert await asyncio.wait_for(asyncio.gather(*waiting), 30) == [True] * len(topics)


async def test_hole_4_a_sleeper_is_woken_by_a_nack_and_by_a_redrive(redis: Redis):
    prefix = f"t-{os.urandom(6).hex()}"
    async with (
        Timers(redis, prefix=prefix, settings=NO_LOOKING) as sleeper,
        Timers(redis, prefix=prefix, settings=NO_LOOKING) as worker,
    ):
        await worker.schedule("t", 1, delay=0)
        held = await worker.claim("t")
        waiting = asyncio.create_task(sleeper.wait("t"))
        await _asleep(sleeper, "t")
        await worker.nack("t", held)
        assert await asyncio.wait_for(waiting, 30) is True
        await worker.reject("t", await worker.claim("t"))
        assert await sleeper.claim("t") == []
        waiting = asyncio.create_task(sleeper.wait("t"))
        await asyncio.sleep(0)
        await worker.redrive("t")
        assert await asyncio.wait_for(waiting, 30) is True


async def _asleep(timers: Timers, topic: str) -> None:
    """Until the subscription stands and the head was read since."""
    wakeup = timers._scripts._wakeup  # type: ignore[attr-defined]
    end = time.monotonic() + 30
    while (due := wakeup.next_due(topic)) is None or not due.live or due.stale:
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


async def test_more_calls_than_connections_stand_in_line(redis_port: int):
    client = Redis(port=redis_port, max_connections=5)
    settings = TimersSettings(connections_max=4, attempts_max=1)
    async with Timers(client, prefix=f"t-{os.urandom(6).hex()}", settings=settings) as timers:
        waiting = asyncio.create_task(timers.wait("t"))
        await asyncio.gather(*(timers.schedule("t", number, delay=0) for number in range(300)))
        assert (await timers.stats("t")).ready == 300
        assert await waiting
    await client.aclose()


async def test_a_call_that_is_given_up_ends_at_once_wherever_it_is(redis_port: int):
    """Also in redis-py, which swallows a cancellation now and then; and its connection stays clean."""
    for turns in range(60):
        client = Redis(port=redis_port)
        async with Timers(client, settings=QUICK) as timers:
            for call in (timers.stats("t"), timers.claim("t"), timers.wait("t")):
                task = asyncio.create_task(call)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await asyncio.wait_for(asyncio.shield(task), 10)
            assert (await timers.stats("t")).now_ms > 0
        await client.aclose()


async def test_hole_5_the_clock_of_a_worker_does_not_matter(timers: Timers, monkeypatch: pytest.MonkeyPatch):
    await timers.schedule("t", 1, delay=HOUR_MS, timer_id="later")
    monkeypatch.setattr(time, "time", lambda: 4e9)
    monkeypatch.setattr(time, "time_ns", lambda: 4 * 10**18)
    await timers.schedule("t", 2, delay=0, timer_id="now")
    (timer,) = await timers.claim("t", max_count=10)
    assert timer.timer_id == "now"
    assert timer.deadline_ms < 4e12


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 3}, {"protocol": 2}], ids=str)
async def test_any_client_will_do(redis_port: int, options: dict[str, object]):
    raw = bytes(range(256))
    client = Redis(port=redis_port, **options)  # type: ignore[arg-type]
    async with Timers(client, prefix=f"t-{os.urandom(6).hex()}", settings=QUICK) as timers:
        waiting = asyncio.create_task(timers.wait("t"))
        await asyncio.sleep(0)
        await timers.schedule("t", raw, delay=0, timer_id="ä")
        assert await waiting
        (timer,) = await timers.claim("t")
        assert (timer.timer_id, timer.payload) == ("ä", raw)
        with pytest.raises(TenureError):
            await timers.schedule("t", 1, delay=0, timer_id="ä", on_conflict="error")
    await client.aclose()
