"""Lost answers and dead servers, as a client meets them: a real server behind a proxy that misbehaves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure import Indeterminate, Invalid, LeaseLost, Overloaded
from tenure.client import ClientSettings
from tests.client.both_clients import Both, make_client
from tests.kit.http_proxy import Proxy, proxy_to
from tests.kit.server import serving

PATIENT = ClientSettings(backoff_min_ms=1, backoff_max_ms=20)
BRIEF = ClientSettings(backoff_min_ms=1, backoff_max_ms=5, attempts_max=3, answer_ms=20_000)


@pytest.fixture
async def shaky(kind: str, proxy: Proxy) -> AsyncIterator[Both]:
    """A client that speaks through the proxy."""
    async with make_client(kind, proxy.url, node="me", settings=PATIENT) as made:
        yield made


async def test_a_produce_whose_answer_is_lost_appends_once_and_tells_the_same_seqs(
    shaky: Both, client: Both, proxy: Proxy, name: str
) -> None:
    """Fault 26."""
    await shaky.put_topic(name, durability="fsync")
    await shaky.produce(name, ["before"])
    proxy.lose_answers = 2
    produced = await shaky.produce(name, ["a", "b"])
    assert proxy.lose_answers == 0
    assert (list(produced.seqs), produced.count, produced.deduped) == ([2, 3], 2, True)
    assert list((await shaky.produce(name, ["after"])).seqs) == [4]
    assert (await client.topic(name)).head_seq == 4


async def test_a_produce_that_never_arrives_is_sent_again(shaky: Both, client: Both, proxy: Proxy, name: str) -> None:
    """Fault 26: the other half; nothing was there, so nothing is deduped."""
    proxy.lose_requests = 1
    produced = await shaky.produce(name, ["a"])
    assert (list(produced.seqs), produced.deduped) == ([1], False)
    assert (await client.topic(name)).count == 1


async def test_a_key_of_the_callers_own_does_the_same(shaky: Both, client: Both, proxy: Proxy, name: str) -> None:
    """Fault 26."""
    proxy.lose_answers = 1
    produced = await shaky.produce(name, ["a"], idempotency_key="k")
    assert (list(produced.seqs), produced.deduped) == ([1], True)
    assert (await client.topic(name)).count == 1


async def test_a_put_with_a_unique_key_is_put_once(shaky: Both, proxy: Proxy, name: str) -> None:
    """Fault 26."""
    queue = Both(shaky.inner.queue(name))
    proxy.lose_answers = 1
    assert await queue.put(1, unique_key="u") == 1
    assert await queue.put(1, unique_key="u") == 1
    assert await queue.put(2) == 2


async def test_an_ack_whose_answer_is_lost_has_its_effect_and_says_that_it_was_repeated(
    shaky: Both, client: Both, proxy: Proxy, name: str
) -> None:
    """Fault 27: the retry skips what the first copy settled."""
    await shaky.put_topic(name, type="queue")
    await shaky.produce(name, [1, 2])
    await shaky.claim(name, max_count=2)
    proxy.lose_answers = 1
    acked = await shaky.ack(name, [1])
    assert (acked.count, acked.skipped, acked.repeated) == (0, [1], True)
    proxy.lose_answers = 1
    nacked = await shaky.nack(name, [2], reason="later")
    assert (nacked.count, nacked.skipped, nacked.repeated) == (0, [2], True)
    counts = (await client.topic(name)).queue
    assert (counts.ready, counts.in_flight) == (1, 0)


async def test_an_extend_whose_answer_is_lost_is_asked_again(shaky: Both, proxy: Proxy, name: str) -> None:
    await shaky.put_topic(name, type="queue")
    await shaky.produce(name, [1])
    await shaky.claim(name)
    proxy.lose_answers = 1
    extended = await shaky.extend(name, [1], lease_ms=60_000)
    assert (set(extended.deadlines), extended.skipped, extended.repeated) == ({1}, [], True)


async def test_a_lease_does_not_guess_who_settled_its_jobs(shaky: Both, proxy: Proxy, name: str) -> None:
    """Faults 27 and 40: a skipped job is lost, unless our own lost copy may have settled it."""
    queue = Both(shaky.inner.queue(name))
    await queue.put_many([1, 2])
    lease = Both(await queue.claim())
    proxy.lose_answers = 1
    with pytest.raises(Indeterminate) as unknown:
        await lease.ack()
    assert unknown.value.detail["skipped"] == [1]
    lease = Both(await queue.claim())
    await shaky.ack(name, [2])
    with pytest.raises(LeaseLost):
        await lease.ack()


async def test_a_claim_whose_answer_is_lost_gives_the_same_jobs_and_burns_no_delivery(
    shaky: Both, client: Both, proxy: Proxy, name: str
) -> None:
    """Fault 28."""
    await shaky.put_topic(name, type="queue", max_deliveries=1, dead_letter=f"{name}.dead")
    await shaky.produce(name, [1, 2, 3])
    proxy.lose_answers = 3
    claimed = await shaky.claim(name, max_count=2)
    assert [(job.seq, job.deliveries) for job in claimed.jobs] == [(1, 1), (2, 1)]
    leases = (await client.leases(name)).leases
    assert [(lease.lease_id, lease.seqs) for lease in leases] == [(claimed.lease_id, [1, 2])]
    assert [job.seq for job in (await shaky.claim(name)).jobs] == [3]


async def test_a_claim_that_acks_by_itself_is_not_repeated(shaky: Both, client: Both, proxy: Proxy, name: str) -> None:
    """Fault 28: there the jobs are gone with the answer, and the caller is told."""
    await shaky.put_topic(name, type="queue")
    await shaky.produce(name, [1, 2])
    proxy.lose_answers = 1
    with pytest.raises(Indeterminate):
        await shaky.claim(name, auto_ack=True)
    assert (await client.topic(name)).queue.ready == 1


@pytest.mark.parametrize("call", ["delete_topic", "delete_records", "redrive"])
async def test_what_could_reach_what_came_in_between_is_not_repeated(
    shaky: Both, proxy: Proxy, name: str, call: str
) -> None:
    await shaky.put_topic(name, type="queue")
    await shaky.produce(name, [1])
    proxy.lose_answers = 1
    with pytest.raises(Indeterminate):
        await getattr(shaky, call)(name, **({"before_seq": 2} if call == "delete_records" else {}))
    assert proxy.lose_answers == 0


async def test_reads_and_puts_of_topics_are_simply_asked_again(shaky: Both, proxy: Proxy, name: str) -> None:
    proxy.lose_answers = 1
    assert (await shaky.put_topic(name)).topic == name
    proxy.lose_answers = 1
    assert (await shaky.topic(name)).topic == name
    proxy.lose_answers = 1
    assert (await shaky.put_router(f"{name}-r", source=name, dest=f"{name}-d")).router == f"{name}-r"


async def test_a_server_that_is_not_there_is_unreachable(kind: str, proxy: Proxy, name: str) -> None:
    proxy.refuse()
    async with make_client(kind, proxy.url, settings=BRIEF) as client:
        with pytest.raises(Overloaded) as caught:
            await client.produce(name, [1])
        assert caught.value.code == "unreachable"
        with pytest.raises(Overloaded):
            await client.topic(name)


async def test_an_outcome_that_cannot_be_known_is_indeterminate_and_never_guessed(
    kind: str, client: Both, proxy: Proxy, name: str
) -> None:
    """Fault 30: every answer is lost; the record is there all the same, once."""
    async with make_client(kind, proxy.url, settings=BRIEF) as shaky:
        await shaky.produce(name, [0])
        proxy.lose_answers = 3
        with pytest.raises(Indeterminate) as caught:
            await shaky.produce(name, [1])
        assert caught.value.detail["cause"] == "unreachable"
        proxy.lose_requests = 3
        with pytest.raises(Indeterminate):
            await shaky.produce(name, [2])
        assert list((await shaky.produce(name, [3])).seqs) == [3], "what followed on the lane is not confused by it"
    assert [bytes(r.data) for r in (await client.diff(name)).records] == [b"0", b"1", b"3"]


async def test_a_refusal_of_the_repeat_says_nothing_about_the_first_copy(
    kind: str, client: Both, proxy: Proxy, name: str
) -> None:
    """Fault 30: the answer is lost, and before the repeat the topic is gone."""
    settings = ClientSettings(backoff_min_ms=100_000, backoff_max_ms=300, attempts_max=2)
    async with make_client(kind, proxy.url, settings=settings) as shaky:
        await shaky.put_topic(name)
        shaky.inner._context.chance = lambda: 1.0
        proxy.lost.clear()
        proxy.lose_answers = 1
        call = asyncio.ensure_future(shaky.produce(name, [1], create=False))
        await asyncio.to_thread(proxy.lost.wait, 30)
        await client.delete_topic(name)
        with pytest.raises(Indeterminate) as caught:
            await call
        assert caught.value.detail["cause"] == "topic_not_found"


async def test_kill_minus_nine_between_sync_and_answer(kind: str, tmp_path: Path, name: str) -> None:
    """Fault 30: without a server the outcome is unknown, with it back on the same data it is found out; one record
    either way, and the same seq.
    """
    data = tmp_path / "data"
    with serving(data) as server, proxy_to(int(server.url.rpartition(":")[2])) as proxy:
        async with (
            make_client(kind, proxy.url, settings=BRIEF) as brief,
            make_client(kind, proxy.url, settings=ClientSettings(backoff_min_ms=200, attempts_max=1_000)) as patient,
        ):
            await brief.put_topic(name, durability="fsync")
            await patient.produce(name, ["first"])
            calls = []
            proxy.hold_answers = True
            for caller, value in ((brief, "unknown"), (patient, "found out")):
                proxy.lost.clear()
                calls.append(asyncio.ensure_future(caller.produce(name, [value])))
                await asyncio.to_thread(proxy.lost.wait, 30)
            server.signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
            proxy.hold_answers = False
            proxy.refuse()
            with pytest.raises(Indeterminate):
                await calls[0]
            with serving(data) as again:
                proxy.target_port = int(again.url.rpartition(":")[2])
                proxy.accept()
                produced = await calls[1]
                assert (list(produced.seqs), produced.deduped) == ([3], True)
                records = (await patient.diff(name)).records
                assert [bytes(r.data) for r in records] == [b'"first"', b'"unknown"', b'"found out"']
        proxy.refuse()
        proxy.accept()


async def test_an_ack_is_retried_across_a_restart(kind: str, tmp_path: Path, name: str) -> None:
    """Fault 27."""
    data = tmp_path / "data"
    with serving(data) as server, proxy_to(int(server.url.rpartition(":")[2])) as proxy:
        settings = ClientSettings(backoff_min_ms=200, attempts_max=1_000)
        async with make_client(kind, proxy.url, node="me", settings=settings) as client:
            await client.put_topic(name, type="queue", durability="fsync", leases_durable=True)
            await client.produce(name, [1, 2])
            await client.claim(name, max_count=2)
            proxy.hold_answers = True
            proxy.lost.clear()
            call = asyncio.ensure_future(client.ack(name, [1]))
            await asyncio.to_thread(proxy.lost.wait, 30)
            server.signal(signal.SIGKILL)
            server.wait()
            proxy.hold_answers = False
            with serving(data) as again:
                proxy.target_port = int(again.url.rpartition(":")[2])
                proxy.cut()
                acked = await call
                assert (acked.count, acked.skipped, acked.repeated) == (0, [1], True)
                assert (await client.ack(name, [2])).count == 1


async def test_a_stream_says_that_the_line_broke(shaky: Both, proxy: Proxy, name: str) -> None:
    await shaky.put_topic(name, type="queue")
    await shaky.produce(name, [1])
    async with Both(shaky.inner.work(name)) as work:
        while not (jobs := await work.next()):
            pass
        assert jobs[0].seq == 1
        proxy.cut()
        with pytest.raises(Overloaded) as caught:
            await work.drain()
        assert caught.value.code == "disconnected"


async def test_a_url_that_is_none_is_invalid(kind: str) -> None:
    for url in ("127.0.0.1:4000", "ftp://x", "http://", "http://me:secret@host", "http://host:99999", "http://h?x=1"):
        with pytest.raises(Invalid):
            make_client(kind, url)
