"""Who holds what, step by step, with time as a number."""

from __future__ import annotations

import tracemalloc
from random import Random
from statistics import median
from time import perf_counter

import pytest

from tenure.contract.config import Backoff
from tenure.core.events import Claimed
from tenure.core.state import deadlines, deliveries
from tenure.core.state.deliveries import ENDED_JOBS_MAX, ENDED_PER_JOB_MAX, Delivery, weight_bytes
from tenure.core.state.lease import Ended, Lease
from tenure.core.state.lease_snapshot import dump_leases, load_leases
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.ranges import each, to_runs
from tests.kit.counted_steps import count_steps


def hold(
    queue: Queue, number: int, runs: list[int], *, deadline: int = 100, node: str = "w", claim_id: str | None = None
) -> None:
    queue.hold(Claimed(0, 1, number, node, deadline, runs, claim_id))


def deadline_ms(queue: Queue, number: int) -> int:
    lease = queue.lease(number)
    assert lease is not None
    return lease.deadline_ms


def pass_time(queue: Queue, now: int, *, backoff: Backoff | None = None) -> list[Ended]:
    ended: list[Ended] = []
    queue.pass_time(now, wall_offset_ms=0, backoff=backoff, ended=ended)
    return ended


def test_holding_moves_the_cursor_and_counts_nothing_for_fresh_jobs() -> None:
    queue = Queue()
    hold(queue, 1, [1, 3])
    hold(queue, 2, [4, 2, 9, 1])
    assert (queue.cursor, sorted(queue.in_flight), queue.deliveries) == (10, [1, 2, 3, 4, 5, 9], {})
    assert (queue.held(1), queue.held(2), queue.held(3)) == ([1, 2, 3], [4, 5, 9], [])


def test_a_lease_with_nothing_left_is_over() -> None:
    queue = Queue()
    hold(queue, 1, [1, 2])
    assert queue.let_go(1) == Lease(1, "w", 0, 100)
    assert (queue.held(1), queue.held_count(1)) == ([2], 1)
    queue.let_go(2)
    assert (queue.leases.count, queue.lease(1)) == (0, None)
    assert queue.let_go(2) is None


def test_a_lease_ends_once_time_is_past_its_deadline() -> None:
    queue = Queue()
    hold(queue, 7, [1, 2], deadline=100)
    assert queue.next_change_ms == 101
    assert pass_time(queue, 100) == []
    assert pass_time(queue, 101) == [Ended(7, "w", 100, [1, 2])]
    assert (list(queue.reclaim), queue.in_flight, queue.leases.count, queue.next_change_ms) == ([1, 2], {}, 0, NEVER)
    assert queue.deliveries == {1: 1, 2: 1}
    assert pass_time(queue, 101) == [], "asking twice changes nothing"


def test_leases_end_in_the_order_of_their_deadlines_however_far_time_jumps() -> None:
    queue = Queue()
    hold(queue, 1, [1, 1], deadline=300)
    hold(queue, 2, [2, 1], deadline=100)
    hold(queue, 3, [3, 1], deadline=200)
    queue.extend([2, 1], deadline_ms=400)
    assert [ended.lease for ended in pass_time(queue, 10_000)] == [3, 1, 2]
    assert queue.expired == 3


def test_a_job_that_comes_back_is_counted_when_it_is_held_again() -> None:
    queue = Queue()
    hold(queue, 1, [1, 3])
    pass_time(queue, 101)
    hold(queue, 2, [2, 3], deadline=300)
    assert queue.deliveries == {1: 1, 2: 2, 3: 2}, "4 is fresh"
    assert list(queue.reclaim) == [1]


def test_an_extend_of_some_splits_the_lease_under_its_number() -> None:
    queue = Queue()
    hold(queue, 1, [1, 5], deadline=100)
    queue.extend([2, 1, 4, 1], deadline_ms=500)
    queue.extend([4, 1], deadline_ms=50)
    assert queue.held(1) == [1, 2, 3, 4, 5]
    assert queue.next_change_ms == 51
    assert [ended.runs for ended in pass_time(queue, 51)] == [[4, 1]]
    assert [ended.runs for ended in pass_time(queue, 101)] == [[1, 1, 3, 1, 5, 1]]
    assert queue.held(1) == [2]
    queue.let_go(2)
    assert queue.leases.count == 0


