"""Two whole servers that share a home, over HTTP: a leader, a standby, and the lead handed over."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import msgspec
import pytest

from tenure import Broker
from tenure.broker.open import open_watched
from tenure.chain.leadership import Leadership
from tenure.chain.signs import Signs
from tenure.contract.replies import FeatureInfo
from tenure.errors import Conflict, Corrupt
from tenure.http import shared_home, successor
from tenure.http.service import Service
from tenure.http.shared_home import SharedHome
from tests.http.conftest import when

A, B = "http://a:4000", "http://b:4000"
Pair = tuple[Service, Service]


async def call(service: Service, method: str, path: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=service.address, trust_env=False, timeout=60) as client:
        return await client.request(method, path, **options)


async def statuses(pair: Pair, path: str) -> list[int]:
    return [(await call(service, "GET", path)).status_code for service in pair]


async def test_one_leads_and_the_other_is_ready_to(pair: Pair) -> None:
    await when(lambda: all(service.context.cluster.info().is_caught_up for service in pair if service.context.cluster))
    assert await statuses(pair, "/v0/leader") == [200, 421]
    assert await statuses(pair, "/readyz") == [200, 200]
    assert await statuses(pair, "/v0/topics") == [200, 421]
    assert await statuses(pair, "/") == [200, 200]
    leader, standby = [(await call(service, "GET", "/v0/cluster")).json() for service in pair]
    assert (leader["role"], standby["role"], standby["leader"]) == ("leader", "standby", A)
    assert leader["home"] == standby["home"] != ""


async def test_the_lead_and_what_was_put_go_to_the_other_and_the_first_names_it(pair: Pair) -> None:
    first, second = pair
    body = {"records": [{"data": "kept"}], "config": {"type": "queue", "durability": "fsync"}}
    assert (await call(first, "POST", "/v0/topics/mail", json=body)).status_code == 201
    answer = await call(first, "POST", "/v0/cluster/handover", json={})
    assert (answer.status_code, answer.json()["role"], answer.json()["leader"]) == (200, "standby", B)
    await when(lambda: second.context.is_open)
    claimed = await call(second, "POST", "/v0/topics/mail/claim", json={"node": "w"})
    assert [job["data"] for job in claimed.json()["claimed"]] == ["kept"]
    assert await statuses(pair, "/v0/leader") == [421, 200]
    refused = (await call(first, "POST", "/v0/topics/mail", json=body)).json()["error"]
    assert (refused["code"], refused["detail"]["leader"]) == ("not_leader", B)


async def test_a_request_at_the_heir_waits_until_it_serves(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller would otherwise be sent back and forth, or ask round with ever longer pauses."""
    monkeypatch.setattr(shared_home, "_HOLD_S", 60)
    first, second = pair
    may_open, opening = asyncio.Event(), asyncio.Event()

    async def open_later(*given: Any, **options: Any) -> Broker:
        opening.set()
        await may_open.wait()
        return await open_watched(*given, **options)

    monkeypatch.setattr(shared_home, "open_watched", open_later)
    await call(first, "POST", "/v0/cluster/handover", json={})
    await opening.wait()
    listing = asyncio.create_task(call(second, "GET", "/v0/topics"))
    await when(lambda: has_waiting(second))
    may_open.set()
    assert (await listing).status_code == 200


async def test_a_request_at_a_leader_that_hands_over_waits_until_the_heir_may_lead(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_home, "_HOLD_S", 60)
    first, second = pair
    may_release, releasing = threading.Event(), threading.Event()
    ship = Leadership.ship

    async def ship_later(leadership: Leadership, *given: Any, is_released: bool, **options: Any) -> None:
        if is_released:
            releasing.set()
            await asyncio.to_thread(may_release.wait, 60)
        await ship(leadership, *given, is_released=is_released, **options)

    monkeypatch.setattr(Leadership, "ship", ship_later)
    handing = asyncio.create_task(call(first, "POST", "/v0/cluster/handover", json={}))
    await when(releasing.is_set)
    listing = asyncio.create_task(call(first, "GET", "/v0/topics"))
    await when(lambda: has_waiting(first))
    may_release.set()
    refused = await listing
    assert (refused.status_code, refused.json()["error"]["detail"]["leader"]) == (421, B)
    await handing
    await when(lambda: second.context.is_open)


