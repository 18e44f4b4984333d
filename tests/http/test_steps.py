"""Requests that take more than one turn of the broker's loop: their response comes after the last step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tenure import Broker, Settings
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.wire.message import Request, Response
from tenure.http.wire.respond import carry_out
from tenure.testing.clock import ManualClock
from tests.http.conftest import Site

JOBS = 60


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    clock = ManualClock()
    settings = Settings(step_jobs_max=5, turn_ms_max=0)
    async with await Broker.open(None, clock=clock, settings=settings) as broker:
        yield Site(App(Context(broker), ROUTES), broker, clock)


async def test_a_delete_of_many_is_answered_after_its_last_step(site: Site) -> None:
    await site.broker.produce("log", [b"1"] * JOBS)
    request = Request("POST", "/v0/topics/log/delete", headers={"content-type": "application/json"})
    admission = site.app.admit(request)
    assert not isinstance(admission, Response)
    done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    pending = carry_out(admission, b'{"before_seq": 60}', done.set_result)
    assert not isinstance(pending, Response), "the first turn does not end it"
    assert b'"deleted":59' in (await asyncio.wait_for(done, 30)).body
    assert site.broker.topic("log").count == 1


async def test_an_ack_waits_for_a_queue_whose_leases_ran_out_together(site: Site) -> None:
    await site.broker.put_topic("q", {"type": "queue", "lease_ms": 1_000})
    await site.broker.produce("q", [b"1"] * (JOBS + 1))
    alive = await site.broker.claim("q", node="w", lease_ms=60_000)
    for _ in range(JOBS):
        await site.broker.claim("q", node="dies")
    site.clock.advance(1_001)
    reply = await site.post("/v0/topics/q/ack", {"node": "w", "seqs": alive.seqs})
    assert (reply.status, reply["skipped"]) == (200, [])


async def test_a_claim_waits_for_a_queue_whose_leases_ran_out_together(site: Site) -> None:
    await site.broker.put_topic("q", {"type": "queue", "lease_ms": 1_000})
    await site.broker.produce("q", [b"1"] * JOBS)
    for _ in range(JOBS):
        await site.broker.claim("q", node="dies")
    site.clock.advance(1_001)
    reply = await site.post("/v0/topics/q/claim", {"node": "w", "max": JOBS})
    assert (reply.status, len(reply["claimed"])) == (200, JOBS)
