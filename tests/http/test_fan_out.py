"""One source and many readers: read once, encoded once, and nobody waits for a slow one. Counted in steps."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenure import Broker
from tenure.contract.bounds import Bounds
from tenure.contract.commands import Command, Diff
from tenure.contract.records import Stored
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.api.render import record as render_record
from tenure.http.routes import ROUTES
from tenure.http.server import serve
from tenure.http.streams import watch_portion
from tenure.http.streams.forms import Forms
from tenure.http.streams.outlet import Outlet
from tenure.http.streams.slices import Slices
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import SharedBytes
from tests.http.conftest import Site
from tests.http.streaming import Listener, Reader, count_wakes, parse
from tests.http.test_watch import cursors, listen, seqs, watch, write
from tests.http.wire_support import Peer, eventually, on_both_loops, pass_ms
from tests.kit.brokers import turn

MANY = 40


async def at_the_head(site: Site, count: int = MANY, **options: Any) -> list[Listener]:
    """Watchers that have caught up and rest."""
    streams = [await listen(site, await watch(site, **options)) for _ in range(count)]
    for stream in streams:
        while (await stream.next())["event"] != "caught-up":
            pass
    for _ in range(3):
        await turn()
    return streams


async def hang_up(streams: list[Listener]) -> None:
    for stream in streams:
        await stream.hang_up()


@contextmanager
def reads_counted(broker: Broker) -> Iterator[list[Command[Any]]]:
    """The reads of topics that the engine runs while the block lasts."""
    engine, found = broker._engine, list[Command[Any]]()
    run = engine.run

    def counted(command: Command[Any], bounds: Bounds | None = None) -> Any:
        if isinstance(command, Diff):
            found.append(command)
        return run(command, bounds)

    engine.run = counted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        engine.run = run  # type: ignore[method-assign]


async def test_a_record_for_many_watchers_is_read_once_and_encoded_once(site: Site) -> None:
    await write(site, "a", 0)
    streams = await at_the_head(site)
    with reads_counted(site.broker) as reads:
        await write(site, "a", "news")
        frames = [await stream.next() for stream in streams]
        await turn()
    assert {tuple(seqs(frame)) for frame in frames} == {(2,)}
    assert len({id(stream.sent[-1]) for stream in streams}) == 1, "the same bytes, not equal ones"
    assert len(reads) <= 3, "one that found it, and one that waits for the next"
    await hang_up(streams)


async def test_no_task_of_a_watcher_is_woken_for_what_it_can_take(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(site, "a", 0)
    streams = await at_the_head(site)
    woken = count_wakes(monkeypatch)
    for n in range(5):
        await write(site, "a", n)
        for stream in streams:
            await stream.next()
    assert woken == []
    await hang_up(streams)


async def test_watchers_that_want_different_forms_share_the_read(site: Site) -> None:
    await write(site, "a", 0)
    forms: list[dict[str, Any]] = [
        {},
        {"include_data": False},
        {"node": "me"},
        {"node": ["me", "you"]},
        {"topics": {"a": {}, "b": {}}},
    ]
    await write(site, "b", 0)
    streams = [(await at_the_head(site, 1, **form))[0] for form in forms]
    while not streams[-1].waiting:
        await streams[-1].next()  # the other topic
    with reads_counted(site.broker) as reads:
        await write(site, "a", 1, node="me")
        await write(site, "a", 2, node="you")
        await write(site, "a", 3)
        seen: list[list[Any]] = [[] for _ in streams]
        for stream, found in zip(streams, seen, strict=True):
            while not found or found[-1]["$seq"] < 4:
                frame = await stream.next()
                found += frame["data"]["records"]
    assert [[record["$seq"] for record in found] for found in seen] == [
        [2, 3, 4],
        [2, 3, 4],
        [3, 4],
        [4],
        [2, 3, 4],
    ]
    assert all("data" not in record for record in seen[1])
    last = parse(streams[-1].sent[-1].decode().strip())
    assert cursors(last) == {"a": 4, "b": 1}, "an id holds the cursors of its own session"
    assert len(reads) <= 3 * 3
    await hang_up(streams)


async def test_records_are_rendered_once_for_watchers_that_follow_other_topics_beside(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(site, "a", 0)
    streams = []
    for n in range(MANY):
        await write(site, f"b{n}", 0)
        streams.append(await listen(site, await watch(site, topics={"a": {"tail": True}, f"b{n}": {"tail": True}})))
        await streams[-1].events(2)
    for _ in range(3):
        await turn()
    rendered: list[Stored] = []
    render = render_record

    def counted(stored: Stored, **options: bool) -> bytes:
        rendered.append(stored)
        return render(stored, **options)

    monkeypatch.setattr(watch_portion, "record", counted)
    await write(site, "a", "news")
    assert {tuple(seqs(await stream.next())) for stream in streams} == {(2,)}
    assert len(rendered) == 1
    assert [len(cursors(parse(stream.sent[-1].decode().strip()))) for stream in streams] == [2] * MANY
    await hang_up(streams)


def test_only_so_many_forms_are_kept() -> None:
    forms = Forms[int, int]()
    for number in range(1_000):
        assert forms.keep(number, -number) == -number
        assert forms.get(number) == -number
        assert len(forms._kept) <= 32


async def test_a_watcher_that_lags_catches_up_without_loss_or_doubling_and_shares_again(site: Site) -> None:
    await write(site, "a", 0)
    slow, *others = await at_the_head(site, 4, limit=7)
    slow.room.clear()
    for n in range(30):
        await write(site, "a", n)
        for stream in others:
            assert seqs(await stream.next()) == [n + 2], "nobody waits for the slow one"
    slow.room.set()
    seen: list[int] = []
    while len(seen) < 30:
        frame = await slow.next()
        seen += seqs(frame) if frame["event"] == "record" else []
    assert seen == list(range(2, 32))
    assert (await slow.next())["event"] == "caught-up"
    for _ in range(3):
        await turn()
    await write(site, "a", "level again")
    assert {tuple(seqs(await stream.next())) for stream in (slow, *others)} == {(32,)}
    assert len({id(stream.sent[-1]) for stream in (slow, *others)}) == 1
    await hang_up([slow, *others])


@pytest.mark.parametrize("seed", range(8))
async def test_however_readers_stall_each_sees_every_record_once_and_in_order(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    await write(site, "a", 0)
    await write(site, "b", 0)
    topics: list[dict[str, Any]] = [{"a": {}}, {"b": {}}, {"a": {}, "b": {}}]
    streams = [
        await listen(site, await watch(site, topics=dice.choice(topics), limit=dice.choice([2, 256])))
        for _ in range(12)
    ]
    for _ in range(60):
        for stream in dice.sample(streams, 3):
            (stream.room.clear if dice.random() < 0.5 else stream.room.set)()
        await write(site, dice.choice("ab"), *range(dice.randrange(1, 5)))
        if dice.random() < 0.3:
            await turn()
    heads = {topic: site.broker.topic(topic).head_seq for topic in "ab"}
    for stream in streams:
        stream.room.set()
        seen: dict[str, list[int]] = {}
        while True:
            frame = await stream.next()
            found = seen.setdefault(frame["data"]["topic"], [])
            if frame["event"] == "record":
                found += seqs(frame)
            if cursors(frame) == {topic: heads[topic] for topic in cursors(frame)}:
                break
        assert seen == {topic: list(range(1, heads[topic] + 1)) for topic in seen}
    await hang_up(streams)


async def test_a_new_connection_takes_over_while_its_feed_is_being_written(site: Site) -> None:
    await write(site, "a", 0)
    session = await watch(site)
    old = await listen(site, session)
    await old.events(2)
    await turn()
    last_id = old.sent[-1].decode().split("\n")[0].removeprefix("id: ")
    new = await listen(site, session, last_id=last_id)
    await write(site, "a", 1)
    seen = []
    while 2 not in seen:
        frame = await new.next()
        seen += seqs(frame) if frame["event"] == "record" else []
    assert seen == [2]
    await old.end()
    await new.hang_up()


# Heartbeats


class _Jumping:
    """Moves the time of a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._time, self._passed_s = self._loop.time, 0.0
        self._loop.time = lambda: self._time() + self._passed_s  # type: ignore[method-assign]

    async def jump(self, seconds: float) -> None:
        self._passed_s += seconds
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_frame_that_was_offered_postpones_the_heartbeat() -> None:
    clock, peer = _Jumping(), Reader()
    outlet = Outlet(peer, heartbeat_ms=10_000, heartbeat=lambda: b"beat")
    waiting = asyncio.ensure_future(outlet.wait())
    await clock.jump(9)
    assert outlet.offer(SharedBytes(b"frame"))
    await clock.jump(9)
    assert [one.data for one in peer.sent] == [b"frame"]
    await clock.jump(2)
    assert [one.data for one in peer.sent] == [b"frame", b"beat"]
    outlet.wake()
    await waiting


