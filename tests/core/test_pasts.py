"""The past of a job: packed into a few bytes, and only where there is one."""

from __future__ import annotations

import tracemalloc

import pytest

from tenure.core.state.pasts import LOST_MAX, NOTHING, Past, Pasts

BYTES_MAX = 64


def test_a_job_without_a_past_has_nothing() -> None:
    pasts = Pasts()
    assert (pasts.get(1), pasts.is_suspect(1), len(pasts), list(pasts)) == (NOTHING, False, 0, [])


@pytest.mark.parametrize(
    "past",
    [Past(1), Past(0, 1), Past(5, 3, 2), Past((1 << 40) - 1, LOST_MAX, LOST_MAX)],
)
def test_a_past_reads_back_as_itself(past: Past) -> None:
    pasts = Pasts()
    pasts.put(7, past)
    assert pasts.get(7) == past
    assert pasts.is_suspect(7) == (past.lost > 0)
    again = Pasts()
    again.restore(pasts.dump())
    assert (again.get(7), list(again)) == (past, [7])


def test_a_count_stops_at_its_bound_and_leaves_the_others_alone() -> None:
    pasts = Pasts()
    pasts.put(1, Past(1 << 50, 300, 256))
    assert pasts.get(1) == Past((1 << 40) - 1, LOST_MAX, LOST_MAX)


def test_a_past_that_is_put_again_replaces_the_one_before_and_nothing_is_no_past() -> None:
    pasts = Pasts()
    for past in (Past(1), Past(2, 1)):
        pasts.put(3, past)
    assert (pasts.get(3), len(pasts)) == (Past(2, 1), 1)
    pasts.put(3, NOTHING)
    assert (list(pasts), pasts.dump()) == ([], [])
    pasts.forget(3)


@pytest.mark.parametrize("step", [1, 7])
def test_a_past_costs_few_bytes(step: int) -> None:
    """A fleet that dies must not fill the memory of the broker."""
    count = 100_000
    pasts = Pasts()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for seq in range(0, count * step, step):
        pasts.put(seq, Past(1, 1))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(pasts) == count
    assert used + len(pasts.jobs.serialize()) <= BYTES_MAX * count