def test_the_claim_id_of_a_split_lease_lasts_as_long_as_any_part() -> None:
    queue = Queue()
    hold(queue, 1, [1, 2], claim_id="claim")
    queue.extend([2, 1], deadline_ms=200)
    pass_time(queue, 101)
    assert queue.claims == {"claim": 1}
    pass_time(queue, 201)
    assert queue.claims == {}


def test_the_deadline_of_a_lease_is_the_earliest_of_the_jobs_that_it_still_holds() -> None:
    queue = Queue()
    hold(queue, 1, [1, 4], deadline=100)
    assert deadline_ms(queue, 1) == 100
    queue.extend([2, 1], deadline_ms=300)
    queue.extend([3, 1], deadline_ms=200)
    assert deadline_ms(queue, 1) == 100
    for seq in (1, 4):
        queue.let_go(seq)
    assert (deadline_ms(queue, 1), queue.held(1), queue.held_count(1)) == (200, [2, 3], 2)
    queue.let_go(3)
    assert (deadline_ms(queue, 1), queue.held(1), queue.held_count(1)) == (300, [2], 1)
    queue.let_go(2)
    assert (queue.held(1), queue.held_count(1), queue.own_deadlines) == ([], 0, {})


@pytest.mark.parametrize("extended", [[1, 1], [2, 3], [1, 3], [1, 1, 4, 1]])
def test_the_jobs_that_an_extend_leaves_out_keep_their_deadline(extended: list[int]) -> None:
    queue = Queue()
    hold(queue, 1, [1, 4], deadline=100)
    queue.extend(extended, deadline_ms=300)
    rest = [seq for seq in (1, 2, 3, 4) if seq not in each(extended)]
    assert [list(each(ended.runs)) for ended in pass_time(queue, 101)] == [rest]
    assert [ended.runs for ended in pass_time(queue, 301)] == [extended]
    assert (queue.leases.count, queue.leases.apart, queue.own_deadlines) == (0, {}, {})


def in_parts(lease_count: int, jobs_each: int, *, deadline: int = 200) -> Queue:
    """A queue whose every job was extended by itself."""
    queue = Queue()
    for number in range(lease_count):
        hold(queue, number + 1, [number * jobs_each + 1, jobs_each])
    for seq in range(1, lease_count * jobs_each + 1):
        queue.extend([seq, 1], deadline_ms=deadline)
    return queue


def test_an_extend_of_one_job_costs_the_same_however_many_were_extended_before() -> None:
    queue = Queue()
    for number in range(20):
        hold(queue, number + 1, [number * 1_000 + 1, 1_000])

    def extend(lo: int, hi: int) -> None:
        for seq in range(lo, hi):
            queue.extend([seq, 1], deadline_ms=1_000 + seq)

    extend(1, 10)
    first = count_steps(lambda: extend(10, 110))
    extend(110, 19_800)
    assert count_steps(lambda: extend(19_800, 19_900)) < 1.1 * first
    again = count_steps(lambda: extend(10, 110))
    assert again < 1.1 * first


