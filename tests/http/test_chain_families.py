"""The metrics of servers that share a home: each family once, on the leader and on a standby, and each documented."""

from __future__ import annotations

import re

import httpx

from tenure.contract.replies import ClusterInfo
from tenure.http.api.chain_families import shared_families
from tenure.http.service import Service
from tests.cli.test_reference import code, page, rows
from tests.kit.clusters import HERE, member

CHAIN = re.compile(r"^# TYPE (tenure_chain_\w+) \w+$", re.MULTILINE)


async def chain_metrics(service: Service) -> list[str]:
    async with httpx.AsyncClient(base_url=service.address, trust_env=False) as client:
        return CHAIN.findall((await client.get("/v0/metrics")).text)


async def test_each_family_of_a_leader_and_of_a_standby_is_there_once(pair: tuple[Service, Service]) -> None:
    for service in pair:
        found = await chain_metrics(service)
        assert len(found) == len(set(found)), found
        assert "tenure_chain_store_requests_total" in found, "a standby has a bill too"
        assert {"tenure_chain_role", "tenure_chain_epoch", "tenure_chain_diverged_bytes_total"} <= set(found)


async def test_every_metric_of_a_home_is_documented_and_no_other(pair: tuple[Service, Service]) -> None:
    found = {name for service in pair for name in await chain_metrics(service)}
    text = page("http-api").partition("## Metrics of a home")[2]
    assert {name for row in rows(text) for name in code(row[0])} == found


def test_a_server_that_was_not_seen_for_a_minute_is_no_member() -> None:
    members = [
        member(HERE, role="leader", age_ms=0),
        member("http://b:1", age_ms=59_000),
        member("http://c:1", age_ms=61_000),
    ]
    info = ClusterInfo(role="leader", url=HERE, leader=HERE, epoch=7, members=members)
    found = {family.name: family.samples for family in shared_families(info, takeovers=1, fenced=0, requests={})}
    assert found["tenure_chain_members"] == [("", {}, 2.0)]
    assert found["tenure_chain_role"] == [("", {"role": "leader"}, 1.0), ("", {"role": "standby"}, 0.0)]
    assert "tenure_chain_grant_left_seconds" not in found, "it is not limited"
