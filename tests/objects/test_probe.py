"""The probe refuses every store that would create a key twice, and no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tenure.errors import Denied
from tenure.objects.cloud_store import CloudStore
from tenure.objects.probe import ROUNDS, WRITERS, probe
from tenure.objects.store import (
    Bytes,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    StoreRefused,
    open_store,
)
from tenure.testing.simstore import Call, Fault, SimStore
from tests.kit.stores import retrying


async def keys_in(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


async def test_a_fair_store_passes_and_nothing_stays_there(store: ObjectStore):
    """Also a real S3 server, whose earlier versions kept conditions only while nobody raced."""
    await probe(retrying(store))
    assert await keys_in(store) == []


@pytest.mark.full
@pytest.mark.parametrize("store", ["file", "s3"], indirect=True)
async def test_a_fair_store_passes_a_hundred_rounds_of_sixteen_writers(store: ObjectStore):
    await probe(retrying(store), rounds=100, writers=16)


async def test_the_probe_takes_as_many_requests_as_its_docstring_and_the_reference_state(sim: SimStore):
    prober = retrying(sim)
    await probe(prober)
    assert prober.store.metrics.requests == {"head": 16, "put_new": 66, "get": 64, "delete": 2}
    assert len(sim.calls) == ROUNDS * (2 * WRITERS + 2) + 4 == 148
    sim.calls.clear()
    await probe(prober, rounds=1)
    assert len(sim.calls) == 22


async def test_every_writer_of_a_race_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch):
    connected: list[CloudStore] = []
    real = CloudStore._connect

    def connect(self: CloudStore) -> Any:
        connected.append(self)
        return real(self)

    monkeypatch.setattr(CloudStore, "_connect", connect)
    await probe(retrying(open_store("memory://")))
    assert len(set(map(id, connected))) == WRITERS + 1


# Stores that are refused


class Ignoring(SimStore):
    """Creates over what is there, as servers do that do not know the condition."""

    async def put_new(self, key: str, data: Bytes) -> None:
        await self.put(key, data)


class Careless(SimStore):
    """Looks first and writes afterwards: fair while nobody races."""

    async def put_new(self, key: str, data: Bytes) -> None:
        try:
            await self.head(key)
        except ObjectMissing:
            return await self.put(key, data)
        raise ObjectExists(key)


class RemembersMissing(SimStore):
    """Has a cache of the keys that were looked for in vain."""

    def __init__(self) -> None:
        super().__init__()
        self._missing: set[str] = set()

    async def head(self, key: str) -> ObjectInfo:
        self._check(key)
        try:
            return await super().head(key)
        except ObjectMissing:
            self._missing.add(key)
            raise

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        self._check(key)
        return await super().get(key, start=start, length=length, limit_bytes=limit_bytes)

    def _check(self, key: str) -> None:
        if key in self._missing:
            raise ObjectMissing(key)


class LastOneStays(SimStore):
    """Answers all writers but the first with "exists", and stores what the last one sent."""

    async def put_new(self, key: str, data: Bytes) -> None:
        def act() -> None:
            taken = key in self.objects
            self._write(key, bytes(data))
            if taken:
                raise ObjectExists(key)

        await self._call("put_new", key, len(data), act)


class ReadsOld(SimStore):
    """Has a copy that lags behind: the n-th read of a key finds there what an earlier write left."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self._nth, self._reads = nth, Counter[str]()

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        self._reads[key] += 1
        is_old = self._reads[key] == self._nth
        data = await super().get(key, start=start, length=length, limit_bytes=limit_bytes)
        return b"7" + data[1:] if is_old else data


class Entombing(SimStore):
    """Refuses every key that it has ever had."""

    def __init__(self) -> None:
        super().__init__()
        self._used: set[str] = set()

    async def put_new(self, key: str, data: Bytes) -> None:
        if key in self._used:
            raise ObjectExists(key)
        self._used.add(key)
        await super().put_new(key, data)


