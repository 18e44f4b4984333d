"""The contract of a store, on each kind."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.errors import Invalid
from tenure.objects.store import ObjectExists, ObjectMissing, ObjectStore, OutcomeUnknown


async def test_a_key_is_created_once(store: ObjectStore):
    await store.put_new("a/b", b"first")
    with pytest.raises(ObjectExists):
        await store.put_new("a/b", b"second")
    assert await store.get("a/b", limit_bytes=100) == b"first"


async def test_of_many_that_create_a_key_at_once_one_wins(store: ObjectStore):
    async def attempt(number: int) -> int | None:
        # A server that is unsure (409, 503) has not said who won: repeat until it knows.
        for _ in range(50):
            try:
                await store.put_new("contested", b"%d" % number)
            except ObjectExists:
                return None
            except OutcomeUnknown:
                continue
            return number
        raise AssertionError("the store never knew")

    winners = [number for number in await asyncio.gather(*map(attempt, range(16))) if number is not None]
    assert len(winners) <= 1
    found = int(await store.get("contested", limit_bytes=100))
    assert winners in ([], [found])


async def test_put_replaces(store: ObjectStore):
    await store.put("a", b"first")
    await store.put("a", b"second")
    assert await store.get("a", limit_bytes=100) == b"second"


async def test_what_is_not_there_is_missing(store: ObjectStore):
    with pytest.raises(ObjectMissing):
        await store.get("a", limit_bytes=1)
    with pytest.raises(ObjectMissing):
        await store.head("a")
    await store.delete(["a", "b"])


async def test_a_part_of_an_object_can_be_read(store: ObjectStore):
    await store.put_new("a", b"0123456789")
    assert await store.get("a", start=2, length=3, limit_bytes=100) == b"234"
    assert (await store.head("a")).bytes == 10


async def test_an_object_beyond_the_limit_is_not_read(store: ObjectStore):
    await store.put_new("a", b"0123456789")
    with pytest.raises(Invalid, match="bytes"):
        await store.get("a", limit_bytes=9)


async def test_a_listing_is_in_order_and_starts_behind_a_key(store: ObjectStore):
    for key in ("m/run-2", "m/1", "m/run-1", "m/checkpoint-1", "n/1", "z"):
        await store.put_new(key, b"x")
    assert [info.key async for info in store.list("m/")] == ["m/1", "m/checkpoint-1", "m/run-1", "m/run-2"]
    assert [info.key async for info in store.list("m/run-")] == ["m/run-1", "m/run-2"]
    assert [info.key async for info in store.list("m/", "m/checkpoint-1")] == ["m/run-1", "m/run-2"]
    assert [info.key async for info in store.list("")] == ["m/1", "m/checkpoint-1", "m/run-1", "m/run-2", "n/1", "z"]


async def test_a_copy_stands_beside_its_source_and_replaces_what_was_there(store: ObjectStore):
    await store.put_new("staged/day=2026-11-15/a b%3A", b"rows")
    for _ in range(2):
        await store.copy("staged/day=2026-11-15/a b%3A", "table/day=2026-11-15/c b%3A")
    await store.put_new("other", b"other")
    await store.copy("other", "table/day=2026-11-15/c b%3A")
    await store.delete(["other"])
    assert await store.get("table/day=2026-11-15/c b%3A", limit_bytes=100) == b"other"
    assert await store.get("staged/day=2026-11-15/a b%3A", limit_bytes=100) == b"rows"
    assert [info.key async for info in store.list("table/")] == ["table/day=2026-11-15/c b%3A"]
    with pytest.raises(ObjectMissing):
        await store.copy("other", "elsewhere")


async def test_many_objects_are_deleted_and_listed_page_by_page(store: ObjectStore):
    keys = [f"d/{number:04}" for number in range(1_100)]
    for first in range(0, 1_100, 50):
        await asyncio.gather(*(store.put_new(key, b"") for key in keys[first : first + 50]))
    assert [info.key async for info in store.list("d/")] == keys
    await store.delete(keys[:-1])
    assert [info.key async for info in store.list("d/")] == keys[-1:]


async def test_the_store_has_a_clock_and_stamps_its_objects(store: ObjectStore):
    await store.put_new("a", b"x")
    now_ms = await store.now_ms()
    assert abs(now_ms - time.time() * 1000) < 60_000
    assert abs(now_ms - (await store.head("a")).modified_ms) < 60_000
    assert [info.key async for info in store.list("")] == ["a"]
