"""The network between a member and its store: what each fault does to a create, on a real store."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tenure.objects.store import ObjectExists, ObjectMissing, ObjectStore, OutcomeUnknown, open_store
from tests.kit.store_proxy import CALM, Faults, StoreProxy, store_proxy

DATA = b"some bytes" * 1_000


@pytest.fixture
def proxied(s3_server: str) -> Iterator[tuple[StoreProxy, ObjectStore, ObjectStore]]:
    """A proxy, a store through it, and the same store without it."""
    url = s3_server.format(name=f"proxied-{secrets.token_hex(4)}")
    endpoint = url.partition("endpoint=")[2]
    with store_proxy(urlsplit(endpoint).port or 0) as proxy:
        yield proxy, open_store(url.replace(endpoint, proxy.url)), open_store(url)


Proxied = tuple[StoreProxy, ObjectStore, ObjectStore]


async def read(store: ObjectStore, key: str) -> bytes | None:
    try:
        return await store.get(key, limit_bytes=1 << 20)
    except ObjectMissing:
        return None


async def test_what_passes_is_what_was_sent(proxied: Proxied):
    proxy, store, direct = proxied
    await store.put_new("a", DATA)
    assert await read(store, "a") == await read(direct, "a") == DATA
    assert [info.key async for info in store.list("")] == ["a"]
    assert (await store.head("a")).bytes == len(DATA)
    assert await read(store, "b") is None
    with pytest.raises(ObjectExists):
        await store.put_new("a", b"other")
    await store.delete(["a"])
    assert await read(direct, "a") is None
    assert proxy.met["PUT"] == 2


async def test_a_doubled_create_meets_its_own_first_copy(proxied: Proxied):
    proxy, store, direct = proxied
    proxy.faults = Faults(double=1)
    with pytest.raises(ObjectExists):
        await store.put_new("a", DATA)
    assert await read(direct, "a") == DATA


async def test_a_create_whose_reply_is_lost_is_there(proxied: Proxied):
    proxy, store, direct = proxied
    proxy.faults = Faults(lose_reply=1)
    with pytest.raises(OutcomeUnknown):
        await store.put_new("a", DATA)
    assert await read(direct, "a") == DATA


async def test_a_lost_create_is_not_there_and_a_late_one_comes_after_its_sender_gave_up(proxied: Proxied):
    proxy, store, direct = proxied
    proxy.faults = Faults(lose_request=1)
    with pytest.raises(OutcomeUnknown):
        await store.put_new("a", DATA)
    proxy.faults = Faults(late=1)
    with pytest.raises(OutcomeUnknown):
        await store.put_new("b", DATA)
    async with asyncio.timeout(60):
        while await read(direct, "b") != DATA:
            await asyncio.sleep(0.02)
    assert await read(direct, "a") is None


async def test_nothing_passes_a_cut_network_until_it_is_whole_again(proxied: Proxied):
    proxy, store, _ = proxied
    proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await store.put_new("a", DATA)
    proxy.accept()
    proxy.stall()
    waiting = asyncio.create_task(store.put_new("a", DATA))
    async with asyncio.timeout(60):
        while not proxy.met["PUT"]:
            await asyncio.sleep(0.005)
    assert not waiting.done()
    proxy.resume()
    await waiting
    assert proxy.faults == CALM
