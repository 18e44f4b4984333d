"""The order of what comes due, and the time of each seq, against a sorted list and a dict."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.state import due_order, seq_times
from tenure.core.state.delays import Delays
from tenure.core.state.due_order import DueOrder
from tenure.core.state.seq_times import SeqTimes
from tests.kit.counted_steps import count_steps


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=80))
def test_the_order_agrees_with_a_sorted_list(steps: list[tuple[bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(due_order, "_CHUNK_ENTRIES_MAX", 4)
        order, naive = DueOrder(), set[int]()
        for adds, entry in steps:
            if adds and entry not in naive:
                order.add(entry)
                naive.add(entry)
            elif not adds and entry in naive:
                order.remove(entry)
                naive.remove(entry)
            assert (list(order), len(order), bool(order)) == (sorted(naive), len(naive), bool(naive))
            assert not naive or order.first == min(naive)


def test_an_order_that_is_restored_is_the_same() -> None:
    order = DueOrder(list(range(5_000)))
    assert (list(order), len(order), order.first) == (list(range(5_000)), 5_000, 0)
    order.remove(2_500)
    assert len(order) == 4_999


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=80))
def test_times_by_seq_agree_with_a_dict(steps: list[tuple[bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seq_times, "_CHUNK_SEQS_MAX", 4)
        times, naive = SeqTimes(), dict[int, int]()
        for number, (puts, seq) in enumerate(steps):
            if puts and seq not in naive:
                times.put(seq, number)
                naive[seq] = number
            elif not puts and seq in naive:
                assert times.pop(seq) == naive.pop(seq)
            assert {seq: times.get(seq) for seq in naive} == naive


def test_the_end_of_one_delay_does_not_look_at_the_others() -> None:
    def cost(jobs: int) -> int:
        delays = Delays()
        for seq in range(1, jobs + 1):
            delays.add(seq, 1_000 + seq)
        return max(count_steps(partial(delays.end, seq, seq + 1)) for seq in range(1, jobs, jobs // 50))

    assert cost(20_000) <= 2 * cost(200)


def test_the_time_of_one_delayed_job_is_found_without_a_look_at_the_others() -> None:
    delays = Delays()
    for seq in range(1, 5_001):
        delays.add(seq, 1_000 + seq)
    delays.add_wall(9_000, 7)
    assert delays.due_times_ms({3, 9_000, 9_001}, wall_offset_ms=5) == {3: 1_008, 9_000: 7}
    assert count_steps(lambda: delays.due_times_ms({3}, wall_offset_ms=5)) < 200
