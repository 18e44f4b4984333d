"""The hello of a worker: what becomes of the jobs of the process that it follows, and which bodies are refused."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tenure import Broker
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.testing import ManualClock
from tests.http.conftest import Reply, Site
from tests.http.test_losses import lose, old, take
from tests.http.test_queues import Q, make
from tests.http.test_work import listen
from tests.kit.brokers import numbers

__all__ = ["old"]


async def hello(site: Site, *, queues: Any = ("transcode",), **fields: Any) -> Reply:
    return await site.post("/v0/workers/hello", {"node": "next", "queues": queues, **fields})


async def test_a_first_hello_says_whether_tries_are_kept_apart_and_where_suspects_wait(site: Site) -> None:
    await make(site, 1, 2)
    await make(site, 3, name="mail")
    assert (await hello(site))["returns"] is True
    await lose(site)
    await site.get(Q)  # which lets the time pass that the leases ran out in
    reply = await hello(site, queues=["transcode", "mail", "nowhere"], host="h", version="1", group="g", held=3)
    assert (reply.status, reply["returns"], reply["suspects"]) == (200, True, {"transcode": 2})


async def test_what_a_process_had_begun_is_lost_and_the_rest_is_given_back(site: Site) -> None:
    await make(site, *range(1, 6))
    await take(site, max=4)
    await hello(site, gone=[{"node": "w", "exit_code": 137, "begun": {"transcode": [1, 3, 99]}}])
    jobs = {seq: await site.get(f"{Q}/jobs/{seq}") for seq in range(1, 6)}
    assert [seq for seq, job in jobs.items() if job.json.get("lost")] == [1, 3]
    ended = {seq: job["history"][0] for seq, job in jobs.items() if job["history"]}
    assert {seq: (each["end"], each.get("reason")) for seq, each in ended.items()} == {
        **dict.fromkeys((1, 3), ("lost", "exit code 137")),
        **dict.fromkeys((2, 4), ("returned", None)),
    }
    assert all(job["tries"] == 0 for seq, job in jobs.items() if seq != 5)


async def test_a_hello_ends_the_grace_of_a_cut_stream_at_once(site: Site) -> None:
    await make(site, 1, 2)
    stream = await listen(site, "node=w&max=2&isolate=true")
    await stream.events(2)
    await stream.hang_up()
    assert numbers(site.broker, "transcode")["in_flight"] == 2
    await hello(site, gone=[{"node": "w", "exit_code": -9, "begun": {"transcode": [2]}}])
    assert numbers(site.broker, "transcode")["ready"] == 2
    site.clock.advance(60_000)
    assert [each["end"] for each in (await site.get(f"{Q}/jobs/1"))["history"]] == ["returned"]


async def test_a_repeat_of_a_hello_changes_nothing(site: Site) -> None:
    await make(site, 1, 2)
    await take(site, max=2)
    gone = [{"node": "w", "exit_code": 1, "begun": {"transcode": [1]}}]
    await hello(site, gone=gone)
    before = site.state()
    assert (await hello(site, gone=gone))["suspects"] == {"transcode": 1}
    assert site.state() == before


async def test_what_was_claimed_without_isolation_stays_with_its_worker(site: Site) -> None:
    await make(site, 1)
    await site.post(f"{Q}/claim", {"node": "w"})
    await hello(site, gone=[{"node": "w", "begun": {"transcode": [1]}}])
    assert numbers(site.broker, "transcode")["in_flight"] == 1


async def test_a_queue_that_is_gone_by_then_is_passed_over(site: Site) -> None:
    await make(site, 1)
    await site.put("/v0/topics/log")
    await take(site)
    gone = [{"node": "w", "begun": {"nowhere": [1], "log": [1], "transcode": [1]}}]
    reply = await hello(site, queues=["nowhere", "log"], gone=gone)
    assert (reply.status, reply["suspects"]) == (200, {"transcode": 1})


async def test_the_death_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await make(site, 1, 2)
    await take(site, max=2)
    with caplog.at_level(logging.INFO, "tenure.http"):
        await hello(site, gone=[{"node": "w", "exit_code": 137, "begun": {"transcode": [1]}}])
    assert "worker 'w' ended with exit code 137, says 'next'" in caplog.text
    assert "1 jobs that it had begun are lost, 1 others given back" in caplog.text


async def test_a_hello_for_many_processes_lets_others_have_their_turn_between_them(site: Site) -> None:
    await make(site, 1)
    loop, turns, named = asyncio.get_running_loop(), 0, list[int]()
    end_node = site.broker.end_node

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    def note(*args: Any, **options: Any) -> Any:
        named.append(turns)
        return end_node(*args, **options)

    site.broker.end_node = note  # type: ignore[method-assign]
    turn()
    await hello(site, gone=[{"node": f"w-{n}"} for n in range(16)])
    assert len(set(named)) == 16, "each process has a turn of the loop of its own"


async def test_with_the_feature_off_a_hello_changes_nothing(old: Site) -> None:
    await make(old, 1)
    await take(old)
    before = old.state()
    reply = await hello(old, gone=[{"node": "w", "begun": {"transcode": [1]}}])
    assert (reply.status, reply["returns"], reply["suspects"]) == (200, False, {})
    assert old.state() == before


GONE: list[Any] = [
    {},
    {"node": ""},
    {"node": 7},
    {"node": "w", "exit_code": 2**31},
    {"node": "w", "exit_code": -(2**31) - 1},
    {"node": "w", "exit_code": "9"},
    {"node": "w", "exit_code": 1.5},
    {"node": "w", "begun": []},
    {"node": "w", "begun": {"transcode": 1}},
    {"node": "w", "begun": {"transcode": [-1]}},
    {"node": "w", "begun": {"transcode": ["1"]}},
    {"node": "w", "begun": {"transcode": [2**64]}},
    {"node": "w", "begun": {"": [1]}},
    {"node": "w", "begun": {"a/b": [1]}},
    {"node": "w", "begun": {"transcode": [1] * 10_001}},
]


@pytest.mark.parametrize(
    "wrong",
    [
        {"node": ""},
        {"node": None},
        {"node": "n" * 1_000},
        {"queues": None},
        {"queues": "transcode"},
        {"queues": [1]},
        {"queues": [""]},
        {"queues": ["a/b"]},
        {"queues": ["q" * 300]},
        {"queues": [f"q{number}" for number in range(10_000)]},
        {"group": 7},
        {"host": "h" * 256},
        {"version": "v" * 65},
        {"held": -1},
        {"held": "3"},
        {"gone": {}},
        {"gone": [{"node": f"w{number}"} for number in range(17)]},
        *({"gone": [one]} for one in GONE),
    ],
    ids=lambda wrong: str(wrong)[:60],
)
async def test_a_wrong_hello_is_refused(site: Site, wrong: dict[str, Any]) -> None:
    await make(site, 1)
    await take(site)
    before = site.state()
    refused = await hello(site, **wrong)
    assert refused.status in (400, 413), refused.raw
    assert refused.code in ("invalid_request", "payload_too_large")
    assert site.state() == before


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b'{"node":"w"}', b'"hello"', b"\xff"])
async def test_a_body_that_is_no_hello_is_refused(site: Site, body: bytes) -> None:
    refused = await site.post("/v0/workers/hello", body)
    assert (refused.status, refused.code) == (400, "invalid_request")


@pytest.fixture
async def shared(broker: Broker, clock: ManualClock) -> Site:
    """A server with two tenants, each with a queue of which a worker of the name ``w`` holds a job."""
    service = Service(ServerSettings(), environment={"TENURE_API_KEYS": "root,blue:w:blue.,reader:r:blue."})
    service.context.set_broker(broker)
    for name in ("blue.q", "red.q"):
        await broker.put_topic(name, {"type": "queue"})
        await broker.produce(name, [b"1"])
        await broker.claim(name, node="w", isolate=True)
    return Site(service.app, broker, clock)


@pytest.mark.parametrize(
    "said",
    [
        {"queues": ["red.q"]},
        {"queues": ["blue.q", "red.q"], "gone": [{"node": "w"}]},
        {"queues": ["blue.q"], "gone": [{"node": "w", "begun": {"red.q": [1]}}]},
    ],
    ids=str,
)
async def test_a_hello_about_queues_of_another_prefix_is_forbidden(shared: Site, said: dict[str, Any]) -> None:
    before = shared.state()
    headers = {"host": "queue.example", "authorization": "Bearer blue"}
    refused = await shared.post("/v0/workers/hello", {"node": "next", **said}, headers=headers)
    assert (refused.status, refused.code) == (403, "forbidden")
    assert shared.state() == before


async def test_a_process_of_the_same_name_loses_nothing_in_another_tenants_queues(shared: Site) -> None:
    headers = {"host": "queue.example", "authorization": "Bearer blue"}
    said = {"node": "next", "queues": ["blue.q"], "gone": [{"node": "w", "begun": {"blue.q": [1]}}]}
    assert (await shared.post("/v0/workers/hello", said, headers=headers))["suspects"] == {"blue.q": 1}
    assert numbers(shared.broker, "red.q")["in_flight"] == 1


async def test_a_hello_needs_the_scope_to_write(shared: Site) -> None:
    headers = {"host": "queue.example", "authorization": "Bearer reader"}
    refused = await shared.post("/v0/workers/hello", {"node": "next", "queues": ["blue.q"]}, headers=headers)
    assert (refused.status, refused.code) == (403, "forbidden")
