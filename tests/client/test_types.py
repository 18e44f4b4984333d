"""A user's project type-checks clean under both mypy --strict and pyright, and both see the exact signatures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = '''
"""What a user writes."""

import asyncio
from typing import Any, assert_type

import msgspec

import tenure
from tenure import AsyncClient, Client
from tenure.client import (
    AsyncFeed,
    AsyncLease,
    AsyncProducer,
    AsyncQueue,
    Claimed,
    ClientSettings,
    Extended,
    Feed,
    Gap,
    HeldJob,
    Job,
    Lease,
    Lifecycle,
    Produced,
    Producer,
    Queue,
    Settled,
    TopicInfo,
    WatchEvent,
)


class Email(msgspec.Struct):
    to: str


def blocking() -> None:
    with Client("http://127.0.0.1:4000", key="k", node="me", settings=ClientSettings(attempts_max=3)) as client:
        assert_type(client, Client)
        assert_type(client.produce("t", [Email("you"), b"1"], idempotency_key="k"), Produced)
        assert_type(client.topic("t", touch=True), TopicInfo)
        claimed = client.claim("t", max_count=5, wait_ms=100)
        assert_type(claimed, Claimed)
        assert_type(claimed.jobs, list[Job])
        assert_type(client.ack("t", [1], lease_id=claimed.lease_id), Settled)
        assert_type(client.extend("t", [1], lease_ms=1_000), Extended)
        assert_type(client.delete_router("r"), bool)
        client.put_topic("t", type="queue", lease_ms=5_000)
        assert_type(Client.topic(client, "t"), TopicInfo)
        queue = client.queue("emails", Email)
        assert_type(queue, Queue[Email])
        assert_type(queue.put(Email("you"), delay_ms=10), int)
        lease = queue.claim(max_count=2)
        assert_type(lease, Lease[Email])
        with lease:
            for job in lease:
                assert_type(job, HeldJob[Email])
                assert_type(job.data, Email)
            assert_type(lease.ack(), int)
        assert_type(client.queue("any").claim().jobs[0].data, Any)
        assert_type(client.producer("emails", linger_ms=1), Producer)
        assert_type(client.events("t", last_event_id="1"), Feed[Lifecycle | Gap])
        for jobs in client.work("emails", max_count=5):
            assert_type(jobs, list[Job])
        for event in client.watch({"t": None}):
            assert_type(event, WatchEvent)


async def asynchronous() -> None:
    async with AsyncClient() as client:
        assert_type(client, AsyncClient)
        assert_type(await client.produce("t", [Email("you")], create=False), Produced)
        assert_type(await client.claim("t", node="n", lease_ms=1), Claimed)
        assert_type(await client.nack("t", [1], reason="no", dead=True), Settled)
        assert_type(await AsyncClient.topic(client, "t"), TopicInfo)
        assert_type(client.queue("any"), AsyncQueue[Any])
        queue = client.queue("emails", Email)
        assert_type(queue, AsyncQueue[Email])
        assert_type(await queue.put_many([Email("you")]), range)
        lease = await queue.claim()
        assert_type(lease, AsyncLease[Email])
        async with lease:
            assert_type(await lease.extend(lease_ms=5), int)
        async with client.work("emails") as work:
            async for jobs in work:
                assert_type(jobs, list[Job])
        async with client.events("emails") as events:
            async for row in events:
                assert_type(row, Lifecycle | Gap)
        assert_type(client.watch(["t"], strong=True), AsyncFeed[WatchEvent])
        async with client.producer("emails", linger_ms=1) as producer:
            assert_type(producer, AsyncProducer)
            assert_type(await producer.put(Email("you")), int)


try:
    asyncio.run(asynchronous())
except tenure.Indeterminate as error:
    print(error.code, error.detail)
'''

BAD = """
import tenure


async def wrong(client: tenure.AsyncClient, plain: tenure.Client) -> None:
    await client.produce("t")
    await client.produce("t", [1], idempotency="k")
    await client.claim("t", 5)
    plain.ack("t", seqs="1", strict="yes")
    await plain.health()
    first: str = plain.produce("t", [1]).first_seq
    client.queue("q", int).put(1) + 1
    client.queue("q", int).claim(maximum=1)
    client.work("t", 5)
    plain.events("t", last="1")
    plain.producer("t", linger=1)
    async for _ in plain.work("t"):
        pass
"""
WRONG_LINES = 12


MYPY = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".cache", "--config-file", "")
PYRIGHT = (str(Path(sys.executable).with_name("pyright")), "--pythonpath", sys.executable)


@pytest.mark.parametrize(
    "checker", [pytest.param(MYPY, id="mypy"), pytest.param(PYRIGHT, id="pyright", marks=pytest.mark.full)]
)
def test_type_checkers_see_the_exact_signatures(checker: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = [*checker, "good.py", "bad.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110).stdout
    found = set(re.findall(r"(\w+)\.py:(\d+):.*\berror:", said))
    assert [line for name, line in found if name != "bad"] == [], said
    assert len(found) == WRONG_LINES, said