@pytest.mark.parametrize("extended", [False, True], ids=["that run out", "that are indexed again"])
def test_parts_that_meet_their_deadline_together_cost_the_same_each(
    extended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_STALE_MIN", 100)

    def steps(lease_count: int) -> int:
        queue = in_parts(lease_count, 50)
        if extended:
            for seq in range(1, lease_count * 50 + 1):
                queue.extend([seq, 1], deadline_ms=500)
        counted = count_steps(lambda: pass_time(queue, 201))
        assert len(queue.in_flight) == (lease_count * 50 if extended else 0)
        return counted

    assert steps(80) < 1.1 * 8 * steps(10)


def test_parts_of_a_shrinking_lease_are_ranked_at_a_cost_of_the_jobs_they_hold() -> None:
    """Each extend leaves out one job more: were that job's part to keep the runs of all, ranking would be quadratic."""

    def steps(jobs: int) -> int:
        queue = Queue()
        hold(queue, 1, [1, jobs], deadline=100)
        for left in range(jobs - 1, 0, -1):
            queue.extend([1, left], deadline_ms=200)
        return count_steps(lambda: pass_time(queue, 201))

    assert steps(400) < 1.2 * 4 * steps(100)


def test_parts_that_ended_early_do_not_pile_up_until_their_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_STALE_MIN", 50)
    queue = Queue()
    for number in range(1, 1_001):
        hold(queue, number, [10 * number, 10], deadline=86_400_000 + number)
        for seq in range(10 * number, 10 * number + 9):
            queue.extend([seq, 1], deadline_ms=80_000_000 + seq)
            queue.let_go(seq)
        assert len(queue.own_deadlines.heap) <= 52
    ended = pass_time(queue, 10**9)
    assert [end.runs[0] for end in ended] == [10 * number + 9 for number in range(1, 1_001)]


@pytest.mark.parametrize("extended", [[1, 2], [1, 1]], ids=["a lease", "a job"])
def test_what_is_indexed_twice_under_one_deadline_ends_once(extended: list[int]) -> None:
    queue = Queue()
    hold(queue, 1, [1, 2], deadline=300)
    for deadline in (300, 100, 300):
        queue.extend(extended, deadline_ms=deadline)
    assert pass_time(queue, 101) == []
    assert pass_time(queue, 301) == [Ended(1, "w", 300, [1, 2])]
    assert (queue.leases.count, queue.leases.next_ms, queue.own_deadlines.heap) == (0, NEVER, [])


def _scattered(random: Random) -> Queue:
    """Leases of interleaved jobs, extended and settled in part, with few deadlines among them."""
    queue, seqs = Queue(), list(range(1, 61))
    random.shuffle(seqs)
    for number in range(1, 16):
        runs = to_runs(sorted(seqs[4 * number - 4 : 4 * number]))
        hold(queue, number, runs, deadline=random.choice([100, 200]))
    for _ in range(random.randrange(60)):
        seq = random.choice(seqs)
        queue.extend([seq, random.randrange(1, 3)], deadline_ms=random.choice([100, 200, 300]))
        if random.random() < 0.3:
            queue.let_go(random.choice(seqs))
    return queue


def _what_came_back(queue: Queue, step: int) -> tuple[list[int], list[int]]:
    """Which jobs came back, and in which order, where so many end in one step; 0 is all."""
    while queue.next_change_ms <= 250:
        queue.pass_time(250, wall_offset_ms=0, backoff=None, jobs_max=step)
    return list(queue.deliveries_ended), list(queue.reclaim)


@pytest.mark.parametrize("seed", range(30))
def test_leases_end_in_one_order_in_however_many_steps_and_after_a_snapshot(seed: int) -> None:
    expected = _what_came_back(_scattered(Random(seed)), 0)
    for step in (1, 2, 5):
        assert _what_came_back(_scattered(Random(seed)), step) == expected
    queue, loaded = _scattered(Random(seed)), Queue()
    load_leases(loaded, dump_leases(queue))
    loaded.plan(0)
    assert _what_came_back(loaded, 3) == expected


@pytest.mark.parametrize("run", [1, 2], ids=["whole leases", "jobs of leases"])
def test_a_step_looks_at_few_deadlines_that_were_extended_since(run: int) -> None:
    def steps(leases: int) -> int:
        queue = Queue()
        for number in range(1, leases + 1):
            hold(queue, number, [2 * number, run], deadline=100)
            for deadline in (90, 300):
                queue.extend([2 * number, 1], deadline_ms=deadline)
        return count_steps(lambda: queue.pass_time(95, wall_offset_ms=0, backoff=None, jobs_max=20))

    assert steps(10_000) < 1.2 * steps(1_000)


def test_an_extended_lease_is_not_ended_by_its_first_deadline() -> None:
    queue = Queue()
    hold(queue, 1, [1, 1], deadline=100)
    queue.extend([1, 1], deadline_ms=300)
    assert pass_time(queue, 200) == []
    assert queue.next_change_ms == 301
    assert [ended.deadline_ms for ended in pass_time(queue, 301)] == [300]


def test_a_wait_ends_when_its_time_has_come() -> None:
    queue = Queue()
    hold(queue, 1, [1, 3])
    for seq, due in ((1, 50), (2, 0), (3, 40)):
        queue.let_go(seq)
        queue.make_ready_at(seq, due, now_ms=10)
    assert (list(queue.reclaim), list(queue.delayed), queue.next_change_ms) == ([2], [1, 3], 40)
    pass_time(queue, 40)
    assert (list(queue.reclaim), queue.next_change_ms) == ([2, 3], 50)
    pass_time(queue, 50)
    assert (list(queue.reclaim), list(queue.delayed)) == ([1, 2, 3], [])


def test_a_job_at_the_cursor_that_becomes_ready_is_fresh_and_not_reclaimed() -> None:
    queue = Queue()
    queue.make_ready_at(queue.cursor, 0, now_ms=5)
    assert list(queue.reclaim) == [], "it would be claimed twice"


def test_a_delay_that_ends_a_millisecond_earlier_moves_the_plan() -> None:
    queue = Queue()
    queue.make_ready_at(1, 41, now_ms=0)
    queue.make_ready_at(2, 40, now_ms=0)
    assert queue.next_change_ms == 40


def test_a_delayed_job_above_the_cursor_is_simply_fresh_again() -> None:
    queue = Queue()
    queue.make_ready_at(5, 50, now_ms=0)
    pass_time(queue, 50)
    assert (list(queue.delayed), list(queue.reclaim)) == ([], [])


def test_back_off_holds_an_expired_job_back_from_its_deadline_on() -> None:
    queue, backoff = Queue(), Backoff(min_ms=30, max_ms=1000, factor=2, jitter=False)
    hold(queue, 1, [1, 1], deadline=100)
    pass_time(queue, 110, backoff=backoff)
    assert (list(queue.delayed), queue.next_change_ms) == ([1], 130)
    pass_time(queue, 130, backoff=backoff)
    hold(queue, 2, [1, 1], deadline=200)
    pass_time(queue, 300, backoff=backoff)
    assert list(queue.reclaim) == [1], "60 ms after its deadline have passed too"


def test_parking_takes_a_job_out_of_every_line() -> None:
    queue = Queue()
    hold(queue, 1, [1, 2])
    pass_time(queue, 101)
    queue.park(1, "why")
    assert (list(queue.reclaim), queue.parked) == ([2], {1: "why"})


@pytest.mark.parametrize("count_known", [0, 50])
def test_forgetting_a_range_forgets_all_that_is_known_in_it_and_nothing_else(count_known: int) -> None:
    queue = Queue()
    hold(queue, 1, [1, 9 + count_known])
    for seq in (2, 3, 4):
        queue.let_go(seq)
        queue.record_delivery(seq, Delivery(1, "w", 0, 1, "nack"))
    queue.make_ready_at(2, 0, now_ms=0)
    queue.make_ready_at(3, 500, now_ms=0)
    queue.park(4, "why")
    queue.uniques, queue.uniques_by_seq = {"u": 5, "v": 8}, {5: "u", 8: "v"}
    queue.forget_range(2, 7)
    assert sorted(queue.in_flight) == [1, *range(7, 10 + count_known)]
    assert (list(queue.reclaim), list(queue.delayed), queue.parked, queue.deliveries_ended) == ([], [], {}, {})
    assert (queue.deliveries, queue.uniques, queue.uniques_by_seq) == ({}, {"v": 8}, {8: "v"})
    assert queue.held_count(1) == 4 + count_known


def test_stories_are_bounded_by_job_and_by_number() -> None:
    queue = Queue()
    for number in range(ENDED_PER_JOB_MAX + 5):
        queue.record_delivery(1, Delivery(number, "w", 0, 1, "nack"))
    assert [delivery.lease for delivery in queue.deliveries_ended[1]] == list(range(5, ENDED_PER_JOB_MAX + 5))
    for seq in range(2, ENDED_JOBS_MAX + 2):
        queue.record_delivery(seq, Delivery(1, "w", 0, 1, "nack"))
    assert len(queue.deliveries_ended) == ENDED_JOBS_MAX
    assert 1 not in queue.deliveries_ended, "the oldest goes first"
    assert queue.deliveries[1] == 1, "its count does not"


def test_stories_are_bounded_by_what_they_weigh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "ENDED_BYTES_MAX", 10_000)
    queue = Queue()
    for seq in range(1, 31):
        for _ in range(seq % 3 + 1):
            queue.record_delivery(seq, Delivery(1, "node", 0, 1, "nack", "r" * 1_000))
        assert queue.deliveries_ended.size_bytes == sum(map(weight_bytes, queue.deliveries_ended.values()))
        assert queue.deliveries_ended.size_bytes <= 10_000
    assert list(queue.deliveries_ended) == [27, 28, 29, 30], "the oldest go first"
    queue.record_delivery(27, Delivery(1, "node", 0, 1, "nack", "r" * 9_900))
    assert list(queue.deliveries_ended) == [27], "the last one stays, even above the limit"
    queue.forget(27)
    assert queue.deliveries_ended.size_bytes == 0


