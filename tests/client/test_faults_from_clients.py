"""Faults 31 and 37 to 40 as a client meets them, blocking or not, at a real server."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from tenure import LeaseLost, Overloaded
from tenure.client import ClientSettings
from tests.acceptance.worker.working import FixedServing
from tests.client.both_clients import Both, make_client
from tests.kit.http_proxy import Proxy
from tests.kit.server import Running

SHORT_MS = 300
PATIENT = ClientSettings(backoff_min_ms=1, backoff_max_ms=100, attempts_max=100_000)


async def first_jobs(work: Both) -> list[int]:
    """The seqs of the first jobs that a stream brings."""
    while not (jobs := await work.next()):
        pass
    return [job.seq for job in jobs]


async def claim_all(client: Both, name: str, count: int) -> dict[int, int]:
    """Claim until there were so many; returns how often each was delivered."""
    deliveries: dict[int, int] = {}
    while len(deliveries) < count:
        claimed = await client.claim(name, max_count=count, wait_ms=1_000, lease_ms=60_000)
        deliveries |= {job.seq: job.deliveries for job in claimed.jobs}
    return deliveries


async def test_fault_31_a_stream_gone_silent_is_broken_and_keeps_no_more_than_it_may(
    kind: str, client: Both, proxy: Proxy, name: str
) -> None:
    """Its line is dead and nobody said so. The client gives up when it has heard nothing for ``stream_idle_ms``; the
    server keeps at most ``max_count`` jobs for it, and these no longer than their lease.
    """
    await client.put_topic(name, type="queue")
    settings = ClientSettings(stream_idle_ms=SHORT_MS)
    async with make_client(kind, proxy.url, node="deaf", settings=settings) as deaf:
        async with Both(deaf.inner.work(name, max_count=2, lease_ms=SHORT_MS)) as work:
            assert await work.next() == [], "it is open, and heard so"
            proxy.hold_answers = True
            await client.produce(name, [1, 2, 3, 4, 5])
            counts = (await client.topic(name)).queue
            assert (counts.in_flight, counts.ready) == (2, 3)
            with pytest.raises(Overloaded) as caught:
                await work.next()
            assert caught.value.code == "disconnected"
        deliveries = await claim_all(client, name, 5)
    assert set(deliveries) == {1, 2, 3, 4, 5}
    assert [deliveries[seq] for seq in (3, 4, 5)] == [1, 1, 1], "it was never given these"
    assert deliveries[1] > 1


async def test_fault_31_a_long_poll_whose_answer_never_comes_is_asked_again(
    kind: str, client: Both, proxy: Proxy, name: str
) -> None:
    """The job was given to a dead line. The claim's id brings the same job again, and it counts as one delivery."""
    await client.put_topic(name, type="queue", max_deliveries=1)
    settings = ClientSettings(answer_ms=SHORT_MS, backoff_min_ms=1, backoff_max_ms=20)
    async with make_client(kind, proxy.url, node="deaf", settings=settings) as deaf:
        proxy.hold_answers = True
        waiting = asyncio.ensure_future(deaf.claim(name, wait_ms=1_000, lease_ms=60_000))
        await client.produce(name, [1])
        await asyncio.to_thread(proxy.lost.wait, 30)
        proxy.hold_answers = False
        claimed = await waiting
    assert [(job.seq, job.deliveries) for job in claimed.jobs] == [(1, 1)]
    (held,) = (await client.leases(name)).leases
    assert (held.lease_id, held.node) == (claimed.lease_id, "deaf")


async def test_fault_37_batches_stay_whole_when_the_server_is_told_to_stop_among_them(
    kind: str, tmp_path: Path, name: str
) -> None:
    """Twice, the second time in a hurry. It ends by itself; what it did not take goes to its next life."""
    server, size, batches = FixedServing(tmp_path / "data"), 20, 40
    try:
        server.start()
        async with make_client(kind, server.address, settings=PATIENT) as client:
            await client.put_topic(name, durability="fsync")

            async def put(lane: int, done: asyncio.Event) -> int:
                number = 0
                while number < batches or not done.is_set():
                    produced = await client.produce(name, [[lane, number]] * size)
                    assert list(produced.seqs) == list(range(produced.first_seq, produced.first_seq + size))
                    number += 1
                return number

            done = asyncio.Event()
            puts = [asyncio.create_task(put(lane, done)) for lane in range(4)]
            for signals in (1, 2):
                seen = (await client.topic(name)).head_seq
                while (await client.topic(name)).head_seq < seen + 10 * size:
                    await asyncio.sleep(0)
                for _ in range(signals):
                    server.signal(signal.SIGTERM)
                code = await asyncio.to_thread(server.wait)
                assert code == 0 or (signals == 2 and code == 128 + signal.SIGTERM)
                await asyncio.to_thread(server.start)
            done.set()
            counts = await asyncio.gather(*puts)
            datas: list[bytes] = []
            while len(datas) < (await client.topic(name)).head_seq:
                datas += [bytes(r.data) for r in (await client.diff(name, from_seq=len(datas), limit=1000)).records]
    finally:
        server.close()
    whole = [datas[start : start + size] for start in range(0, len(datas), size)]
    assert all(len(set(batch)) == 1 for batch in whole), "nothing lies inside a batch"
    wanted = {b"[%d,%d]" % (lane, number): 1 for lane, count in enumerate(counts) for number in range(count)}
    assert Counter(batch[0] for batch in whole) == wanted, "each is there, once"


