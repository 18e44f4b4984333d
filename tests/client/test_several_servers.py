"""Clients of several servers: the leader is found and followed, and nothing is sent twice that must not be."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure import AsyncClient, Indeterminate, Overloaded
from tenure.address import parse_addresses
from tenure.client import ClientSettings
from tenure.client.transport.async_lookout import AsyncLookout
from tenure.client.transport.blocking import SocketWire
from tenure.client.transport.endpoints import Endpoints
from tenure.client.transport.lookout import Lookout
from tenure.errors import NotLeader
from tests.client.both_clients import Both, make_client
from tests.kit.members import Member, members, until

FOR_EVER_MS = 600_000
QUICK: dict[str, Any] = {"backoff_min_ms": 1, "seek_max_ms": 2, "look_ms": 50, "look_again_ms": 20}


def several(kind: str, *servers: Member, key: str | None = None, **settings: Any) -> Both:
    """A client of these, in this order."""
    url = ",".join(server.url for server in servers)
    return make_client(kind, url, key=key, settings=ClientSettings(**QUICK | settings))


def away(code: str, status: int = 503) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"code": code, "message": "nothing happened"}}).encode()


@pytest.fixture
def pair() -> Iterator[tuple[Member, Member]]:
    with members(2) as (first, second):
        yield first, second


# Where a call goes


async def test_a_call_that_met_a_follower_is_repeated_at_the_leader_and_the_next_one_begins_there(
    kind: str, pair: tuple[Member, Member]
) -> None:
    follower, leader = pair
    follower.follows(leader.leads(1))
    async with several(kind, follower, leader, retry_for_ms=0) as client:
        await client.produce("t", [1])
        await client.produce("t", [2])
    assert (len(follower.asked), len(leader.asked)) == (1, 2)
    assert follower.asked[0] == leader.asked[0], "the same call, and not counted as an attempt"
    assert leader.looks == follower.looks == 0


async def test_servers_that_name_each_other_get_a_call_four_times_and_no_more(
    kind: str, pair: tuple[Member, Member]
) -> None:
    one, other = pair
    one.follows(other)
    other.follows(one)
    async with several(kind, one, other, retry_for_ms=0) as client:
        with pytest.raises(NotLeader) as caught:
            await client.produce("t", [1])
    assert len(one.asked) + len(other.asked) == 4
    assert caught.value.detail["leader"] in (one.url, other.url)


async def test_the_leader_is_found_by_a_client_that_knows_only_a_follower(
    kind: str, pair: tuple[Member, Member]
) -> None:
    follower, leader = pair
    follower.follows(leader.leads(1))
    async with several(kind, follower) as client:
        await client.produce("t", [1])
        await client.produce("t", [2])
    assert (len(follower.asked), len(leader.asked)) == (1, 2)


async def test_a_key_is_not_sent_to_a_server_that_the_caller_did_not_name(
    kind: str, pair: tuple[Member, Member]
) -> None:
    follower, leader = pair
    follower.follows(leader.leads(1))
    async with several(kind, follower, key="secret", attempts_max=2) as client:
        with pytest.raises(NotLeader) as caught:
            await client.produce("t", [1])
    assert (len(follower.asked), leader.asked) == (2, [])
    assert "add it to the client's URL" in caught.value.message
    async with several(kind, follower, key="secret", follow_with_key=True) as client:
        await client.produce("t", [1])
    assert leader.asked[0].key == "secret"


async def test_a_server_that_refuses_connections_gives_way_to_the_next(kind: str, pair: tuple[Member, Member]) -> None:
    first, second = pair
    first.kill()
    second.leads(1)
    async with several(kind, first, second, attempts_max=1) as client:
        await client.redrive("t")
        await client.redrive("t")
    assert len(second.asked) == 2


async def test_an_answer_that_was_lost_is_asked_for_at_the_next_server_only_where_a_repeat_is_safe(
    kind: str, pair: tuple[Member, Member]
) -> None:
    first, second = pair
    first.leads(1)
    second.leads(2)
    first.answers = [None]
    async with several(kind, first, second) as client:
        await client.produce("t", [1])
        assert first.asked[0].body == second.asked[0].body
    first.answers = [None]
    async with several(kind, first, second) as client:
        with pytest.raises(Indeterminate):
            await client.redrive("t")
    assert (len(first.asked), len(second.asked)) == (2, 1)


@pytest.mark.parametrize("code", ["store_away", "shutting_down", "not_ready"])
async def test_a_leader_that_cannot_serve_is_left_for_another_one(
    kind: str, pair: tuple[Member, Member], code: str
) -> None:
    first, second = pair
    first.leads(1)
    second.leads(2)
    first.answers = [away(code)]
    async with several(kind, first, second) as client:
        await client.redrive("t")
    assert (len(first.asked), len(second.asked)) == (1, 1)


async def test_the_error_of_a_store_that_stays_away_is_overloaded(kind: str, pair: tuple[Member, Member]) -> None:
    for member in pair:
        member.leads(1).answers = [away("store_away")]
    async with several(kind, *pair, retry_for_ms=0) as client:
        with pytest.raises(Overloaded) as caught:
            await client.redrive("t")
    assert caught.value.code == "store_away"


async def test_clients_wait_for_a_leader_for_longer_than_their_attempts_last(
    kind: str, pair: tuple[Member, Member]
) -> None:
    """A failover: the first server is gone, and the second one follows it for a while."""
    first, second = pair
    first.kill()
    second.follows(first)
    async with several(kind, first, second, attempts_max=2, retry_for_ms=FOR_EVER_MS) as client:
        putting = asyncio.ensure_future(client.produce("t", [1]))
        await until(lambda: len(second.asked) >= 20)
        second.leads(2)
        await putting


async def test_a_client_whose_connections_are_all_in_use_says_so_and_keeps_its_server(
    kind: str, pair: tuple[Member, Member]
) -> None:
    """Another server would help as little as it did harm: the next call still begins at the one that leads."""
    leader, other = pair
    other.follows(leader.leads(1))
    leader.stop()
    places: dict[str, Any] = {"connections_max": 1, "streams_max": 1, "acquire_ms": 50, "look_ms": FOR_EVER_MS}
    async with several(kind, leader, other, answer_ms=FOR_EVER_MS, retry_for_ms=200, **places) as client:
        held = [asyncio.ensure_future(client.health()) for _ in range(1 if kind == "blocking" else 2)]
        await until(lambda: len(leader.asked) == len(held))
        with pytest.raises(Overloaded) as caught:
            await client.redrive("t")
        leader.go_on()
        await asyncio.gather(*held)
        await client.redrive("t")
    assert caught.value.code == "busy"
    assert "connections_max" in caught.value.message
    assert (len(leader.asked), other.asked) == (len(held) + 1, [])


# Looking around


async def test_a_leader_that_was_stopped_is_left_once_another_one_leads(kind: str, pair: tuple[Member, Member]) -> None:
    first, second = pair
    second.follows(first.leads(1))
    async with several(kind, first, second, answer_ms=FOR_EVER_MS) as client:
        await client.produce("t", [1])
        first.stop()
        putting = asyncio.ensure_future(client.produce("t", [2]))
        await until(lambda: second.looks >= 2)
        assert len(second.asked) == 0, "it follows: nothing is gained there"
        second.leads(2)
        await putting
        await client.produce("t", [3])
    assert first.asked[1].body == second.asked[0].body
    assert len(second.asked) == 2


async def test_what_must_not_be_repeated_is_unknown_after_its_server_was_stopped(
    kind: str, pair: tuple[Member, Member]
) -> None:
    first, second = pair
    first.leads(1).stop()
    second.leads(2)
    async with several(kind, first, second, answer_ms=FOR_EVER_MS) as client:
        with pytest.raises(Indeterminate):
            await client.redrive("t")
    assert (len(first.asked), len(second.asked)) == (1, 0)


async def test_a_leader_of_an_earlier_epoch_is_no_reason_to_give_up(kind: str, pair: tuple[Member, Member]) -> None:
    """It was stopped, goes on, and has not noticed yet that it was overtaken."""
    old, leader = pair
    old.follows(leader.leads(5), epoch=5)
    async with several(kind, old, leader, answer_ms=FOR_EVER_MS) as client:
        await client.produce("t", [1])
        old.leads(4)
        leader.stop()
        putting = asyncio.ensure_future(client.produce("t", [2]))
        await until(lambda: old.looks >= 3)
        leader.go_on()
        await putting
    assert (len(old.asked), len(leader.asked)) == (1, 2)


async def test_threads_whose_answers_are_late_do_not_ask_side_by_side(pair: tuple[Member, Member]) -> None:
    first, second = pair
    second.follows(first.leads(1))
    first.stop()
    async with several("blocking", first, second, answer_ms=FOR_EVER_MS, look_again_ms=60_000) as client:
        calls = [asyncio.ensure_future(client.health()) for _ in range(4)]
        lookout, looked = client.inner._wire._lookout, list[bool]()
        look = lookout.is_overtaken
        lookout.is_overtaken = lambda *args, **options: looked.append(look(*args, **options))
        with lookout._asking:  # as if another thread asked
            await until(lambda: len(looked) == 4)
            first.go_on()
            await asyncio.gather(*calls)
    assert second.looks == 0


async def test_one_task_asks_for_all_answers_that_are_late_and_ends_with_the_last_of_them() -> None:
    with members(1) as (silent,):
        silent.stop()
        async with AsyncClient(f"http://127.0.0.1:1,{silent.url}") as client:
            lookout, servers = client._wire._lookout, client._wire._endpoints.servers  # type: ignore[attr-defined]
            watches = [lookout.watch(servers[0]) for _ in range(3)]
            for watch in watches:
                lookout.look_for(watch)
            task = lookout._task
            await until(lambda: silent.looks == 1)
            lookout.forget(watches[0])
            lookout.forget(watches[1])
            assert lookout._task is task
            lookout.forget(watches[2])
            await asyncio.wait((task,))
            assert task.cancelled()
    assert silent.looks == 1


async def test_a_client_of_one_server_asks_nobody_and_starts_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("there is nobody to ask")

    monkeypatch.setattr(Lookout, "wait_for", refused)
    monkeypatch.setattr(AsyncLookout, "watch", refused)
    with members(1) as (only,):
        only.leads(1).stop()
        async with several(kind, only, answer_ms=FOR_EVER_MS, look_ms=1, look_again_ms=1) as client:
            tasks = len(asyncio.all_tasks())
            asking = asyncio.ensure_future(client.health())
            await until(lambda: len(only.asked) == 1)
            assert len(asyncio.all_tasks()) == tasks + 1
            only.go_on()
            await asking
    assert (only.looks, len(only.asked)) == (0, 1)


async def test_a_tls_handshake_with_a_stopped_server_is_left_and_nothing_was_sent_there(
    kind: str, certificate: tuple[Path, Path]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with members(1, tls=context) as (leader,), socket.create_server(("127.0.0.1", 0)) as stopped:
        leader.leads(2)
        settings = ClientSettings(**QUICK | {"connect_ms": FOR_EVER_MS})
        url = f"https://127.0.0.1:{stopped.getsockname()[1]},{leader.url}"
        trusting = ssl.create_default_context(cafile=certificate[0])
        async with make_client(kind, url, tls=trusting, settings=settings) as client:
            await client.redrive("t")
    assert len(leader.asked) == 1


def black_hole(held: ExitStack) -> str:
    """The URL of a server that no connection reaches: its queue is full, so the kernel drops the first packet."""
    listening = held.enter_context(socket.socket())
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    for _ in range(2):
        filling = held.enter_context(socket.socket())
        filling.setblocking(False)
        filling.connect_ex(listening.getsockname())
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_a_server_that_no_connection_reaches_is_left_and_nothing_was_sent_there(
    kind: str, pair: tuple[Member, Member]
) -> None:
    leader, _ = pair
    leader.leads(2)
    with ExitStack() as held:
        settings = ClientSettings(**QUICK | {"connect_ms": FOR_EVER_MS})
        async with make_client(kind, f"{black_hole(held)},{leader.url}", settings=settings) as client:
            await client.redrive("t")
    assert len(leader.asked) == 1


async def test_a_long_request_that_a_stopped_server_does_not_take_goes_to_the_leader(
    kind: str, pair: tuple[Member, Member]
) -> None:
    first, second = pair
    first.leads(1)
    second.leads(2)
    first._loop.call_soon_threadsafe(lambda: setattr(first, "_answer", asyncio.sleep))  # it reads nothing
    first.stop()
    async with several(kind, first, second, answer_ms=FOR_EVER_MS) as client:
        await client.produce("t", [b'"' + b"x" * 20_000_000 + b'"'])
    assert len(second.asked[0].body) > 20_000_000


def test_a_question_ends_when_the_answer_for_whose_sake_it_is_asked_comes() -> None:
    with members(1) as (silent,):
        silent.stop()
        settings = ClientSettings(look_ms=FOR_EVER_MS, answer_ms=FOR_EVER_MS)
        endpoints = Endpoints(
            parse_addresses(silent.url),
            key=None,
            settings=settings,
            connect=lambda address: SocketWire(address.base, settings=settings),
        )
        Lookout(endpoints, settings)._ask(endpoints.first, lambda: True)
        assert silent.looks <= 1
