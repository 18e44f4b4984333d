"""The numbers of a server, in both forms."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.prometheus import Family, Traffic, as_text, wants_json
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.http.conftest import Site

LOCAL = {"host": "localhost"}
_LINE = re.compile(r'([a-z_:]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def make(broker: Broker, clock: ManualClock, **settings: Any) -> Site:
    service = Service(ServerSettings(**settings), environment={})
    service.context.set_broker(broker)
    return Site(service.app, broker, clock)


def parse(text: str) -> dict[str, float]:
    """By name and labels, as a scraper reads it; every family has its HELP and TYPE before its samples."""
    found, family = {}, ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            assert line.split()[3] in ("counter", "gauge", "histogram")
        else:
            match = _LINE.fullmatch(line)
            assert match is not None, line
            assert match[1] == family or match[1].removeprefix(family) in ("_bucket", "_sum", "_count")
            key = f"{match[1]}{{{match[2]}}}" if match[2] else match[1]
            assert key not in found
            found[key] = float(match[3])
    return found


async def filled(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("jobs", {"type": "queue", "lease_ms": 1_000, "max_deliveries": 1, "dead_letter": "dead"})
    await broker.produce("jobs", [b"1"] * 10)
    await broker.claim("jobs", node="w", max_count=4)
    clock.advance(2_000)
    await broker.claim("jobs", node="w", max_count=2)


async def test_a_queue_is_told_by_its_depths_and_its_ages(broker: Broker, clock: ManualClock):
    await filled(broker, clock)
    reply = await make(broker, clock).get("/v0/metrics", headers=LOCAL)
    assert reply.status == 200
    assert reply.response.content_type.startswith(b"text/plain; version=0.0.4")
    found = parse(reply.raw.decode())
    about = broker.topic("jobs").queue
    assert about is not None
    for name in ("ready", "in_flight", "delayed", "parked"):
        assert found[f'tenure_queue_{name}{{topic="jobs"}}'] == getattr(about, name)
    assert found['tenure_queue_oldest_ready_ms{topic="jobs"}'] == 2_000
    assert found['tenure_queue_dead_lettered_total{topic="jobs"}'] == 4
    assert found['tenure_queue_expired_total{topic="jobs"}'] == found["tenure_expired_total"] == 4
    assert found["tenure_produced_total"] == 10
    assert found['tenure_topic_records{topic="dead"}'] == 4
    assert 'tenure_queue_ready{topic="dead"}' not in found


async def test_losses_returns_and_suspects_are_counted(broker: Broker, clock: ManualClock):
    await broker.put_topic("jobs", {"type": "queue", "lease_ms": 1_000})
    await broker.produce("jobs", [b"1"] * 10)
    await broker.claim("jobs", node="w", max_count=3, isolate=True)
    await broker.return_jobs("jobs", node="w", seqs=[1])
    clock.advance(2_000)
    claimed = await broker.claim("jobs", node="v", isolate=True, suspects=True)
    assert claimed.lease_id is not None
    await broker.begin("jobs", node="v", seq=2, lease_id=claimed.lease_id)
    found = parse((await make(broker, clock).get("/v0/metrics", headers=LOCAL)).raw.decode())
    assert found['tenure_queue_lost_total{topic="jobs"}'] == found["tenure_lost_total"] == 2
    assert (found["tenure_returned_total"], found["tenure_begun_total"]) == (1, 1)
    assert found["tenure_expired_total"] == 2, "their leases ran out"
    assert found['tenure_queue_suspects{topic="jobs"}'] == 1
    assert found['tenure_queue_ready{topic="jobs"}'] == 9


async def test_histograms_are_cumulative(broker: Broker, clock: ManualClock):
    await filled(broker, clock)
    found = parse((await make(broker, clock).get("/v0/metrics", headers=LOCAL)).raw.decode())
    buckets = [value for name, value in found.items() if name.startswith("tenure_batch_frames_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["tenure_batch_frames_count"] == found['tenure_batch_frames_bucket{le="+Inf"}'] > 0
    assert "tenure_fsync_ms_count" in found


async def test_json_has_the_same_numbers(broker: Broker, clock: ManualClock):
    await filled(broker, clock)
    site = make(broker, clock)
    reply = await site.get("/v0/metrics", headers=LOCAL | {"accept": "application/json"})
    assert reply["metrics"]["tenure_produced_total"] == 10
    assert {"topic": "jobs", "value": 4} in reply["metrics"]["tenure_queue_expired_total"]
    assert reply["performance"]["server_total_ms"] >= 0


async def test_topics_beyond_the_limit_are_counted_and_not_listed(broker: Broker, clock: ManualClock):
    for number in range(5):
        await broker.put_topic(f"t{number}")
    found = parse((await make(broker, clock, metrics_topics_max=2).get("/v0/metrics", headers=LOCAL)).raw.decode())
    assert sum(name.startswith("tenure_topic_records") for name in found) == 2
    assert (found["tenure_topics"], found["tenure_topics_omitted"]) == (5, 3)


async def test_requests_are_counted_by_route_and_class_of_status(broker: Broker, clock: ManualClock):
    site = make(broker, clock)
    await site.get("/v0/topics/none", headers=LOCAL)
    await site.put("/v0/topics/a", {}, headers=LOCAL)
    await site.get("/nowhere", headers=LOCAL)
    await site.get("/v0/topics/none", headers={"host": "evil.example"})
    found = parse((await site.get("/v0/metrics", headers=LOCAL)).raw.decode())
    assert found['tenure_requests_total{method="GET",route="/v0/topics/:topic",status="4xx"}'] == 2
    assert found['tenure_requests_total{method="PUT",route="/v0/topics/:topic",status="2xx"}'] == 1
    assert found['tenure_requests_total{method="-",route="-",status="4xx"}'] == 1


def test_labels_are_escaped():
    family = Family("x", "gauge", "about", [("", {"topic": 'a"b\\c\nd'}, 0.5)])
    assert as_text([family]).splitlines()[-1] == r'x{topic="a\"b\\c\nd"} 0.5'
    assert Traffic().family().samples == []


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/json", True),
        ("Application/JSON; q=0.9, */*;q=0.1", True),
        ("text/plain;version=0.0.4;q=0.5,application/json;q=0.4", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/json;q=x", False),
    ],
)
def test_json_comes_only_where_it_is_asked_for(accept: str, expected: bool):
    assert wants_json(accept) is expected


class ReadCountingLog(MemoryLog):
    """A log that counts how often something is read of it."""

    reads = 0

    def read(self, location: int) -> tuple[int, int, bytes]:
        self.reads += 1
        return super().read(location)

    def check(self, location: int) -> tuple[int, int]:
        self.reads += 1
        return super().check(location)

    def read_part(self, location: int, start: int, count: int) -> bytes:
        self.reads += 1
        return super().read_part(location, start, count)


@pytest.mark.parametrize("path", ["/v0/topics?page_size=1000", "/v0/topics/q3", "/v0/topics/q3/strip", "/v0/metrics"])
async def test_a_look_at_many_queues_of_large_jobs_reads_none_of_them(clock: ManualClock, path: str):
    log = ReadCountingLog()
    async with await Broker.open(log, clock=clock) as broker:
        for number in range(20):
            await broker.put_topic(f"q{number}", {"type": "queue"})
            await broker.produce(f"q{number}", [b"x" * ((1 << 20) - 200)])
        clock.advance(3_000)
        log.reads = 0
        reply = await make(broker, clock).get(path, headers=LOCAL)
        assert reply.status == 200
        assert re.search(rb'oldest_ready_ms(":|{topic="q3"} )3000', reply.raw)
        assert log.reads == 0
        await broker.claim("q3", node="w")
        assert log.reads > 0, "where a job is handed out, its payload is read"
