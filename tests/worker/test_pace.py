"""How fast and in what order jobs start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.durations import Rate
from tenure.worker.runtime.pace import Bucket, Share, Slots


def starts(bucket: Bucket, until_ms: int) -> list[int]:
    """When a backlog starts, on a clock with a tick of one millisecond."""
    found = []
    for now_ms in range(until_ms):
        while bucket.wait_ms(now_ms) == 0:
            bucket.take()
            found.append(now_ms)
    return found


def test_a_slow_rate_spreads_its_starts() -> None:
    assert starts(Bucket(Rate(5, 60_000), 0), 61_000) == [0, 12_000, 24_000, 36_000, 48_000, 60_000]


def test_a_bucket_says_how_long_to_wait() -> None:
    bucket = Bucket(Rate(10, 1_000), 0)
    bucket.take()
    assert bucket.wait_ms(0) == 100
    assert bucket.wait_ms(60) == 40
    assert bucket.wait_ms(100) == 0


def test_what_was_not_used_is_not_saved_up() -> None:
    bucket = Bucket(Rate(10, 1_000), 0)
    assert bucket.wait_ms(3_600_000) == 0
    bucket.take()
    assert bucket.wait_ms(3_600_000) > 0


@given(st.integers(1, 5_000), st.integers(100, 5_000))
def test_no_window_holds_more_than_the_rate_and_one_burst(count: int, per_ms: int) -> None:
    when = starts(Bucket(Rate(count, per_ms), 0), 3 * per_ms if per_ms < 500 else per_ms + 200)
    burst = max(1, count * 50 / per_ms)
    for index, begin in enumerate(when[:: max(1, len(when) // 20)]):
        window = [at for at in when if begin <= at < begin + per_ms]
        assert len(window) <= count + burst + 1, index


class Backlog:
    """A share with so much to do, which notes its starts in a common list."""

    def __init__(self, name: str, weight: int, order: list[str]) -> None:
        self.left = 0
        self._name = name
        self._order = order
        self.share = Share(weight, ready=lambda: self.left > 0, start=self.start)

    def start(self) -> None:
        self.left -= 1
        self._order.append(self._name)


def test_without_a_limit_every_lane_starts_what_it_has() -> None:
    order: list[str] = []
    slots, share = Slots(), Backlog("a", 1, order)
    slots.add(share.share)
    share.left = 100
    slots.fill(share.share)
    assert order == ["a"] * 100


def test_perfect_hash_go_round_by_weight() -> None:
    order: list[str] = []
    slots = Slots(1)
    shares = [Backlog(name, weight, order) for name, weight in (("a", 5), ("b", 2), ("c", 1))]
    for share in shares:
        slots.add(share.share)
        share.left = 1_000
    for _ in range(800):
        slots.fill(shares[0].share)
        slots.free()
    assert [order.count(name) for name in "abc"] == [500, 200, 100]
    assert {"a", "b", "c"} <= set(order[:10]), "nobody waits for the others to be done"


def test_a_lane_that_was_idle_has_saved_up_nothing() -> None:
    order: list[str] = []
    slots = Slots(1)
    busy, late = Backlog("busy", 1, order), Backlog("late", 1, order)
    for share in (busy, late):
        slots.add(share.share)
    busy.left = 1_000
    for _ in range(100):
        slots.fill(busy.share)
        slots.free()
    late.left = 1_000
    for _ in range(100):
        slots.fill(busy.share)
        slots.free()
    assert 49 <= order[100:].count("late") <= 51