def test_the_oldest_story_goes_at_a_cost_that_does_not_grow_with_those_that_went_before() -> None:
    """A plain dict is walked over all that was deleted at its front, and inside C: so time it is, as a ratio."""
    queue = Queue()

    def seconds(lo: int, hi: int) -> float:
        started = perf_counter()
        for seq in range(lo, hi):
            queue.record_delivery(seq, Delivery(1, "w", 0, 1, "nack"))
        return perf_counter() - started

    filling = median(seconds(lo, lo + 500) for lo in range(0, ENDED_JOBS_MAX, 500))
    replacing = median(seconds(lo, lo + 500) for lo in range(ENDED_JOBS_MAX, 4 * ENDED_JOBS_MAX, 500))
    assert replacing < 8 * filling


def test_wall_delays_follow_the_offset() -> None:
    queue = Queue()
    queue.delays.add_wall(3, 1000)
    queue.plan(wall_offset_ms=900)
    assert queue.next_change_ms == 100
    queue.pass_time(99, wall_offset_ms=900, backoff=None)
    assert 3 in queue.delayed
    queue.pass_time(50, wall_offset_ms=950, backoff=None)
    assert 3 not in queue.delayed


def test_leases_that_ended_early_do_not_pile_up_until_their_deadline():
    queue = Queue()
    for number in range(1, 20_001):
        hold(queue, number, [number, 1], deadline=86_400_000 - number)
        queue.let_go(number)
        assert len(queue.leases.pages) <= 1
    assert sum(len(page.left) for page in queue.leases.pages.values()) < 16, "an idle queue is small"
    assert len(queue.leases._heap) <= 66


