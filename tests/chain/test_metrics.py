"""The figures of a leader: counted as it goes, and served with the others."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tenure.chain.metrics import Waiting
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.testing import ManualClock
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.chain.kit import open_log


def test_the_age_is_that_of_the_oldest_batch_that_is_not_in_the_home():
    clock = ManualClock()
    waiting = Waiting(clock)
    assert waiting.age_ms == 0
    waiting.written()
    clock.advance(100)
    waiting.begun(takes_all=True)
    clock.advance(10)
    waiting.written()
    assert waiting.age_ms == 110
    waiting.ended(leaves_any=True)
    assert waiting.age_ms == 10
    waiting.begun(takes_all=False)
    clock.advance(5)
    waiting.ended(leaves_any=True)
    assert waiting.age_ms == 15
    waiting.begun(takes_all=True)
    waiting.ended(leaves_any=False)
    assert waiting.age_ms == 0


def test_bytes_are_unshipped_until_the_home_has_them_also_over_a_roll():
    log = open_log(SimStore(), SimDisk())
    list(log.replay())
    assert log.unshipped_bytes == 0
    sizes = []
    for _ in range(12):  # the segments of these tests hold four of them
        log.append([(20, 1, bytes(900))])
        log.write()
        sizes.append(log.unshipped_bytes)
    assert len(log.segments()) > 2
    assert sizes == sorted(sizes)
    assert 12 * 900 < sizes[-1] < 12 * 1_200
    before = log.leadership.metrics.link_bytes
    log.sync()
    assert log.unshipped_bytes == 0
    assert sizes[-1] < log.leadership.metrics.link_bytes - before < sizes[-1] + 500


def test_links_and_repeats_are_counted():
    store = SimStore()
    log = open_log(store, SimDisk())
    list(log.replay())
    metrics = log.leadership.metrics
    links, repeats = metrics.links["data"], metrics.put_repeats
    store.fail(len(store.calls), "lost_request")
    log.append([(20, 1, b"body")])
    log.sync()
    assert (metrics.links["data"], metrics.put_repeats) == (links + 1, repeats + 1)
    assert metrics.put_s.count == metrics.links["data"]
    assert metrics.links["fence"] == 1


async def test_the_figures_of_a_home_are_served_with_the_others(tmp_path: Path):
    service = Service(
        ServerSettings(port=0, data=str(tmp_path / "data"), home=f"file://{tmp_path}/home"), environment={}
    )
    await service.start()
    await service.open()
    try:
        async with httpx.AsyncClient(base_url=service.address, trust_env=False) as client:
            await client.put("/v0/topics/mail", json={"type": "queue", "durability": "fsync"})
            await client.post("/v0/topics/mail", json={"records": [{"data": 1}]})
            found = (await client.get("/v0/metrics", headers={"accept": "application/json"})).json()["metrics"]
            text = (await client.get("/v0/metrics")).text
    finally:
        await service.stop()
    assert found["tenure_chain_epoch"] == 2  # the first one has the genesis alone
    links = {sample["kind"]: sample["value"] for sample in found["tenure_chain_links_total"]}
    assert links["data"] >= 2
    assert (links["fence"], links["beat"], links["released"]) == (1, 0, 0)
    assert found["tenure_chain_link_bytes_total"] > 200
    assert found["tenure_chain_put_repeats_total"] == found["tenure_chain_diverged_bytes_total"] == 0
    assert found["tenure_chain_fenced_total"] == 0
    assert "tenure_chain_grant_left_seconds" not in found  # nobody follows it
    assert {"tenure_chain_unshipped_bytes", "tenure_chain_unshipped_age_seconds"} < set(found)
    requests = {sample["op"]: sample["value"] for sample in found["tenure_chain_store_requests_total"]}
    assert requests["put_new"] > sum(links.values())
    assert 'tenure_chain_put_seconds_bucket{le="+Inf"}' in text


@pytest.mark.parametrize("name", ["tenure_chain_epoch", "tenure_chain_put_seconds"])
async def test_a_server_without_a_home_has_no_such_figures(tmp_path: Path, name: str):
    service = Service(ServerSettings(port=0, data=str(tmp_path / "data")), environment={})
    await service.start()
    await service.open()
    try:
        async with httpx.AsyncClient(base_url=service.address, trust_env=False) as client:
            assert name not in (await client.get("/v0/metrics")).text
    finally:
        await service.stop()
