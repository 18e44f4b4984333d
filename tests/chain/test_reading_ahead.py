"""Catching up takes memory for some links and not for all, however many there are and however large."""

from __future__ import annotations

from unittest import mock

import pytest

from tenure.chain import bootstrap, chain
from tenure.chain.chain import Chain
from tenure.chain.home import find_home
from tenure.chain.open import retrying_store
from tenure.chain.stored_checkpoint import StoredSegment
from tenure.objects.background import background
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.chain.kit import FAST, open_log
from tests.chain.test_space import Story

KIB = 1024


class Weighed(SimStore):
    """A store that says how many bytes of links were read and not yet given back."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = self.under_way = self.most_at_once = 0

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            data = await super().get(key, start=start, length=length, limit_bytes=limit_bytes)
        finally:
            self.under_way -= 1
        self.held += len(data)
        self.most = max(self.most, self.held)
        return data


def home_of(sizes: list[int]) -> Weighed:
    """Return a home with one link for each of these sizes."""
    store = Weighed()
    log = open_log(store, SimDisk())
    for _ in log.replay():
        pass
    for size in sizes:
        log.append([(20, 1, bytes(size))])
        log.sync()
    return store


def walk(store: Weighed) -> int:
    """Follow the chain from its beginning; return how many links it has."""
    retrying = retrying_store(store, FAST)

    async def follow() -> int:
        facts, links = await find_home(retrying), 0
        assert facts is not None
        store.held = store.most = 0
        async for step in Chain(retrying, bytes.fromhex(facts.log_id), FAST).follow(facts.beginning):
            store.held -= sum(len(run.data) for run in step.link.runs)
            links += 1
        return links

    return background().run(follow())


@pytest.mark.parametrize("sizes", [[100 * KIB] * 60, [2 * KIB] * 40 + [100 * KIB] * 40, [100 * KIB, 1] * 30])
def test_what_is_read_ahead_is_bounded_by_bytes(sizes: list[int]):
    """Naive: 32 links at once, each of up to 64 MiB."""
    store = home_of(sizes)
    with mock.patch.object(chain, "_AHEAD_BYTES_MAX", 400 * KIB):
        links = walk(store)
    assert links >= len(sizes)
    overheads = 300 * links
    assert store.most < 400 * KIB + 101 * KIB + overheads


def test_small_links_are_read_many_at_once():
    store = home_of([2 * KIB] * 100)
    walk(store)
    assert store.most_at_once >= FAST.reads_max  # a slow machine asks twice


def test_a_large_segment_is_read_in_ranges_and_others_some_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap, "_RANGE_BYTES", 3 * KIB)
    store = Weighed()
    story = Story(store)
    story.write(40)
    story.save()
    begun = open_log(store, SimDisk(9))
    bodies = [bytes(body) for *_, body in begun.replay()]
    assert bodies == story.alive()
    ranges = [call for call in store.calls if call.kind == "get" and call.key.startswith("segments/")]
    assert len(ranges) > 10


def test_segments_are_fetched_at_once_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap, "_FETCH_BYTES_MAX", 100)
    sizes = [10, 20, 30, 10, 10, 60, 200, 50, 50, 50]
    segments = [StoredSegment(number, size, "") for number, size in enumerate(sizes)]
    portions = [[each.bytes for each in portion] for portion in bootstrap._portions(segments)]
    assert portions == [[10, 20, 30, 10], [10, 60], [200], [50, 50], [50]]
