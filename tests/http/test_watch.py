"""Watch sessions: many topics on one stream, resumed without a gap, bounded for a slow reader."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tenure import Broker, Settings
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.settings import ServerSettings
from tenure.http.streams.watch import Following, Sessions
from tenure.http.streams.watch_portion import Portion
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.http.conftest import Reply, Site
from tests.http.streaming import Listener, gatekeeper
from tests.http.test_work import SSE
from tests.kit.brokers import GatedLog, turn


async def write(site: Site, topic: str, *data: Any, **fields: Any) -> None:
    body = {"records": [{"data": one, **fields} for one in data]}
    assert (await site.post(f"/v0/topics/{topic}", body)).status in (200, 201)


async def watch(site: Site, **body: Any) -> Reply:
    reply = await site.post("/v0/watch", {"topics": {"a": {}}, **body})
    assert reply.status == 200, reply.raw
    return reply


async def listen(site: Site, session: Reply, *, last_id: str | None = None) -> Listener:
    headers = SSE if last_id is None else SSE | {"last-event-id": last_id}
    reply = await site.get(session["stream_url"], headers=headers)
    assert reply.status == 200, reply.raw
    return Listener(reply.response)


def cursors(frame: dict[str, Any]) -> dict[str, int]:
    text = frame["id"]
    found: dict[str, int] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def encoded(cursors: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursors).encode()).rstrip(b"=").decode()


def seqs(frame: dict[str, Any]) -> list[int]:
    assert frame["event"] == "record", frame
    return [record["$seq"] for record in frame["data"]["records"]]


# Beginning


async def test_a_session_answers_where_it_begins(site: Site) -> None:
    await write(site, "a", 1, 2, 3)
    await write(site, "b", 1)
    session = await watch(site, topics={"a": {"from_seq": 2}, "b": {"tail": True}})
    assert len(base64.urlsafe_b64decode(session["wid"].removeprefix("wid_") + "==")) >= 16
    assert session["stream_url"] == f"/v0/watch/{session['wid']}"
    assert session["session_ttl_ms"] == 300_000
    assert session["topics"] == {
        "a": {"from_seq": 2, "head_seq": 3, "earliest_seq": 1},
        "b": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1},
    }
    assert (await watch(site))["wid"] != session["wid"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": []},
        {"topics": {"..": {}}},
        {"topics": {"a": 1}},
        {"topics": {"a": {"from_seq": -1}}},
        {"topics": {"a": {"from_seq": 2**64}}},
        {"topics": {"a": {"tail": 1}}},
        {"topics": {f"t{n}": {} for n in range(257)}},
        {"topics": {"a": {}}, "node": ""},
        {"topics": {"a": {}}, "node": ["x" * 129]},
        {"topics": {"a": {}}, "limit": -1},
        {"topics": {"a": {}}, "limit": "1"},
        {"topics": {"a": {}}, "heartbeat_ms": "x"},
        {"topics": {"a": {}}, "include_data": 1},
        {"topics": {"a": {}}, "consistency": "linear"},
    ],
)
async def test_fault_48_a_bad_subscription_is_refused(site: Site, body: dict[str, Any]) -> None:
    await write(site, "a", 1)
    reply = await site.post("/v0/watch", body)
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_unknown_topics_are_refused_or_left_out(site: Site) -> None:
    await write(site, "a", 1)
    body: dict[str, Any] = {"topics": {"a": {}, "absent": {}}}
    refused = await site.post("/v0/watch", body)
    assert (refused.status, refused.code) == (404, "topic_not_found")
    lenient = await site.post("/v0/watch?lenient=true", body)
    assert list(lenient["topics"]) == ["a"]


async def test_an_unknown_session_and_another_accept_are_refused(site: Site) -> None:
    await write(site, "a", 1)
    unknown = await site.get("/v0/watch/wid_x", headers=SSE)
    assert (unknown.status, unknown.code) == (404, "not_found")
    session = await watch(site)
    other = await site.get(session["stream_url"], headers={"accept": "application/json"})
    assert (other.status, other.code) == (406, "not_acceptable")


# The stream


async def test_what_is_there_comes_first_and_then_what_comes(site: Site) -> None:
    await write(site, "a", 1, 2)
    stream = await listen(site, await watch(site))
    assert await stream.block() == "retry: 2000"
    record = await stream.next()
    now = site.clock.wall_ms()
    assert record["data"] == {
        "topic": "a",
        "records": [{"$seq": 1, "$ts": now, "data": 1}, {"$seq": 2, "$ts": now, "data": 2}],
        "from_seq": 0,
        "to_seq": 2,
        "head_seq": 2,
    }
    assert cursors(record) == {"a": 2}
    caught_up = await stream.next()
    assert (caught_up["event"], caught_up["data"]) == ("caught-up", {"topic": "a", "head_seq": 2})
    await write(site, "a", 3)
    live = await stream.next()
    assert (seqs(live), live["data"]["from_seq"], live["data"]["to_seq"]) == ([3], 2, 3)
    await turn()
    assert stream.waiting, "it never fell behind, so it does not catch up again"
    await stream.hang_up()


async def test_many_topics_share_a_stream_and_every_id_holds_them_all(site: Site) -> None:
    await write(site, "a", 1)
    await write(site, "b", *range(5))
    stream = await listen(site, await watch(site, topics={"a": {}, "b": {"from_seq": 3}}))
    frames = await stream.events(4)
    assert {frame["data"]["topic"] for frame in frames} == {"a", "b"}
    assert cursors(frames[-1]) == {"a": 1, "b": 5}
    await write(site, "b", "x")
    await write(site, "a", "y")
    assert sorted((frame["data"]["topic"], seqs(frame)) for frame in await stream.events(2)) == [("a", [2]), ("b", [6])]
    await stream.hang_up()


async def test_batches_are_bounded_by_records_and_by_bytes(site: Site) -> None:
    await write(site, "a", *("x" * 98 for _ in range(10)))
    stream = await listen(site, await watch(site, limit=4))
    assert [seqs(frame) for frame in await stream.events(3)] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    await stream.hang_up()
    stream = await listen(site, await watch(site, max_batch_bytes=250))
    assert [seqs(frame) for frame in await stream.events(5)] == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    assert (await stream.next())["event"] == "caught-up"
    await stream.hang_up()
    stream = await listen(site, await watch(site, max_batch_bytes=1, limit=0))
    assert seqs(await stream.next()) == [1], "at least one"
    await stream.hang_up()


async def test_catching_up_is_told_again_after_falling_behind(site: Site) -> None:
    await write(site, "a", 1)
    stream = await listen(site, await watch(site, limit=2))
    assert [frame["event"] for frame in await stream.events(2)] == ["record", "caught-up"]
    await write(site, "a", 2, 3, 4)
    assert [frame["event"] for frame in await stream.events(3)] == ["record", "record", "caught-up"]
    await stream.hang_up()


async def test_what_to_include_is_the_readers_choice(site: Site) -> None:
    await write(site, "a", {"k": 1}, tag="t", node="n", meta={"m": 1})
    full = {"$seq": 1, "$ts": site.clock.wall_ms(), "$node": "n", "$tag": "t", "data": {"k": 1}, "meta": {"m": 1}}
    for options, missing in [
        ({}, {"$tag"}),
        ({"include_tags": True}, set()),
        ({"include_tags": True, "include_meta": False}, {"meta"}),
        ({"include_data": False}, {"data", "$tag"}),
    ]:
        stream = await listen(site, await watch(site, **options))
        (record,) = (await stream.next())["data"]["records"]
        assert record == {name: value for name, value in full.items() if name not in missing}
        await stream.hang_up()


@pytest.mark.parametrize("node", ["me", ["me", "nobody"]])
async def test_a_nodes_own_records_are_left_out_and_still_move_it_on(site: Site, node: str | list[str]) -> None:
    await write(site, "a", 1, node="me")
    await write(site, "a", 2, node="you")
    await write(site, "a", 3, node="me")
    stream = await listen(site, await watch(site, node=node))
    record, caught_up = await stream.events(2)
    assert (seqs(record), record["data"]["to_seq"]) == ([2], 3)
    assert cursors(caught_up) == {"a": 3}
    await write(site, "a", 4, node="me")
    await turn()
    assert stream.waiting
    await write(site, "a", 5, node="you")
    assert seqs(await stream.next()) == [5]
    await stream.hang_up()


async def test_a_queue_can_be_watched_without_touching_its_jobs(site: Site) -> None:
    await site.put("/v0/topics/a", {"type": "queue"})
    await write(site, "a", 1)
    stream = await listen(site, await watch(site))
    assert seqs(await stream.next()) == [1]
    assert (await site.get("/v0/topics/a"))["queue"]["ready"] == 1
    await stream.hang_up()


async def test_loss_is_told_before_what_is_left(site: Site) -> None:
    await site.put("/v0/topics/a", {"cap_records": 2})
    await write(site, "a", 1, 2, 3, 4, 5)
    stream = await listen(site, await watch(site))
    gap, record = await stream.events(2)
    assert (gap["event"], gap["data"]) == (
        "tombstone",
        {
            "topic": "a",
            "reason": "cap",
            "gap_from": 1,
            "gap_to": 3,
            "missed_estimate": 3,
            "earliest_seq": 4,
            "head_seq": 5,
        },
    )
    assert cursors(gap) == {"a": 3}, "resuming behind it is right"
    assert seqs(record) == [4, 5]
    await stream.hang_up()


async def test_records_that_cannot_be_read_are_told_and_the_rest_is_delivered(clock: ManualClock) -> None:
    """Faults 14, 32: a gap is an explicit tombstone; the records on both sides of it and other topics go on."""
    disk = SimDisk(1)
    async with await Broker.open(disk, clock=clock, settings=Settings(frame_cache_bytes=1)) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        for data in (1, "decays", 3):
            await write(site, "a", data)
        for _ in range(12):  # pushes what was just appended out of memory
            await broker.produce("other", [b"." * 1024] * 500)
        name = "segments/0000000001.log"
        disk.flip_bit(name, disk.content(name).index(b"decays") * 8)
        stream = await listen(site, await watch(site))
        first, gap, rest, caught_up = await stream.events(4)
        assert (seqs(first), seqs(rest)) == ([1], [3])
        assert (gap["event"], gap["data"]["reason"]) == ("tombstone", "unreadable")
        assert (gap["data"]["gap_from"], gap["data"]["gap_to"]) == (2, 2)
        assert cursors(gap) == {"a": 2}, "resuming behind it is right"
        assert caught_up["event"] == "caught-up"
        await stream.hang_up()


async def test_a_tombstone_is_told_once_even_where_leased_jobs_outlived_it(site: Site) -> None:
    await site.put("/v0/topics/a", {"type": "queue", "cap_records": 3})
    await write(site, "a", 1, 2)
    await site.post("/v0/topics/a/claim", {"node": "w", "max": 2})
    await write(site, "a", 3, 4, 5, 6)
    stream = await listen(site, await watch(site, limit=1))
    events: list[dict[str, Any]] = []
    while not events or events[-1]["event"] != "caught-up":
        events.append(await stream.next())
    assert [event["event"] for event in events].count("tombstone") == 1
    delivered = [seq for event in events if event["event"] == "record" for seq in seqs(event)]
    assert delivered == sorted(set(delivered))
    assert {1, 2, 6} <= set(delivered)
    await stream.hang_up()


async def test_a_topic_that_was_recreated_is_read_from_its_start(site: Site) -> None:
    await write(site, "a", 1, 2, 3)
    session = await watch(site, topics={"a": {"tail": True}})
    await site.delete("/v0/topics/a")
    await write(site, "a", "new")
    stream = await listen(site, session)
    gap, record = await stream.events(2)
    assert (gap["data"]["reason"], seqs(record)) == ("recreated", [1])
    await stream.hang_up()


async def test_a_deleted_topic_is_told_and_the_others_go_on(site: Site) -> None:
    await write(site, "a", 1)
    await write(site, "b", 1)
    stream = await listen(site, await watch(site, topics={"a": {"tail": True}, "b": {"tail": True}}))
    await stream.events(2)
    await site.delete("/v0/topics/a")
    gone = await stream.next()
    assert (gone["event"], gone["data"]) == ("topic-deleted", {"topic": "a", "head_seq": 1, "reason": "deleted"})
    await write(site, "a", "not mine any more")
    await write(site, "b", 2)
    record = await stream.next()
    assert (record["data"]["topic"], cursors(record)) == ("b", {"b": 2})
    await stream.hang_up()


async def test_a_topic_deleted_and_recreated_in_one_turn_is_still_told_as_deleted(site: Site) -> None:
    await write(site, "a", 1)
    stream = await listen(site, await watch(site))
    await stream.events(2)
    await turn()
    site.broker.delete_topic("a")
    site.broker.produce("a", [b"1", b"2"])
    assert (await stream.next())["event"] == "topic-deleted"
    await stream.hang_up()


async def test_heartbeats_come_only_when_nothing_else_does(broker: Broker, clock: ManualClock) -> None:
    site = Site(App(Context(broker, settings=ServerSettings(heartbeat_ms=5)), ROUTES), broker, clock)
    await write(site, "a", 1)
    stream = await listen(site, await watch(site))
    await stream.events(2)
    beats = [await stream.block() for _ in range(3)]
    assert all(beat.startswith(": hb ") and beat[5:].isdigit() for beat in beats)
    await stream.hang_up()


@pytest.mark.parametrize(("asked", "got"), [(1, 1000), (5000, 5000), (10**9, 60_000), (None, 15_000)])
async def test_the_heartbeat_is_clamped(broker: Broker, clock: ManualClock, asked: int | None, got: int) -> None:
    context = Context(broker)
    site = Site(App(context, ROUTES), broker, clock)
    await write(site, "a", 1)
    session = await watch(site, heartbeat_ms=asked)
    kept = context.extras["streams"].sessions.find(session["wid"], owner="")
    assert kept.following.heartbeat_ms == got


# Resuming


async def test_fault_32_a_session_goes_on_where_it_was_left(site: Site) -> None:
    await write(site, "a", 1, 2)
    session = await watch(site)
    stream = await listen(site, session)
    await stream.events(2)
    await stream.hang_up()
    await write(site, "a", 3)
    stream = await listen(site, session)
    assert seqs(await stream.next()) == [3]
    await stream.hang_up()


async def test_fault_32_last_event_id_rewinds_and_never_advances(site: Site) -> None:
    await write(site, "a", *range(6))
    session = await watch(site, limit=2)
    stream = await listen(site, session)
    first = await stream.next()
    await stream.events(3)
    await stream.hang_up()
    stream = await listen(site, session, last_id=first["id"])
    assert seqs(await stream.next()) == [3, 4], "what was flushed and not processed comes again"
    await stream.hang_up()
    await write(site, "a", 6)
    stream = await listen(site, session, last_id=encoded({"a": 99, "stranger": 1}))
    record = await stream.next()
    assert (seqs(record), cursors(record)) == ([7], {"a": 7}), "and nothing is skipped"
    await stream.hang_up()


async def test_what_the_reader_did_not_take_comes_again(site: Site) -> None:
    await write(site, "a", 1, 2)
    session = await watch(site)
    stream = await listen(site, session)
    stream.room.clear()
    await turn()
    await stream.hang_up()
    assert stream.sent == []
    stream = await listen(site, session)
    assert seqs(await stream.next()) == [1, 2]
    await stream.hang_up()


@pytest.mark.parametrize("last_id", ["!", "e30=x", "bm9uc2Vuc2U", encoded({"a": -1}), encoded({"a": "x"}), "WzFd"])  # type: ignore[dict-item]
async def test_an_id_that_was_on_no_frame_is_refused(site: Site, last_id: str) -> None:
    await write(site, "a", 1)
    session = await watch(site)
    reply = await site.get(session["stream_url"], headers=SSE | {"last-event-id": last_id})
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_fault_31_a_second_connection_takes_the_place_of_one_that_is_half_open(site: Site) -> None:
    await write(site, "a", 1)
    session = await watch(site)
    old = await listen(site, session)
    await old.events(2)
    new = await listen(site, session)
    await old.end()
    await write(site, "a", 2)
    assert (await new.next())["event"] == "caught-up"
    assert seqs(await new.next()) == [2]
    await new.hang_up()


async def test_no_waiter_is_left_behind(site: Site) -> None:
    await write(site, "a", 1)
    stream = await listen(site, await watch(site))
    await stream.events(2)
    await turn()
    assert site.broker._serving.lines._reads
    await stream.hang_up()
    await turn()
    assert not site.broker._serving.lines._reads


# Bounds


async def test_fault_33_a_slow_reader_costs_one_batch_and_gets_larger_ones(site: Site) -> None:
    await write(site, "a", 0)
    stream = await listen(site, await watch(site, limit=10))
    await stream.events(2)
    await turn()
    stream.room.clear()
    for n in range(30):
        await write(site, "a", n)
    await turn()
    sent = len(stream.sent)
    stream.room.set()
    batches: list[list[int]] = []
    while sum(map(len, batches)) < 30:
        frame = await stream.next()
        if frame["event"] == "record":
            batches.append(seqs(frame))
    assert [seq for batch in batches for seq in batch] == list(range(2, 32))
    assert max(map(len, batches)) == 10
    assert len(stream.sent) - sent < 10
    await stream.hang_up()


async def test_fault_49_sessions_are_capped_and_idle_ones_make_room() -> None:
    now = 0.0
    sessions = Sessions(sessions_max=2, ttl_ms=60_000, now_s=lambda: now)
    following = Following(
        nodes=None,
        limit=1,
        batch_bytes_max=1,
        heartbeat_ms=1,
        include_meta=True,
        include_tags=True,
        include_data=True,
        strong=False,
    )

    def create() -> Any:
        return sessions.create(owner="", following=following, cursors={})

    kept, idle = create(), create()
    sessions.attach(kept)
    with pytest.raises(Exception, match="watch sessions") as refused:
        create()
    assert refused.value.code == "throttled"  # type: ignore[attr-defined]
    now = 60.1
    create()
    with pytest.raises(Exception, match="given up"):
        sessions.find(idle.wid, owner="")
    now = 100_000.0
    assert sessions.find(kept.wid, owner="") is kept, "a stream keeps its session"
    sessions.detach(kept)
    now = 100_061.0
    with pytest.raises(Exception, match="given up"):
        sessions.find(kept.wid, owner="")


async def test_fault_49_the_cap_is_the_settings(broker: Broker, clock: ManualClock) -> None:
    site = Site(App(Context(broker, settings=ServerSettings(watch_sessions_max=1)), ROUTES), broker, clock)
    await write(site, "a", 1)
    await watch(site)
    reply = await site.post("/v0/watch", {"topics": {"a": {}}})
    assert (reply.status, reply.code, reply["error"]["detail"]["limit"]) == (429, "throttled", "watch_sessions_max")


async def test_too_many_waiters_end_the_stream_with_429(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(waiters_max=1)) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        await write(site, "a", 1)
        await write(site, "b", 1)
        stream = await listen(site, await watch(site, topics={"a": {"tail": True}, "b": {"tail": True}}))
        events = await stream.events(3)
        assert (events[-1]["event"], events[-1]["data"]["code"]) == ("error", 429)
        await stream.end()


async def test_a_closing_broker_ends_the_stream(clock: ManualClock) -> None:
    broker = await Broker.open(None, clock=clock)
    site = Site(App(Context(broker), ROUTES), broker, clock)
    await write(site, "a", 1)
    stream = await listen(site, await watch(site))
    await stream.events(2)
    await turn()
    await broker.close()
    assert (await stream.next())["data"]["code"] == 503
    await stream.end()


# Consistency


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
async def test_strong_readers_see_only_what_is_synced(clock: ManualClock, durability: str) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        await site.put("/v0/topics/a", {"durability": durability})
        strong = await listen(site, await watch(site, consistency="strong"))
        assert (await strong.next())["event"] == "caught-up"
        log.gate.clear()
        writing = asyncio.ensure_future(write(site, "a", 1))
        await turn()
        await turn()
        assert strong.waiting
        if durability != "fsync":
            eager = await listen(site, await watch(site))
            assert seqs(await eager.next()) == [1], "others see it at once"
            await eager.hang_up()
        log.gate.set()
        assert seqs(await strong.next()) == [1]
        await writing
        await strong.hang_up()


# Keys


async def test_fault_47_a_session_opens_only_with_the_key_that_made_it(make_site: Callable[..., Site]) -> None:
    keeper = gatekeeper("one:rw,two:rw,far:rw:b.")
    site = make_site(admit=keeper.admit, track=keeper.track)

    def bearer(key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    await write(make_site(), "a", 1)
    body: dict[str, Any] = {"topics": {"a": {}}}
    assert (await site.post("/v0/watch", body, headers=bearer("far"))).status == 403
    session = await site.post("/v0/watch", body, headers=bearer("one"))
    url = session["stream_url"]
    assert (await site.get(url, headers=SSE)).status == 401
    foreign = await site.get(url, headers=SSE | bearer("two"))
    assert (foreign.status, foreign.code) == (401, "unauthorized")
    assert (await site.get(url, headers=SSE | bearer("one"))).status == 200
    assert (await site.get(f"{url}?token=one", headers=SSE)).status == 200


@pytest.mark.parametrize("seed", range(5))
async def test_fault_32_wherever_a_reader_is_cut_off_it_sees_every_record_once_and_in_order(
    site: Site, seed: int
) -> None:
    dice = random.Random(seed)
    await write(site, "a", 0)
    await write(site, "b", 0)
    session = await watch(site, topics={"a": {}, "b": {}}, limit=3)
    seen: dict[str, list[int]] = {"a": [], "b": []}
    last_id = None
    for _ in range(40):
        stream = await listen(site, session, last_id=last_id)
        for _ in range(dice.randrange(6)):
            await write(site, dice.choice("ab"), *range(dice.randrange(1, 8)))
            frame = await stream.next() if not stream.waiting else None
            if frame is not None:
                last_id = frame["id"]
                if frame["event"] == "record":
                    seen[frame["data"]["topic"]] += seqs(frame)
        await stream.hang_up()
    stream = await listen(site, session, last_id=last_id)
    heads = {topic: site.broker.topic(topic).head_seq for topic in seen}
    while {topic: len(found) for topic, found in seen.items()} != heads:
        frame = await stream.next()
        if frame["event"] == "record":
            seen[frame["data"]["topic"]] += seqs(frame)
    await stream.hang_up()
    assert seen == {topic: list(range(1, head + 1)) for topic, head in heads.items()}


async def test_nothing_is_kept_in_memory_for_a_watcher_that_does_not_take_what_it_was_sent(site: Site) -> None:
    others = [one for one in gc.get_objects() if isinstance(one, Portion)]  # of other tests, not collected yet
    await write(site, "a", *["x" * 10_000] * 20)
    stream = await listen(site, await watch(site, topics={"a": {}}, max_batch_bytes=50_000))
    found: list[int] = []
    while len(found) < 20:
        frame = await stream.next()
        found += seqs(frame) if frame["event"] == "record" else []
    stream.room.clear()
    await write(site, "a", *["x" * 10_000] * 20)
    for _ in range(20):
        await turn()
    held = [one for one in gc.get_objects() if isinstance(one, Portion) and one not in others]
    assert held == []
    stream.room.set()
    while len(found) < 40:
        frame = await stream.next()
        found += seqs(frame) if frame["event"] == "record" else []
    assert found == list(range(1, 41))
    await stream.hang_up()
