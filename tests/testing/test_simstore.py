"""The simulated store: its clients, and what it can lose."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.objects.store import ObjectExists, ObjectMissing, ObjectStore, OutcomeUnknown, StoreRefused
from tenure.testing import SimStore
from tenure.testing.simdisk import PowerLoss
from tenure.testing.simstore import Call, Fault, Hold


async def test_clients_share_the_objects_and_their_calls_are_told_apart():
    store = SimStore()
    one, two = store.client("one"), store.client("two")
    assert isinstance(one, ObjectStore)
    await one.put_new("a/k", b"x")
    with pytest.raises(ObjectExists):
        await two.put_new("a/k", b"y")
    assert await store.get("a/k", limit_bytes=1) == b"x"
    assert [(call.number, call.client, call.kind) for call in store.calls] == [
        (0, "one", "put_new"),
        (1, "two", "put_new"),
        (2, "", "get"),
    ]
    assert (store.count("put_new"), store.count("put_new", client="two"), store.count("put_new", "b/")) == (2, 1, 0)


@pytest.mark.parametrize(("how", "arrives"), [("lost_request", False), ("lost_reply", True)])
async def test_a_client_that_is_cut_off_does_not_disturb_the_other(how: Fault, arrives: bool):
    store = SimStore()
    one, two = store.client("one"), store.client("two")
    store.cut_off("one", how)
    with pytest.raises(OutcomeUnknown):
        await one.put("k", b"x")
    assert ("k" in store.objects) == arrives
    await two.put("other", b"x")
    store.reconnect("one")
    await one.put("k", b"x")


@pytest.mark.parametrize(("how", "arrives"), [("crash_before", False), ("crash_after", True)])
async def test_a_client_that_crashes_makes_no_further_call_and_its_successor_does(how: Fault, arrives: bool):
    store = SimStore()
    first = store.client("broker")
    store.fail(0, how)
    for _ in range(2):
        with pytest.raises(PowerLoss):
            await first.put_new("k", b"x")
    assert len(store.calls) == 1
    found = store.client("broker").head("k")
    if arrives:
        assert (await found).bytes == 1
    else:
        with pytest.raises(ObjectMissing):
            await found


async def test_a_call_that_was_under_way_when_its_client_crashed_may_still_arrive():
    store = SimStore()
    client = store.client("broker")
    held = store.hold(0)
    task = asyncio.create_task(client.put_new("k", b"x"))
    await held.reached.wait()
    client.crash()
    held.release()
    with pytest.raises(PowerLoss):
        await task
    assert "k" in store.objects


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_call_can_be_held_before_or_after_it_is_carried_out(is_done: bool):
    store = SimStore()
    held = store.hold(0, is_done=is_done)
    task = asyncio.create_task(store.put_new("k", b"x"))
    await held.reached.wait()
    assert ("k" in store.objects) == is_done
    held.release()
    await task
    assert "k" in store.objects


async def test_a_held_call_arrives_when_it_is_released_although_its_caller_has_given_up():
    """Naive: cancelling a call takes its request back, which no network does."""
    store = SimStore()
    held = store.hold(0)
    task = asyncio.create_task(store.put_new("k", b"x"))
    await held.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.objects == {}
    held.release()
    assert "k" in store.objects


async def test_a_hook_sees_each_call_before_it_happens_and_may_raise_or_hold():
    store = SimStore()
    hold = Hold()

    def hook(call: Call) -> Any:
        match call.number:
            case 0:
                raise PowerLoss
            case 1:
                return hold
        return None

    store.hook = hook
    with pytest.raises(PowerLoss):
        await store.put("k", b"x")
    assert store.objects == {}
    hold.release()
    await store.put("k", b"x")
    assert hold.reached.is_set()


async def test_the_newest_objects_can_be_forgotten_in_the_order_of_their_writes():
    store = SimStore()
    for key in ("a", "b", "c", "a"):
        await store.put(key, b"x")
    assert store.forget_newest(0) == []
    assert store.forget_newest(2) == ["c", "a"]
    assert list(store.objects) == ["b"]


async def test_given_objects_can_be_lost_and_an_old_copy_restored():
    store = SimStore()
    await store.put("a", b"1")
    old = store.snapshot()
    await store.put("a", b"2")
    await store.put("b", b"2")
    store.lose(["a"])
    assert set(store.objects) == {"b"}
    with pytest.raises(KeyError):
        store.lose(["a"])
    store.restore(old)
    assert await store.get("a", limit_bytes=1) == b"1"
    await store.delete(["a"])
    assert old == {"a": (b"1", store.clock_ms)}, "a copy stays as it was"


@pytest.mark.parametrize("how", ["lost_reply", "late"])
async def test_a_lost_answer_is_lost_whatever_it_was(how: Fault):
    """Naive: "exists" comes through although the answer is lost, and a caller's worst case is never tried."""
    store = SimStore()
    await store.put("k", b"x")
    store.hook = lambda call: how
    for call in (store.put_new("k", b"y"), store.head("missing"), store.get("k", limit_bytes=0)):
        with pytest.raises(OutcomeUnknown):
            await call
    store.deliver_late()
    assert store.objects["k"][0] == b"x"


async def test_the_same_seed_shakes_alike_and_another_one_otherwise():
    chances: dict[Fault, float] = {"lost_request": 0.3, "refused": 0.2, "late": 0.2}

    async def outcomes(seed: int) -> list[str]:
        store = SimStore()
        store.shake(seed, chances)
        found = []
        for number in range(50):
            try:
                await store.put_new(f"{number}", b"x")
                found.append("stored")
            except (OutcomeUnknown, StoreRefused) as error:
                found.append(type(error).__name__)
        return found + sorted(store.objects)

    assert await outcomes(1) == await outcomes(1) != await outcomes(2)
