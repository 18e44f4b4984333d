"""A request that is not answered is sent again after a while; a store that is slow is waited for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.patience import Patience
from tenure.objects.retrying import Created, RetryingStore
from tenure.objects.store import OutcomeUnknown
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.chain.worlds.loop import VirtualLoop
from tests.kit.stores import QuickRetries

T = TypeVar("T")
LEAST_MS = 500
KIB = 1024


def patient(sim: SimStore) -> RetryingStore:
    return RetryingStore(Metered(sim, StoreMetrics()), QuickRetries(), patience=Patience(LEAST_MS))


def hang(count: int, kind: str = "") -> Callable[[Call], Fault | Hold | None]:
    """Have the first calls of a kind hang."""
    left = iter(range(count))
    return lambda call: Hold() if call.kind.startswith(kind) and next(left, None) is not None else None


def timed(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Return what the work returns, and the virtual seconds that it takes."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work), loop.time()
    finally:
        loop.end()


@pytest.fixture
def sim() -> SimStore:
    store = SimStore()
    store.objects["k"] = (b"value", 0)
    return store


@pytest.mark.parametrize(("count", "took_s"), [(0, 0), (1, 0.5), (2, 1.5), (3, 3.5), (6, 31.5)])
def test_a_read_that_hangs_is_sent_again_and_each_wait_is_twice_as_long(sim: SimStore, count: int, took_s: float):
    sim.hook = hang(count)
    assert timed(patient(sim).get("k", 100)) == (b"value", took_s)
    assert len(sim.calls) == count + 1


def test_a_read_that_no_one_answers_is_given_up_as_one_request_is(sim: SimStore):
    sim.hook = lambda call: Hold()
    settings = QuickRetries(call_attempts_max=1)
    store = RetryingStore(Metered(sim, StoreMetrics()), settings, patience=Patience(LEAST_MS))
    with pytest.raises(OutcomeUnknown):
        timed(store.head("k"))


def test_a_store_that_is_slow_is_waited_for_and_asked_once_the_next_time(sim: SimStore):
    """Naive: a limit that is short is given up again and again, and such a store is never read."""
    sim.latency_ms = 3_000
    store = patient(sim)

    async def read() -> list[int]:
        counts = []
        for _ in range(3):
            before = len(sim.calls)
            assert await store.get("k", 100) == b"value"
            counts.append(len(sim.calls) - before)
        return counts

    counts, took_s = timed(read())
    assert took_s == 9
    assert counts[0] > 1
    assert counts[1:] == [1, 1]


def test_patience_is_twice_the_slowest_of_the_last_answers_and_comes_back():
    patience = Patience(LEAST_MS)
    patience.answered(2.0)
    assert patience.wait_s == 4.0
    for _ in range(8):
        patience.answered(0.01)
    assert patience.wait_s == 0.5


def test_a_large_read_is_sent_once(sim: SimStore):
    """Naive: three downloads of one segment share the network, and take three times as long."""
    sim.latency_ms = 5_000
    assert timed(patient(sim).get("k", 1_000 * KIB)) == (b"value", 5.0)
    assert len(sim.calls) == 1


def test_a_read_of_known_size_has_the_time_of_its_bytes(sim: SimStore):
    sim.hook = hang(1)
    assert timed(patient(sim).find_soon("k", 1024 * KIB, size_bytes=1024 * KIB)) == (b"value", 2.5)


def test_a_listing_that_hangs_goes_on_after_the_last_key(sim: SimStore):
    sim.hook = hang(2)

    async def keys() -> list[str]:
        return [info.key async for info in patient(sim).list_objects("")]

    assert timed(keys()) == (["k"], 1.5)


def test_an_overwrite_that_hangs_is_sent_again(sim: SimStore):
    sim.hook = hang(2)
    assert 1.5 <= timed(patient(sim).put("k", b"other"))[1] < 1.6
    assert sim.objects["k"][0] == b"other"


def test_a_create_that_hangs_is_given_up_and_sent_again_and_never_twice_at_once(sim: SimStore):
    sim.hook = hang(3)
    create = patient(sim).create_until_known("new", b"x", limit_bytes=1, is_over=lambda: False)
    created, took_s = timed(create)
    assert created == Created(True)
    assert 3.5 <= took_s < 3.6
    assert [call.kind for call in sim.calls] == ["put_new"] * 4


def test_without_patience_a_call_is_made_once(sim: SimStore):
    sim.latency_ms = 50_000
    store = RetryingStore(Metered(sim, StoreMetrics()), QuickRetries())
    assert timed(store.get("k", 100)) == (b"value", 50.0)
    assert len(sim.calls) == 1
