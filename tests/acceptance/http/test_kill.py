"""kill -9 of a real server under load from real clients, again and again: nothing lost, undone or unexpected."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tenure.testing import HistoryReport, check_history
from tests.acceptance.http.callers import Place
from tests.acceptance.http.load import LEASE_MS, QUEUES, Load
from tests.kit.restartable_server import SMALL_LOG, Serve, Serving

_DRAIN_LEASE_MS = 60_000


async def kill_often(server: Serving, load: Load, *, kills: int) -> int:
    """Start and kill, one life after the other; returns how many were killed before they could say where they are.

    A life lasts until some more answers were given, so that work is done in each on a machine of any speed; one in ten
    lasts until a checkpoint was made in it, which those after it recover from.
    """
    random, early = Random(kills), 0
    working = asyncio.create_task(load.run())
    for number in range(kills):
        known = _checkpoints(server) if number % 10 == 4 else None
        await asyncio.to_thread(server.spawn)
        if random.random() < 0.2 and known is None:
            early += 1
            await asyncio.sleep(random.random() * 0.4)
        else:
            load.place.moved(await asyncio.to_thread(server.wait_until_it_listens))
            goal = load.answered + random.randrange(10, 80)
            while load.answered < goal or known == _checkpoints(server):
                assert not working.done(), working.exception()
                await asyncio.sleep(0.001)
        assert server.process.poll() is None, "it died before it was killed"
        server.process.kill()
        load.place.gone()
        await asyncio.to_thread(server.wait)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    return early


def _checkpoints(server: Serving) -> set[str]:
    return {path.name for path in (server.home / "checkpoints").glob("*.checkpoint")}


def drain(server: Serving, load: Load) -> None:
    """Deliver and ack everything that is left, and note the dead letters."""
    history = load.history
    with server.client() as client:

        def post(path: str, body: dict[str, Any]) -> Any:
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        for topic in QUEUES:
            claim = {"node": "drain", "max": 500, "lease_ms": _DRAIN_LEASE_MS, "wait_ms": 2 * LEASE_MS}
            while client.get(f"/v0/topics/{topic}").json()["count"]:
                jobs = post(f"/v0/topics/{topic}/claim", claim)["claimed"]
                if not jobs:
                    continue
                load.delivered(topic, "drain", jobs, _DRAIN_LEASE_MS)
                seqs, lease = [job["$seq"] for job in jobs], jobs[0]["lease_id"]
                assert post(f"/v0/topics/{topic}/ack", {"node": "drain", "seqs": seqs})["acked"] == len(jobs)
                for job in jobs:
                    at = job["deadline"] - _DRAIN_LEASE_MS
                    history.ack(topic, job["$seq"], lease=lease, outcome="ok", at=at)
        if client.get("/v0/topics/dead").status_code == 200:
            cursor = 0
            while True:
                page = post("/v0/topics/dead/diff", {"from_seq": cursor, "limit": 1000})
                history.dead_letters(record["data"]["id"] for record in page["records"])
                cursor = page["next_from_seq"]
                if page["caught_up"]:
                    break


async def live(server: Serving, *, kills: int, seed: int) -> tuple[HistoryReport, Load, int]:
    server.start()
    for topic, config in QUEUES.items():
        server.ok("PUT", f"/v0/topics/{topic}", config)
    server.kill()
    load = Load(Place(), seed)
    early = await kill_often(server, load, kills=kills)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(drain, server, load)
    report = check_history(load.history)
    assert report.ok, str(report)
    return report, load, early


@pytest.mark.timeout(300)
async def test_faults_26_27_28_30_kills_under_load_lose_nothing_and_undo_nothing(serve: Serve) -> None:
    """Twenty-five lives on one directory, each killed under load, some before they listen. Requests whose answer was
    lost are repeated to the next life (26, 27, 28) or left unknown (30).
    """
    server = serve(settings=SMALL_LOG, start=False)
    report, load, early = await live(server, kills=25, seed=26)
    print(f"{report}; {load.answered} answers, {load.lost} lost, {load.repeated} repeated")
    assert report.produced > 1_000, str(report)
    assert report.acked > 500, str(report)
    assert early > 1
    assert load.lost > 25, "in every life requests were cut"
    assert load.repeated > 0, "some that were cut had been carried out"
    oldest = min(int(path.stem) for path in (server.home / "segments").glob("*.log"))
    assert oldest > 5, "segments were rolled and dropped on the way"
    assert _checkpoints(server)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
async def test_faults_26_27_28_30_many_more_kills(serve: Serve, seed: int) -> None:
    await live(serve(settings=SMALL_LOG, start=False), kills=150, seed=seed)
