"""Two whole servers that share a home, over HTTP: a leader, a standby, and the lead handed over."""

from __future__ import annotations

from typing import Any

import httpx

from tenure.http.service import Service
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


async def test_a_hand_over_to_a_server_that_is_not_there_leaves_the_lead(pair: Pair) -> None:
    first, _ = pair
    answer = await call(first, "POST", "/v0/cluster/handover", json={"to": "http://c:4000"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "member_not_found")
    assert await statuses(pair, "/v0/leader") == [200, 421]
