"""How much of a shared limit a priority may use up."""

from __future__ import annotations

from itertools import pairwise

from tenure.core.priority import share_of


def test_a_priority_of_zero_or_more_or_none_may_use_all_of_a_limit() -> None:
    assert {share_of(1_000, priority) for priority in (None, 0, 1, 1_000)} == {1_000}


def test_a_lower_priority_leaves_more_to_the_others_and_half_at_most() -> None:
    shares = [share_of(10_000, priority) for priority in range(-1_000, 1)]
    assert (shares[0], shares[-1]) == (5_000, 10_000)
    assert all(lower < higher for lower, higher in pairwise(shares))
