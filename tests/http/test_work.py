"""The work stream: jobs that are pushed to a worker, and what becomes of its jobs when the peer is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenure import Broker, Settings
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.settings import ServerSettings
from tenure.testing.clock import ManualClock
from tests.http.conftest import Site
from tests.http.streaming import Listener, gatekeeper, parse
from tests.http.test_queues import Q, make
from tests.kit.brokers import numbers, turn

SSE = {"accept": "text/event-stream"}


async def listen(site: Site, query: str = "node=w", *, headers: dict[str, str] | None = None) -> Listener:
    reply = await site.get(f"{Q}/work?{query}", headers=SSE | (headers or {}))
    assert reply.status == 200, reply.raw
    return Listener(reply.response)


@pytest.fixture
def beating(broker: Broker, clock: ManualClock) -> Site:
    """A site whose quiet streams beat every few milliseconds."""
    return Site(App(Context(broker, settings=ServerSettings(heartbeat_ms=5)), ROUTES), broker, clock)


async def test_a_stream_opens_with_retry_and_a_heartbeat(site: Site) -> None:
    await make(site)
    reply = await site.get(f"{Q}/work?node=w", headers=SSE)
    assert reply.response.content_type == b"text/event-stream"
    assert reply.headers == {b"x-accel-buffering": b"no"}
    stream = Listener(reply.response)
    assert [await stream.block(), await stream.block()] == ["retry: 2000", ": hb"]
    await stream.hang_up()


async def test_a_job_reaches_a_stream_that_waits_one_turn_after_its_put(site: Site) -> None:
    """In it the claim is written, and then its frame: no task waits for another in between."""
    await make(site)
    stream = await listen(site)
    await stream.block()
    await turn()
    sent = len(stream.sent)
    site.broker.produce("transcode", [b"1"])
    turns = 0
    while len(stream.sent) == sent:
        await asyncio.sleep(0)
        turns += 1
    assert turns <= 1
    await stream.hang_up()


async def test_a_job_is_a_frame_as_the_seed_shows(site: Site) -> None:
    await make(site, {"data": {"src": "clip"}, "tag": "clip-8800"}, {"data": 2, "meta": {"m": 1}})
    stream = await listen(site, "node=w&max=2&lease_ms=5000")
    first, second = await stream.events(2)
    now = site.clock.wall_ms()
    assert first == {
        "id": "1",
        "event": "job",
        "data": {
            "topic": "transcode",
            "$seq": 1,
            "lease_id": first["data"]["lease_id"],
            "deadline": now + 5000,
            "$ts": now,
            "$tag": "clip-8800",
            "deliveries": 1,
            "data": {"src": "clip"},
        },
    }
    assert (second["id"], second["data"]["meta"]) == ("2", {"m": 1})
    await stream.hang_up()


async def test_data_that_is_laid_out_over_lines_stays_one_frame(site: Site) -> None:
    await make(site)
    await site.post(Q, b'{"records":[{"data":{"a":\n1,\r\n"b":\r"\\n",\n\n"event: x":2}}]}')
    stream = await listen(site)
    frame = parse(await _job_block(stream))
    assert frame["data"]["data"] == {"a": 1, "b": "\n", "event: x": 2}
    await stream.hang_up()


async def _job_block(stream: Listener) -> str:
    while "event: job" not in (block := await stream.block()):
        pass
    return block


async def test_the_stream_holds_at_most_max_and_is_fed_as_the_worker_settles(site: Site) -> None:
    await make(site, *range(10))
    stream = await listen(site, "node=w&max=3")
    assert [event["id"] for event in await stream.events(3)] == ["1", "2", "3"]
    await turn()
    assert stream.waiting
    assert numbers(site.broker, "transcode")["in_flight"] == 3
    await site.post(f"{Q}/ack", {"node": "w", "seqs": [2]})
    assert (await stream.next())["id"] == "4"
    await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "delay_ms": 60_000})
    assert (await stream.next())["id"] == "5"
    await turn()
    assert stream.waiting
    await stream.hang_up()


async def test_a_job_comes_as_soon_as_it_is_produced(site: Site) -> None:
    await make(site)
    stream = await listen(site)
    await turn()
    await site.post(Q, {"records": [{"data": "now"}]})
    assert (await stream.next())["data"]["data"] == "now"
    await stream.hang_up()


async def test_fault_38_a_worker_that_hangs_up_gives_its_jobs_back_at_once_and_no_others(site: Site) -> None:
    await make(site, 1, 2, 3)
    await site.post(f"{Q}/claim", {"node": "w"})
    stream = await listen(site, "node=w&max=2")
    await stream.events(2)
    assert numbers(site.broker, "transcode")["in_flight"] == 3
    await stream.hang_up()
    assert numbers(site.broker, "transcode")["in_flight"] == 1, "what was polled for is still held"
    claim = await site.post(f"{Q}/claim", {"node": "v", "max": 9})
    assert [(job["$seq"], job["deliveries"]) for job in claim["claimed"]] == [(2, 2), (3, 2)]


async def test_a_node_ends_its_streams_and_keeps_its_jobs(site: Site) -> None:
    await make(site, 1, 2)
    stream = await listen(site, "node=w&max=1")
    await stream.events(1)
    ended = await site.delete(f"{Q}/work?node=w")
    assert (ended["topic"], ended["streams"]) == ("transcode", 1)
    await stream.end()
    assert numbers(site.broker, "transcode")["in_flight"] == 1
    assert (await site.delete(f"{Q}/work?node=w"))["streams"] == 0
    assert (await site.delete(f"{Q}/work")).code == "invalid_request"
    assert (await site.delete("/v0/topics/nowhere/work?node=w")).code == "topic_not_found"


async def test_fault_31_a_peer_found_gone_by_a_heartbeat_gives_its_jobs_back(beating: Site) -> None:
    await make(beating, 1, 2)
    stream = await listen(beating, "node=w&max=2")
    await stream.events(2)
    await stream.break_off()
    with pytest.raises(ConnectionResetError):
        await stream.end()
    assert numbers(beating.broker, "transcode") | {"ready": 2, "in_flight": 0} == numbers(beating.broker, "transcode")


async def test_a_quiet_stream_beats_and_a_busy_one_does_not(beating: Site, site: Site) -> None:
    await make(beating)
    stream = await listen(beating)
    assert [await stream.block() for _ in range(4)] == ["retry: 2000", ": hb", ": hb", ": hb"]
    await stream.hang_up()
    await site.post(Q, {"records": [{"data": n} for n in range(3)]})
    stream = await listen(site, "node=w&max=3")
    await stream.events(3)
    assert b"".join(stream.sent).count(b": hb") == 1, "the one at the opening"
    await stream.hang_up()


async def test_fault_33_a_slow_reader_is_claimed_for_no_further_than_its_depth(site: Site) -> None:
    await make(site, *range(50))
    stream = await listen(site, "node=w&max=4")
    stream.room.clear()
    await turn()
    await site.post(f"{Q}/ack", {"node": "w", "seqs": [1, 2, 3, 4]})
    await turn()
    assert numbers(site.broker, "transcode")["in_flight"] <= 4
    assert stream.sent == []
    await stream.hang_up()
    assert numbers(site.broker, "transcode")["in_flight"] == 0


async def test_nothing_is_leased_before_the_peer_listens(site: Site) -> None:
    await make(site, 1)
    reply = await site.get(f"{Q}/work?node=w", headers=SSE)
    assert reply.response.stream is not None
    assert numbers(site.broker, "transcode")["in_flight"] == 0
    head = await site.call("HEAD", f"{Q}/work?node=w", headers=SSE)
    assert (head.status, head.response.stream, head.response.content_type) == (200, None, b"text/event-stream")


async def test_a_deleted_queue_ends_the_stream_with_an_error(site: Site) -> None:
    await make(site, 1)
    stream = await listen(site)
    await stream.next()
    await site.delete(Q)
    error = await stream.next()
    assert (error["event"], error["data"]["code"], error["data"]["error"]) == ("error", 404, "topic_not_found")
    assert "id" not in error
    await stream.end()


async def test_a_queue_that_came_back_as_a_log_ends_the_stream_with_409(site: Site) -> None:
    await make(site)
    stream = await listen(site)
    await turn()
    site.broker.delete_topic("transcode")
    site.broker.put_topic("transcode", {"type": "log"})
    error = await stream.next()
    assert (error["data"]["code"], error["data"]["error"]) == (409, "not_a_queue")
    await stream.end()


async def test_fault_37_a_closing_broker_ends_the_stream_with_503(clock: ManualClock) -> None:
    broker = await Broker.open(None, clock=clock)
    site = Site(App(Context(broker), ROUTES), broker, clock)
    await make(site)
    stream = await listen(site)
    await turn()
    await broker.close()
    error = await stream.next()
    assert (error["data"]["code"], error["data"]["error"]) == (503, "shutting_down")
    await stream.end()


async def test_fault_49_too_many_that_wait_are_told_in_the_stream(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(waiters_max=1)) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        await make(site)
        first = await listen(site)
        await turn()
        second = await listen(site)
        error = await second.next()
        assert (error["data"]["code"], error["data"]["detail"]["limit"]) == (429, "waiters_max")
        assert "raise the broker's setting waiters_max" in error["data"]["message"]
        await second.end()
        await first.hang_up()


@pytest.mark.parametrize(
    ("query", "accept", "status", "code"),
    [
        ("", "text/event-stream", 400, "invalid_request"),
        ("node=", "text/event-stream", 400, "invalid_request"),
        ("node=w&max=x", "text/event-stream", 400, "invalid_request"),
        ("node=w&max=-1", "text/event-stream", 400, "invalid_request"),
        ("node=w&lease_ms=x", "text/event-stream", 400, "invalid_request"),
        ("node=%ff", "text/event-stream", 400, "invalid_request"),
        ("node=w", "application/json", 406, "not_acceptable"),
        ("node=w", "text/html, text/event-stream;q=0", 406, "not_acceptable"),
        ("", "*/*", 406, "not_acceptable"),
    ],
)
async def test_what_is_wrong_is_refused_at_the_opening(
    site: Site, query: str, accept: str, status: int, code: str
) -> None:
    await make(site)
    reply = await site.get(f"{Q}/work?{query}", headers={"accept": accept})
    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize("accept", [None, "", "*/*", "text/*", "text/html, */*;q=0.8", "text/event-streams"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_stream_that_is_not_asked_for_by_name_is_refused_and_leases_nothing(
    site: Site, method: str, accept: str | None
) -> None:
    """A prober, a link preview and a plain curl send these."""
    await make(site, 1)
    watch = await site.post("/v0/watch", {"topics": {"transcode": {}}})
    headers = {} if accept is None else {"accept": accept}
    before = site.state()
    for target in (f"{Q}/work?node=w", f"{Q}/events", watch["stream_url"]):
        reply = await site.call(method, target, headers=headers)
        assert (reply.status, reply.code, reply.response.stream) == (406, "not_acceptable", None)
        assert "Accept: text/event-stream" in reply["error"]["message"]
    assert site.state() == before
    assert (await site.get(Q))["queue"]["ready"] == 1


@pytest.mark.parametrize("accept", ["TEXT/Event-Stream; charset=utf-8", "a/b;q=1, text/event-stream;q=0.1"])
async def test_a_stream_may_be_asked_for_among_others(site: Site, accept: str) -> None:
    await make(site)
    assert (await site.get(f"{Q}/work?node=w", headers={"accept": accept})).status == 200


async def test_a_log_and_an_absent_queue_are_refused(site: Site) -> None:
    await site.put("/v0/topics/log", {})
    assert (await site.get("/v0/topics/log/work?node=w", headers=SSE)).code == "not_a_queue"
    assert (await site.get("/v0/topics/absent/work?node=w", headers=SSE)).code == "topic_not_found"


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("r", 403), ("w", 403), ("rw", 200), ("far", 403)])
async def test_fault_46_a_stream_needs_read_and_write(
    make_site: Callable[..., Site], key: str | None, status: int
) -> None:
    keeper = gatekeeper("r:r,w:w,rw:rw,far:rw:other.")
    await make(make_site())
    site = make_site(admit=keeper.admit, track=keeper.track)
    headers: dict[str, Any] = SSE | ({} if key is None else {"authorization": f"Bearer {key}"})
    assert (await site.get(f"{Q}/work?node=w", headers=headers)).status == status
    if key is not None:
        assert (await site.get(f"{Q}/work?node=w&token={key}", headers=SSE)).status == status