def test_leases_that_last_keep_little_more_than_themselves() -> None:
    queue = Queue()
    for number in range(1, 20_001):
        hold(queue, number, [number, 1], node=f"n{number}", deadline=1_000 + number)
        if number % 1_000:
            queue.let_go(number)
    lasting = range(1_000, 20_001, 1_000)
    assert sum(len(page.left) for page in queue.leases.pages.values()) < 4 * len(lasting) + 256
    assert [queue.held(number) for number in lasting] == [[number] for number in lasting]
    assert [queue.lease(number) for number in lasting] == [
        Lease(number, f"n{number}", 0, 1_000 + number) for number in lasting
    ]
    assert queue.leases.numbers_after(9_500, 2) == [10_000, 11_000]
    queue.extend([3_000, 1], deadline_ms=30_000)
    assert [ended.lease for ended in pass_time(queue, 40_000)] == [1_000, 2_000, *range(4_000, 20_001, 1_000), 3_000]
    assert (queue.leases.count, queue.leases.pages) == (0, {})


def test_a_lease_that_ends_alone_costs_little_more_than_one_of_many_that_end_together() -> None:
    def steps(*, apart_ms: int) -> int:
        queue = Queue()
        for number in range(1, 1_025):
            hold(queue, number, [number, 1], deadline=100 + apart_ms * number)
        counted = count_steps(lambda: [pass_time(queue, now_ms) for now_ms in range(102, 1_302)])
        assert not queue.in_flight
        return counted

    assert steps(apart_ms=1) < 4 * steps(apart_ms=0)


@pytest.mark.parametrize("apart", [False, True], ids=["by lease", "and by job"])
@pytest.mark.parametrize("jobs_each", [1, 7])
def test_time_that_passes_in_steps_ends_the_same_leases_in_the_same_order(jobs_each: int, apart: bool) -> None:
    def build() -> Queue:
        queue = Queue()
        for number in range(1, 1_001):
            lo = jobs_each * number
            hold(queue, number, [lo, jobs_each], deadline=100 + number % 3)
            if apart and number % 5 == 0:
                queue.extend([lo, 1], deadline_ms=101)
        return queue

    stepped, ended = build(), list[Ended]()
    while stepped.next_change_ms <= 200:
        before = stepped.expired
        stepped.pass_time(200, wall_offset_ms=0, backoff=None, ended=ended, jobs_max=20)
        assert stepped.expired - before <= 20 + jobs_each
    at_once = build()
    assert ended == pass_time(at_once, 200)
    assert len(ended) >= 1_000
    assert list(stepped.deliveries_ended.items()) == list(at_once.deliveries_ended.items())
    assert (stepped.in_flight, stepped.own_deadlines, stepped.leases.pages) == ({}, {}, {})