class Keeping(SimStore):
    """Answers that it deleted, and keeps everything."""

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call("delete", "", 0, lambda: None)


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (Ignoring(), "8 of 8 writers that raced for a key were told that they created it"),
        (Careless(), "8 of 8 writers that raced for a key were told that they created it"),
        (RemembersMissing(), "looked for and then created is still reported as missing"),
        (LastOneStays(), "2 of 8 writers that raced for a key were told that they created it"),
        (ReadsOld(2), "two reads of a key that was created once returned different bytes"),
        (ReadsOld(8), "a key holds other bytes than the writer that created it had sent"),
        (Entombing(), "deleted could not be created again"),
        (Keeping(), "deleted could not be created again"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SimStore) else "",
)
async def test_a_store_that_would_lose_commits_is_refused_with_what_it_did(store: SimStore, words: str):
    """Naive: a key is created twice in sequence, and only the first two of these are noticed, the second by luck."""
    with pytest.raises(Denied, match=words) as caught:
        await probe(retrying(store))
    assert caught.value.code == "store_unconditional"
    assert caught.value.detail["url"] == "sim://"
    assert isinstance(store, Keeping) or store.objects == {}


async def test_a_careless_store_is_fair_while_nobody_races():
    store = Careless()
    await store.put_new("k", b"first")
    with pytest.raises(ObjectExists):
        await store.put_new("k", b"second")


# Stores that are fair, and slow, lossy or away


async def test_a_conflict_on_an_empty_key_is_no_reason_to_refuse_a_store(sim: SimStore):
    seen: set[str] = set()

    def hook(call: Call) -> Fault | None:
        if call.kind != "put_new" or call.key in seen:
            return None
        seen.add(call.key)
        return "false_exists"

    sim.hook = hook
    await probe(retrying(sim))
    assert sim.objects == {}


FAULTS: dict[Fault, float] = {
    **{"lost_request": 0.08, "lost_reply": 0.08, "duplicate": 0.08, "late": 0.08},
    "false_exists": 0.08,
}


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.full) for first in range(50, 2_000, 50))])
async def test_a_fair_store_with_faults_is_never_refused(first: int):
    """A store whose answers are lost, late or doubled is slow, not wrong; nothing of the probe stays there either."""
    passed = 0
    for seed in range(first, first + 50):
        store = SimStore()
        store.shake(seed, FAULTS)
        try:
            await probe(retrying(store, call_attempts_max=4))
            passed += 1
        except OutcomeUnknown:
            continue
    assert passed > 20


async def test_writers_that_do_not_know_are_judged_by_what_is_there(sim: SimStore):
    """Every create of seven writers stays unknown; the key shows that the eighth has won, or one of them."""
    for winner in range(WRITERS):
        sim.hook = lost_for_all_but(winner)
        await probe(retrying(sim, call_attempts_max=2), rounds=1)


def lost_for_all_but(winner: int) -> Any:
    count = 0

    def hook(call: Call) -> Fault | None:
        nonlocal count
        if call.kind != "put_new" or "race" not in call.key:
            return None
        count += 1
        return "lost_reply" if count == winner + 1 else "lost_request"

    return hook


async def test_a_store_that_is_away_is_unknown_and_one_without_rights_refused(sim: SimStore):
    sim.hook = lambda call: "lost_request"
    with pytest.raises(OutcomeUnknown):
        await probe(retrying(sim, call_attempts_max=2))
    sim.hook = lambda call: "lost_request" if call.kind == "put_new" else None
    with pytest.raises(OutcomeUnknown, match="answered no create"):
        await probe(retrying(sim, call_attempts_max=2))
    sim.hook = lambda call: "refused" if call.kind == "put_new" else None
    with pytest.raises(StoreRefused) as caught:
        await probe(retrying(sim))
    assert caught.value.code == "store_refused"


async def test_a_clean_up_that_fails_does_not_hide_why_a_store_is_refused():
    store = Ignoring()
    store.hook = lambda call: "lost_request" if call.kind == "delete" else None
    with pytest.raises(StoreRefused, match="writers that raced"):
        await probe(retrying(store, call_attempts_max=2))
    sim = SimStore()
    sim.hook = lambda call: "refused" if call.kind == "delete" else None
    with pytest.raises(StoreRefused, match="refused"):
        await probe(retrying(sim))


async def test_a_probe_that_is_cancelled_cleans_up(sim: SimStore):
    held = sim.hold(40)
    task = asyncio.create_task(probe(retrying(sim)))
    await held.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sim.objects == {}