async def test_nothing_is_offered_to_a_stream_that_does_not_wait() -> None:
    peer = Reader()
    outlet = Outlet(peer, heartbeat_ms=10_000, heartbeat=lambda: b"beat")
    assert not outlet.offer(SharedBytes(b"early"))
    waiting = asyncio.ensure_future(outlet.wait())
    await asyncio.sleep(0)
    peer.has_room = False
    assert not outlet.offer(SharedBytes(b"too much"))
    peer.has_room = True
    outlet.wake()
    assert not outlet.offer(SharedBytes(b"late")), "its task is about to send"
    await waiting
    assert peer.sent == []


# The loop


async def test_other_work_has_its_turns_while_many_are_written_to() -> None:
    now_s, turns, done = 0.0, 0, list[int]()

    def step(number: int) -> None:
        nonlocal now_s
        now_s += 0.001
        done.append(number)

    async def other() -> None:
        nonlocal turns
        while len(done) < 1_000:
            turns += 1
            await asyncio.sleep(0)

    slices = Slices(now_s=lambda: now_s)
    await asyncio.gather(slices.each(range(1_000), step), other())
    assert done == list(range(1_000))
    size = slices.size
    assert size <= 4, "no slice but the first ones lasts much longer than 2 ms"
    assert turns > 100
    await slices.each(range(size), lambda number: None)
    assert slices.size == 2 * size, "and more at once where it goes fast"