def test_a_step_of_time_costs_the_same_however_many_leases_end_together() -> None:
    def steps(leases: int) -> int:
        queue = Queue()
        for number in range(1, leases + 1):
            hold(queue, number, [number, 1], deadline=100)
        once = count_steps(lambda: queue.pass_time(200, wall_offset_ms=0, backoff=None, jobs_max=20))
        assert 0 < queue.expired <= 20
        return once

    assert steps(10_000) < 1.2 * steps(1_000)


@pytest.mark.parametrize("first", [50, 150], ids=["before a deadline came up", "after one came up"])
def test_extends_to_and_fro_end_a_lease_at_its_last_deadline(first: int) -> None:
    queue = Queue()
    for number in range(1, 301):
        hold(queue, number, [2 * number, 2], deadline=100 + number % 3)
    assert len(pass_time(queue, first)) == (0 if first == 50 else 300)
    hold(queue, 400, [1_000, 2], deadline=500)
    hold(queue, 401, [1_010, 1], deadline=200)
    for deadline in (900, 300, 700, 250, 600):
        queue.extend([1_000, 2], deadline_ms=deadline)
    queue.extend([1_000, 1], deadline_ms=800)
    queue.extend([1_001, 1], deadline_ms=400)  # every job has a deadline of its own now
    assert [ended.runs for ended in pass_time(queue, 700) if ended.lease > 300] == [[1_010, 1], [1_001, 1]]
    queue.extend([1_000, 1], deadline_ms=750)
    assert pass_time(queue, 750) == []
    assert pass_time(queue, 751) == [Ended(400, "w", 750, [1_000, 1])]


def test_a_lease_is_found_by_its_number_while_it_lasts() -> None:
    queue = Queue()
    for number in range(10, 10_010, 10):
        hold(queue, number, [number, 2])
    for number in (9, 11, 10_009, 1 << 70):
        assert (queue.lease(number), queue.held(number), queue.held_count(number)) == (None, [], 0)
    queue.take_out(5_000, 2)
    assert queue.lease(5_000) is None
    assert queue.held(5_010) == [5_010, 5_011]
    assert queue.leases.numbers_after(4_980, 3) == [4_990, 5_010, 5_020]


def test_a_lease_of_one_job_takes_little_memory() -> None:
    """A million of them in less than 200 MB, above the queued jobs: with the dict that a million jobs need."""
    queue, leases = Queue(), 20_000
    hold(queue, 1, [1, 1])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1 << 40, (1 << 40) + leases):
        node = f"worker-{number % 100}"  # a string of its own, as each request brings one
        hold(
            queue, number, [1_000_000 + number & 0xFFFFFFFF, 1], deadline=1_700_000_000_000 + number % 1_000, node=node
        )
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert queue.leases.count == leases + 1
    assert (after - before) / leases < 170


@pytest.mark.parametrize("by_wall", [False, True])
@pytest.mark.parametrize("living", [0, 5])
def test_delays_of_jobs_that_are_gone_do_not_pile_up(by_wall: bool, living: int) -> None:
    queue = Queue()
    for seq in range(1, 20_001):
        if by_wall:
            queue.delays.add_wall(seq, 1_000_000 + seq)
        else:
            queue.make_ready_at(seq, 1_000_000 + seq, now_ms=0)
        if seq > living:
            queue.forget(seq)
    assert len(queue.delays.by_log) + len(queue.delays.by_wall) == living
    queue.pass_time(2_000_000, wall_offset_ms=0, backoff=None)
    assert len(queue.delayed) == 0


def test_delays_of_jobs_that_are_deleted_together_go_with_them() -> None:
    queue = Queue()
    for seq in range(1, 5_001):
        queue.make_ready_at(seq, 1_000_000 + seq, now_ms=0)
        queue.delays.add_wall(5_000 + seq, 1_000_000)
    queue.forget_range(11, 9_991)
    assert (len(queue.delays.by_log), len(queue.delays.by_wall), len(queue.delayed)) == (10, 10, 20)
