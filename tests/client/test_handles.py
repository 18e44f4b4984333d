"""Queues and leases as objects, of both kinds."""

from __future__ import annotations

import inspect
from unittest.mock import create_autospec

import msgspec
import pytest

from tenure import AsyncClient, Client, Invalid, LeaseLost, NotFound, Record
from tests.client.both_clients import Both, make_client


class Email(msgspec.Struct):
    to: str


async def test_a_queue_takes_values_and_gives_them_back(client: Both, name: str) -> None:
    queue = Both(client.inner.queue(name, Email))
    assert await queue.put(Email("you"), tag="t", meta={"trace": 1}) == 1
    assert list(await queue.put_many([Email("a"), {"to": "b"}, Record(data=b'{"to":"c"}', delay_ms=60_000)])) == [
        2,
        3,
        4,
    ]
    lease = await queue.claim(max_count=10)
    assert [job.data for job in lease] == [Email("you"), Email("a"), Email("b")]
    first = lease.jobs[0]
    assert (first.seq, first.tag, first.meta, first.deliveries) == (1, "t", {"trace": 1}, 1)
    assert (len(lease), lease.lease_id is not None, lease.deadline > first.ts) == (3, True, True)
    assert await Both(lease).ack() == 3
    assert (lease.held, await Both(lease).ack()) == ([], 0)
    assert (await client.topic(name)).queue.delayed == 1


async def test_a_job_that_does_not_fit_says_so_and_leaves_the_others(client: Both, name: str) -> None:
    queue = Both(client.inner.queue(name, Email))
    await queue.put_many([1, {"to": "a"}])
    bad, good = await queue.claim(max_count=2)
    with pytest.raises(Invalid):
        _ = bad.data
    assert good.data == Email("a")


async def test_a_lease_is_settled_in_parts(client: Both, name: str) -> None:
    queue = Both(client.inner.queue(name))
    await queue.put_many(range(4))
    inner = await queue.claim(max_count=4)
    lease = Both(inner)
    assert await lease.ack([inner.jobs[0], 2]) == 2
    assert await lease.nack([3], reason="later", delay_ms=60_000) == 1
    before = inner.deadline
    assert await lease.extend(lease_ms=100_000) > before
    assert [job.seq for job in inner.held] == [4]
    with pytest.raises(Invalid):
        await lease.ack([99])
    assert await lease.nack(dead=True) == 1
    counts = (await client.topic(name)).queue
    assert (counts.ready, counts.in_flight, counts.delayed) == (0, 0, 1)


async def test_leaving_a_lease_acks_what_it_holds(client: Both, name: str) -> None:
    queue = Both(client.inner.queue(name))
    await queue.put_many([1, 2])
    async with Both(await queue.claim(max_count=2)) as lease:
        await lease.nack([2])
    assert (await client.topic(name)).queue.ready == 1


async def test_leaving_a_lease_with_an_error_gives_its_jobs_back_with_the_reason(client: Both, name: str) -> None:
    queue = Both(client.inner.queue(name))
    await queue.put(1)
    with pytest.raises(RuntimeError, match="no luck"):
        async with Both(await queue.claim()):
            raise RuntimeError("no luck")
    about = await client.job(name, 1)
    assert (about.state, about.reason) == ("ready", "RuntimeError: no luck")


async def test_a_lease_that_was_lost_says_which_jobs(client: Both, name: str) -> None:
    """Fault 40."""
    queue = Both(client.inner.queue(name))
    await queue.put_many([1, 2])
    inner = await queue.claim(max_count=2)
    await client.nack(name, [2])
    with pytest.raises(LeaseLost) as extended:
        await Both(inner).extend()
    assert extended.value.detail["skipped"] == [2]
    assert await Both(inner).ack() == 1, "what is left is still ours"
    with pytest.raises(LeaseLost):
        await Both(inner).ack([2])