@pytest.mark.parametrize("how", ["its lease runs out", "its line is cut"])
async def test_fault_38_the_jobs_of_a_client_that_dies_have_one_new_holder(
    kind: str, client: Both, proxy: Proxy, name: str, how: str
) -> None:
    await client.put_topic(name, type="queue")
    await client.produce(name, ["a"])
    async with make_client(kind, proxy.url, node="first", settings=PATIENT) as first:
        if how == "its lease runs out":
            lease_id = (await first.claim(name, lease_ms=SHORT_MS)).lease_id
        else:
            async with Both(first.inner.work(name, lease_ms=60_000)) as work:
                await first_jobs(work)
                lease_id = (await client.leases(name)).leases[0].lease_id
                proxy.cut()
                with pytest.raises(Overloaded):
                    await work.drain()
        assert await claim_all(client, name, 1) == {1: 2}
        (held,) = (await client.leases(name)).leases
        assert (held.node, held.seqs) == ("me", [1])
        assert held.lease_id != lease_id
        assert (await first.ack(name, [1], lease_ids=[lease_id])).skipped == [1]
        with pytest.raises(LeaseLost):
            await first.ack(name, [1], lease_ids=[lease_id], strict=True)
    ends = [delivery.end for delivery in (await client.job(name, 1)).history]
    assert ends[0] == ("expired" if how == "its lease runs out" else "disconnect")


async def test_fault_39_poison_is_a_dead_letter_once_though_the_answer_was_lost(
    kind: str, client: Both, proxy: Proxy, name: str
) -> None:
    """One by a nack that is repeated because its answer was lost, one by its deliveries: each is in one place."""
    dead = f"{name}.dead"
    await client.put_topic(name, type="queue", max_deliveries=2, dead_letter=dead, durability="fsync")
    await client.produce(name, ["rejected", "crashing", "fine"])
    async with make_client(kind, proxy.url, node="me", settings=PATIENT) as shaky:
        await shaky.claim(name)
        proxy.lose_answers = 2
        nacked = await shaky.nack(name, [1], dead=True, reason="cannot be read")
        assert (nacked.count, nacked.skipped, nacked.repeated) == (0, [1], True)
    for _ in range(2):
        claimed = await client.claim(name)
        assert [job.seq for job in claimed.jobs] == [2]
        await client.nack(name, [2], delay_ms=0)
    assert [job.seq for job in (await client.claim(name, max_count=9)).jobs] == [3]
    await client.ack(name, [3])
    letters = (await client.diff(dead)).records
    assert [bytes(letter.data) for letter in letters] == [b'"rejected"', b'"crashing"']
    about = await client.topic(name)
    assert (about.count, about.queue.dead_lettered) == (0, 2)


async def test_fault_40_what_is_not_the_callers_is_skipped_and_writes_nothing(
    client: Both, kind: str, real: Running, name: str
) -> None:
    """Unknown, expired, foreign and used-up leases; refused as a whole where that was asked for."""
    await client.put_topic(name, type="queue")
    await client.produce(name, [1, 2, 3, 4])
    used = (await client.claim(name)).lease_id
    await client.ack(name, [1])
    old = (await client.claim(name, lease_ms=SHORT_MS)).lease_id
    async with make_client(kind, real.url, node="other") as other:
        assert await claim_all(other, name, 3) == {2: 2, 3: 1, 4: 1}
    not_ours = [(1, used), (2, old), (2, used), (3, "lease_ffffffffffff"), (4, None), (99, None)]
    async with Both(client.inner.events(name)) as events:
        watching = asyncio.ensure_future(events.next())
        while not watching.done():  # it sees what happens once it is open
            await client.produce(name, ["are you there?"])
        seen = [await watching]
        for seq, lease in not_ours:
            ids = None if lease is None else [lease]
            assert (await client.ack(name, [seq], lease_ids=ids)).skipped == [seq]
            assert (await client.nack(name, [seq], lease_ids=ids, reason="no")).skipped == [seq]
            assert (await client.extend(name, [seq], lease_ids=ids, lease_ms=90_000)).skipped == [seq]
        for seq, lease in ((2, old), (3, "lease_ffffffffffff"), (4, None)):
            with pytest.raises(LeaseLost) as caught:
                await client.ack(name, [seq], lease_ids=None if lease is None else [lease], strict=True)
            assert caught.value.detail["skipped"] == [seq]
        last = (await client.produce(name, ["the next event"])).first_seq
        while seen[-1].runs != [last, 1]:
            seen.append(await events.next())
    assert {event.event for event in seen} == {"produced"}
    leases = (await client.leases(name)).leases
    assert sorted(seq for lease in leases for seq in lease.seqs) == [2, 3, 4], "they are still the other's"