async def test_nobody_waits_long_where_no_leader_comes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_home, "_HOLD_S", 0.01)
    first, second = pair
    never = asyncio.Event()

    async def open_never(*given: Any, **options: Any) -> Broker:
        await never.wait()
        return await open_watched(*given, **options)

    monkeypatch.setattr(shared_home, "open_watched", open_never)
    await call(first, "POST", "/v0/cluster/handover", json={})
    await when(lambda: second.context.cluster is not None and second.context.cluster.is_undecided)
    refused = await call(second, "GET", "/v0/topics")
    assert (refused.status_code, refused.json()["error"]["detail"]["leader"]) == (421, "")
    never.set()
    await when(lambda: second.context.is_open)


def has_waiting(service: Service) -> bool:
    """Return whether a request waits at a server until somebody leads."""
    assert isinstance(service.context.cluster, SharedHome)
    return bool(service.context.cluster._news._waiters)


async def test_a_lead_that_was_steady_does_not_lengthen_the_next_wait(pair: Pair) -> None:
    """Who was stopped or cut off takes over as soon as any other; who never held a grant on a slow store waits."""
    home = pair[0].context.cluster
    assert isinstance(home, SharedHome)
    assert home._view.log is not None
    leadership = home._view.log.leadership
    await when(lambda: leadership.was_steady)
    home._count_loss(leadership)
    assert home._recent_losses() == 0
    leadership.was_steady = False
    home._count_loss(leadership)
    assert home._recent_losses() == 1


async def test_a_hand_over_to_a_server_that_is_not_there_leaves_the_lead(pair: Pair) -> None:
    first, _ = pair
    answer = await call(first, "POST", "/v0/cluster/handover", json={"to": "http://c:4000"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "member_not_found")
    assert await statuses(pair, "/v0/leader") == [200, 421]


async def test_a_store_that_hangs_keeps_no_server_from_looking_for_a_standby_and_stopping(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = pair
    monkeypatch.setattr(successor, "_LOOK_S", 0.01)
    monkeypatch.setattr(Signs, "standbys", lambda self: [])
    monkeypatch.setattr(Signs, "step", lambda self: asyncio.sleep(3600))
    answer = await call(first, "POST", "/v0/cluster/handover", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_away")
    await asyncio.wait_for(first.stop(), 60)


async def test_finalize_names_a_standby_that_could_not_take_over_afterwards(pair: Pair) -> None:
    first, second = pair
    cluster = second.context.cluster
    assert isinstance(cluster, SharedHome)
    say = cluster._view.hint
    wanted = [FeatureInfo("gadgets", "9.2.0")]
    leader = first.context.cluster
    assert isinstance(leader, SharedHome)
    await when(lambda: bool(leader._view.signs and leader._view.signs.standbys()))
    with pytest.raises(Conflict) as caught:
        await leader.check_readers(wanted)
    assert (caught.value.code, caught.value.detail["members"]) == ("members_too_old", [B])
    assert cluster._view.signs is not None
    cluster._view.signs._say = lambda: msgspec.structs.replace(say(), reads=("gadgets",))
    cluster._view.signs.say_now()
    await when(lambda: _read(leader, wanted))


def _read(leader: SharedHome, wanted: list[FeatureInfo]) -> bool:
    assert leader._view.signs is not None
    leader._view.signs.say_now()
    return not any(
        seen.hint.cannot_read([(each.name, each.since) for each in wanted]) for seen in leader._view.signs.living()
    )


async def test_a_standby_that_cannot_read_the_log_is_not_ready_and_says_why(pair: Pair) -> None:
    first, second = pair
    cluster = second.context.cluster
    assert isinstance(cluster, SharedHome)
    standby = cluster._view.standby
    assert standby is not None
    standby._give_up_reading(Corrupt("it needs 9.2.0", code="unknown_feature"))
    answer = await call(second, "GET", "/readyz")
    assert answer.status_code == 503
    assert "needs 9.2.0" in answer.json()["error"]["message"]
    assert (await call(second, "GET", "/v0/cluster")).json()["trouble"] == "it needs 9.2.0"
    leader = first.context.cluster
    assert isinstance(leader, SharedHome)
    await when(lambda: _says_trouble(leader))
    answer = await call(first, "POST", "/v0/cluster/handover", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_standby")


def _says_trouble(leader: SharedHome) -> bool:
    assert leader._view.signs is not None
    leader._view.signs.say_now()
    return [seen.hint.trouble for seen in leader._view.signs.living()] == ["it needs 9.2.0"]
