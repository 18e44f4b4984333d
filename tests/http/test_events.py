"""The life of jobs as events: from now on, or from the last row seen, and never a gap in silence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import Broker, Settings
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.settings import ServerSettings
from tenure.http.streams.event_hub import Hub
from tenure.http.streams.outlet import Outlet
from tenure.testing.clock import ManualClock
from tests.http.conftest import Site
from tests.http.streaming import Listener, Reader, count_wakes
from tests.http.test_queues import Q, make, take
from tests.http.test_work import SSE
from tests.kit.brokers import turn


async def listen(site: Site, *, last_id: str | None = None) -> Listener:
    headers = SSE if last_id is None else SSE | {"last-event-id": last_id}
    reply = await site.get(f"{Q}/events", headers=headers)
    assert reply.status == 200, reply.raw
    stream = Listener(reply.response)
    assert [await stream.block(), await stream.block()] == ["retry: 2000", ": hb"]
    return stream


async def test_rows_come_as_they_happen_from_now_on(site: Site) -> None:
    await make(site, 1)
    stream = await listen(site)
    claim = await take(site, lease_ms=1000)
    await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "reason": "busy"})
    claimed, released = await stream.events(2)
    assert claimed["event"] == "claimed"
    assert claimed["data"] == {
        "event": "claimed",
        "topic": "transcode",
        "ts": site.clock.wall_ms(),
        "runs": [1, 1],
        "node": "w",
        "lease_id": claim["lease_id"],
        "deliveries": 1,
        "deadline": claim["claimed"][0]["deadline"],
    }
    assert (released["event"], released["data"]["reason"]) == ("released", "busy")
    assert claimed["id"] != released["id"]
    await stream.hang_up()


async def test_other_topics_are_not_told_here(site: Site) -> None:
    await make(site)
    await make(site, name="other")
    stream = await listen(site)
    await site.post("/v0/topics/other", {"records": [{"data": 1}]})
    await site.post(Q, {"records": [{"data": 1}]})
    assert (await stream.next())["data"]["topic"] == "transcode"
    await stream.hang_up()


async def test_fault_32_a_reader_goes_on_behind_the_last_row_it_saw(site: Site) -> None:
    await make(site)
    stream = await listen(site)
    for n in range(5):
        await site.post(Q, {"records": [{"data": n}]})
    seen = await stream.events(5)
    await stream.hang_up()
    await site.post(Q, {"records": [{"data": "meanwhile"}]})
    again = await listen(site, last_id=seen[2]["id"])
    rows = await again.events(3)
    assert [row["data"]["runs"] for row in rows] == [[4, 1], [5, 1], [6, 1]]
    assert rows[:2] == seen[3:], "the same rows with the same ids"
    await again.hang_up()


async def test_fault_32_a_reader_from_another_life_is_told_of_the_gap(site: Site) -> None:
    await make(site)
    stream = await listen(site, last_id="0badcafe-7")
    await site.post(Q, {"records": [{"data": 1}]})
    gap, produced = await stream.events(2)
    assert (gap["event"], gap["data"]) == ("gap", {"topic": "transcode", "reason": "restarted"})
    assert produced["event"] == "produced"
    await stream.hang_up()


async def test_fault_33_the_past_is_bounded_and_a_slow_reader_is_told_what_it_missed(
    broker: Broker, clock: ManualClock
) -> None:
    context = Context(broker)
    site = Site(App(context, ROUTES), broker, clock)
    await make(site)
    stream = await listen(site)
    hub = context.extras["streams"].events
    hub.backlog.bytes_max = 3000
    stream.room.clear()
    for n in range(100):
        await site.post(Q, {"records": [{"data": n}]})
    while hub.backlog.next <= 100:  # rows that follow each other closely are taken together
        await turn()
    assert hub.backlog.bytes <= 3000
    stream.room.set()
    events: list[dict[str, Any]] = []
    while not events or events[-1]["data"].get("runs") != [100, 1]:
        events.append(await stream.next())
    kinds = [event["event"] for event in events]
    assert kinds.count("gap") == 1
    gap = kinds.index("gap")
    assert events[gap]["data"]["reason"] == "overrun"
    told = [event["data"]["runs"][0] for event in events[gap + 1 :]]
    assert told == list(range(told[0], 101)), "no further gap behind it"
    await stream.hang_up()


async def test_rows_that_the_hub_itself_missed_are_a_gap_too(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(subscriber_events_max=3)) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        await make(site)
        stream = await listen(site)
        for n in range(10):
            broker.produce("transcode", [b"%d" % n])
        assert [event["event"] for event in await stream.events(4)] == ["produced"] * 3 + ["gap"]
        await broker.produce("transcode", [b"11"])
        assert (await stream.next())["data"]["runs"] == [11, 1]
        await stream.hang_up()


# One source, many readers


def all_names(name: str) -> bool:
    return True


def no_names(name: str) -> bool:
    return False


async def many(site: Site, count: int = 40) -> list[Listener]:
    streams = [await listen(site) for _ in range(count)]
    await turn()
    return streams


async def test_rows_for_many_readers_are_encoded_once_and_wake_no_task(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(site)
    streams = await many(site)
    woken = count_wakes(monkeypatch)
    for n in range(3):
        await site.post(Q, {"records": [{"data": n}]})
        assert [(await stream.next())["data"]["runs"] for stream in streams] == [[n + 1, 1]] * len(streams)
        assert len({id(stream.sent[-1]) for stream in streams}) == 1, "the same bytes, not equal ones"
    assert woken == []
    for stream in streams:
        await stream.hang_up()


async def test_a_reader_that_stalls_misses_nothing_and_holds_nobody_up(site: Site) -> None:
    await make(site)
    slow, *others = await many(site, 4)
    slow.room.clear()
    for n in range(300):
        site.broker.produce("transcode", [b"%d" % n])
    for stream in others:
        assert [row["data"]["runs"][0] for row in await stream.events(300)] == list(range(1, 301))
    slow.room.set()
    assert [row["data"]["runs"][0] for row in await slow.events(300)] == list(range(1, 301))
    await turn()
    await site.post(Q, {"records": [{"data": "level again"}]})
    assert [(await stream.next())["data"]["runs"] for stream in (slow, *others)] == [[301, 1]] * 4
    assert len({id(stream.sent[-1]) for stream in (slow, *others)}) == 1
    for stream in (slow, *others):
        await stream.hang_up()


async def test_a_mark_in_between_neither_repeats_nor_skips_a_row(broker: Broker, clock: ManualClock) -> None:
    context = Context(broker)
    site = Site(App(context, ROUTES), broker, clock)
    await make(site)
    streams = await many(site, 3)
    hub = context.extras["streams"].events
    for n in range(30):
        broker.produce("transcode", [b"%d" % n])
        if n % 3 == 0:
            hub.mark()
        if n % 7 == 0:
            await turn()
    for stream in streams:
        assert [row["data"]["runs"][0] for row in await stream.events(30)] == list(range(1, 31))
        await stream.hang_up()


async def test_fault_32_rows_of_other_topics_are_no_gap_for_a_reader_that_has_everything(
    broker: Broker, clock: ManualClock
) -> None:
    context = Context(broker)
    site = Site(App(context, ROUTES), broker, clock)
    await make(site)
    await make(site, name="busy")
    (stream,) = await many(site, 1)
    hub = context.extras["streams"].events
    hub.backlog.bytes_max = 3000
    for n in range(100):
        broker.produce("busy", [b"%d" % n])
    while hub.backlog.next <= 100:
        await turn()
    stream.room.clear()
    await site.post(Q, {"records": [{"data": 1}]})
    while hub.backlog.next <= 101:
        await turn()
    await turn()
    stream.room.set()
    assert (await stream.next())["event"] == "produced"
    await site.post(Q, {"records": [{"data": 2}]})
    assert (await stream.next())["event"] == "produced"
    await stream.hang_up()


async def test_readers_share_frames_only_with_those_that_may_see_the_same_names(broker: Broker) -> None:
    await broker.put_topic("q", {"type": "queue", "dead_letter": "d", "max_deliveries": 1})
    hub, peers = Hub(broker), [Reader() for _ in range(4)]
    places, waits = [], []
    for number, peer in enumerate(peers):
        outlet = Outlet(peer, heartbeat_ms=10_000, heartbeat=lambda: b"beat")
        places.append(hub.open("q", outlet, reaches=[all_names, no_names][number % 2]))
        waits.append(asyncio.ensure_future(outlet.wait()))
    await asyncio.sleep(0)
    await broker.produce("q", [b"1"])
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1])
    await broker.claim("q", node="w")  # which moves the job instead
    async with asyncio.timeout(20):
        while not all(any(b"dead_lettered" in one.data for one in peer.sent) for peer in peers):
            await asyncio.sleep(0.001)
    texts = [b"".join(one.data for one in peer.sent) for peer in peers]
    assert [b'"dest":"d"' in text for text in texts] == [True, False, True, False]
    assert texts[:2] == texts[2:]
    last = [peer.sent[-1] for peer in peers]
    assert last[0] is last[2]
    assert last[1] is last[3]
    for place, waiting in zip(places, waits, strict=True):
        place.outlet.wake()
        await waiting
        place.close()


async def test_rows_that_a_reader_has_read_by_itself_are_not_written_to_it_again(broker: Broker) -> None:
    await broker.put_topic("q", {"type": "queue"})
    hub, peer, rows = Hub(broker), Reader(), broker.events()
    outlet = Outlet(peer, heartbeat_ms=10_000, heartbeat=lambda: b"beat")
    place = hub.open("q", outlet)
    waiting = asyncio.ensure_future(outlet.wait())
    await asyncio.sleep(0)
    broker.produce("q", [b"1"])
    (fresh,) = hub._keep(rows.drain())
    assert len(place.take()) == 1
    fresh.give(place)
    assert peer.sent == []
    outlet.wake()
    await waiting
    place.close()
    rows.close()


async def test_the_hub_lets_go_once_nobody_came_back(broker: Broker) -> None:
    await broker.put_topic("q", {"type": "queue"})
    hub = Hub(broker, linger_s=0)
    outlet = Outlet(Reader(), heartbeat_ms=1000, heartbeat=lambda: b"")
    place = hub.open("q", outlet)
    assert broker._engine.listeners
    await broker.produce("q", [b"1"])
    await turn()
    (frame,) = place.take()
    place.close()
    while broker._engine.listeners:
        await asyncio.sleep(0)
    late = hub.open("q", outlet, after=hub.backlog.number_of(frame.split(b"\n")[0].removeprefix(b"id: ").decode()))
    (gap,) = late.take()
    assert b"event: gap" in gap
    late.close()


async def test_a_topic_that_is_gone_ends_the_stream(broker: Broker, clock: ManualClock) -> None:
    site = Site(App(Context(broker, settings=ServerSettings(heartbeat_ms=5)), ROUTES), broker, clock)
    await make(site)
    stream = await listen(site)
    await site.delete(Q)
    error = await stream.next()
    assert (error["event"], error["data"]["code"]) == ("error", 404)
    await stream.end()


async def test_a_closing_broker_ends_the_stream(clock: ManualClock) -> None:
    broker = await Broker.open(None, clock=clock)
    site = Site(App(Context(broker), ROUTES), broker, clock)
    await make(site)
    stream = await listen(site)
    await broker.close()
    assert (await stream.next())["data"]["code"] == 503
    await stream.end()


async def test_a_log_tells_what_was_produced(site: Site) -> None:
    await site.put("/v0/topics/transcode", {})
    stream = await listen(site)
    await site.post(Q, {"records": [{"data": 1}]})
    assert (await stream.next())["event"] == "produced"
    await stream.hang_up()


async def test_what_is_wrong_is_refused_at_the_opening(site: Site) -> None:
    await make(site)
    assert (await site.get("/v0/topics/absent/events", headers=SSE)).status == 404
    assert (await site.get(f"{Q}/events", headers={"accept": "text/html"})).status == 406


@pytest.mark.parametrize("last_id", ["x", "-1", "a-", "a-b", "a-" + "9" * 19, "a-١"])
async def test_an_id_that_is_none_is_refused(site: Site, last_id: str) -> None:
    await make(site)
    reply = await site.get(f"{Q}/events", headers=SSE | {"last-event-id": last_id})
    assert (reply.status, reply.code) == (400, "invalid_request")
