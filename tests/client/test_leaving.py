"""Leaving a ``with`` of a lease: the requests, their number, and the time that they may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

from tenure.client import Claimed, ClientSettings, Job, WireError
from tenure.client.lease.plans import Leased, settle_on_exit
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Send, Sleep, Step
from tests.client.both_clients import Both, make_client

LOST = WireError("reset", sent=True)
CLAIMED = (
    b'{"topic":"q","claimed":[{"$seq":1,"lease_id":"l","deadline":9,"$ts":1,"deliveries":1,"data":1}],'
    b'"count":1,"ready":0,"lease_id":"l"}'
)


class Interrupt(BaseException):
    """As a KeyboardInterrupt, which asyncio would take for its own."""


def lease() -> Leased[Any]:
    jobs = [Job(seq, Raw(b"1"), lease_id="l") for seq in (1, 2)]
    return Leased(Session(node="n"), Claimed("q", jobs, lease_id="l"), node="n", type=Any)


def steps(error: BaseException | None) -> list[Step]:
    """The first ten steps of leaving with an error while no answer comes."""
    plan = settle_on_exit(lease(), error)
    taken: list[Step] = []
    step = next(plan)
    try:
        while len(taken) < 10:
            taken.append(step)
            step = plan.throw(LOST) if isinstance(step, Send) else plan.send(None)
    except StopIteration:
        pass
    return taken


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
def test_a_cancelled_or_interrupted_block_gives_back_by_one_short_attempt(error: BaseException) -> None:
    (step,) = steps(error)
    assert isinstance(step, Send)
    assert step.request.path == "/v0/topics/q/nack"
    assert json.loads(step.request.body or b"") == {"node": "n", "seqs": [1, 2], "lease_id": "l"}
    assert step.request.step_ms_max == ClientSettings().leave_ms


def test_a_block_that_raises_retries_as_any_call() -> None:
    assert {type(step) for step in steps(RuntimeError("no luck"))} == {Send, Sleep}


@pytest.fixture
async def hanging() -> AsyncIterator[str]:
    """A server that answers a claim and then nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if b"/claim " in await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(CLAIMED), CLAIMED))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.transport.abort()
    server.close()
    await server.wait_closed()


async def test_leaving_is_not_held_up_by_a_server_that_says_nothing(kind: str, hanging: str) -> None:
    settings = ClientSettings(leave_ms=50, answer_ms=3_600_000)
    async with make_client(kind, hanging, settings=settings) as client:
        lease = await Both(client.inner.queue("q")).claim()

        async def leaving() -> None:
            with pytest.raises(Interrupt):
                async with Both(lease):
                    raise Interrupt

        await asyncio.wait_for(leaving(), 60)
        assert lease.held == []


async def test_a_cancelled_block_ends_although_the_server_says_nothing(hanging: str) -> None:
    settings = ClientSettings(leave_ms=50, answer_ms=3_600_000)
    async with make_client("async", hanging, settings=settings) as client:
        begun = asyncio.Event()

        async def work() -> None:
            async with await client.inner.queue("q").claim():
                begun.set()
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await begun.wait()
        working.cancel()
        await asyncio.wait({working}, timeout=60)
        assert working.cancelled()