async def test_an_empty_claim_is_an_empty_lease(client: Both, name: str) -> None:
    queue = Both(client.inner.queue(name))
    with pytest.raises(NotFound):
        await queue.claim()
    await queue.put(1)
    assert len(await queue.claim(auto_ack=True)) == 1
    lease = await queue.claim(wait_ms=1)
    assert (list(lease), lease.lease_id, bool(lease)) == ([], None, False)
    async with Both(lease):
        pass


async def test_bad_input_to_a_queue_is_invalid(client: Both, name: str) -> None:
    for bad in ("", "a/b"):
        with pytest.raises(Invalid):
            client.inner.queue(bad)
    queue = Both(client.inner.queue(name))
    with pytest.raises(Invalid):
        await queue.put(1, meta=[1])
    with pytest.raises(Invalid):
        await queue.put(object())


def test_every_call_is_documented_and_the_same_on_both() -> None:
    calls = [n for n in dir(Client) if not n.startswith("_")]
    assert calls == [n for n in dir(AsyncClient) if not n.startswith("_")]
    for name in calls:
        blocking, awaited = getattr(Client, name), getattr(AsyncClient, name)
        assert blocking.__doc__, name
        assert blocking.__doc__ == awaited.__doc__, name
        if callable(blocking):
            assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters, name


@pytest.mark.parametrize("url", ["http://127.0.0.1:4001", "https://example.test/tenure"])
async def test_a_client_says_where_it_leads_and_never_its_key(kind: str, url: str) -> None:
    async with make_client(kind, url, key="a-secret-key", node="me") as client:
        assert repr(client.inner) == f"<{type(client.inner).__name__} {url} node='me'>"


async def test_handles_say_what_they_are_of_and_not_what_is_in_the_jobs(client: Both, name: str) -> None:
    inner = client.inner.queue(name, Email)
    assert repr(inner) == f"<{type(inner).__name__} {name!r} of Email>"
    await Both(inner).put_many([Email("secret"), Record(data=b'{"to":"secret"}', tag="late")])
    lease = await Both(inner).claim(max_count=2)
    await Both(lease).ack([1])
    said = f"{lease.lease_id} of {name!r}: 1 of 2 jobs held, deadline={lease.deadline}"
    assert repr(lease) == f"<{type(lease).__name__} {said}>"
    assert [repr(job) for job in lease] == ["<HeldJob 1 deliveries=1>", "<HeldJob 2 tag='late' deliveries=1>"]


async def test_whatever_puts_first_makes_a_careful_queue(client: Both, name: str) -> None:
    async with Both(client.inner.producer(f"{name}-gathered")) as producer:
        assert await producer.put(1) == 1
    await Both(client.inner.queue(f"{name}-plain")).put(1)
    for made in (f"{name}-gathered", f"{name}-plain"):
        config = (await client.topic(made)).config
        told = (config.type, config.durability, config.max_deliveries, config.dead_letter)
        assert told == ("queue", "fsync", 5, f"{made}.dead")


def test_calls_look_like_methods_to_help_to_inspect_and_to_mocks() -> None:
    for kind in (Client, AsyncClient):
        assert "Lease up to" in (kind.claim.__doc__ or "")
        assert list(inspect.signature(kind.claim).parameters)[:3] == ["self", "topic", "node"]
        assert inspect.signature(kind.claim).return_annotation == "Claimed"
        assert kind.work.__qualname__ == f"{kind.__name__}.work"
        mocked = create_autospec(kind, instance=True)
        with pytest.raises(TypeError):
            mocked.claim("t", maxcount=1)
    assert inspect.iscoroutinefunction(AsyncClient.claim)
    assert not inspect.iscoroutinefunction(Client.claim)
    assert inspect.signature(Client.work).return_annotation == "Feed[list[Job]]"
    assert inspect.signature(AsyncClient.work).return_annotation == "AsyncFeed[list[Job]]"