async def test_records_that_a_watcher_leaves_out_are_passed_over_in_turns(site: Site) -> None:
    for _ in range(4):
        await write(site, "a", *range(250), node="me")
    stream = await listen(site, await watch(site, node="me", limit=10))
    turns = 0
    while not stream.sent or b"caught-up" not in stream.sent[-1]:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 100, "one at least for each read of ten"
    await stream.hang_up()


# Real sockets


@on_both_loops
async def test_33_a_watcher_that_does_not_read_is_cut_and_the_others_get_everything() -> None:
    limits = WireLimits(tick_ms=1, write_buffer_bytes=16_384, write_stall_ms=1_000)
    async with await Broker.open(None) as broker, await serve(App(Context(broker), ROUTES), limits=limits) as server:
        server.connections.stop()
        await broker.put_topic("a", {"type": "log", "durability": "memory"})

        async def watched() -> bytes:
            async with await Peer.connect(server) as peer:
                body = b'{"topics":{"a":{}}}'
                head = b"POST /v0/watch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                await peer.send(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
                url = (await peer.reply()).body.split(b'"stream_url":"')[1].split(b'"')[0]
            return b"GET %b HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n" % url

        honest = [await Peer.connect(server) for _ in range(3)]
        for peer in honest:
            await peer.send(await watched())
            await peer.head()
        deaf = socket.create_connection(("127.0.0.1", server.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.sendall(await watched())
        frame_bytes = 200_000
        kept: list[int] = []
        for number in range(1, 61):
            await broker.produce("a", [b'"%b"' % (b"x" * frame_bytes)])
            for peer in honest:
                while b'"$seq":%d' % number not in await peer.chunk():
                    pass
            kept.append(server.connections.unsent.total_bytes)
        assert max(kept) > 16_384, "the deaf one is behind"
        assert max(kept) <= 16_384 + 2 * (frame_bytes + 500), "and keeps one frame beyond its buffer"
        assert len(server.connections) == 4
        pass_ms(server, 1_100)
        pass_ms(server, 1_100)
        await eventually(lambda: len(server.connections) == 3)
        assert server.connections.counts.slow_readers == 1
        await broker.produce("a", [b'"last"'])
        for peer in honest:
            assert b'"last"' in await peer.chunk()
            peer.writer.close()
        deaf.close()
