"""The curve, its cap, and a jitter that is even and always the same."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.contract.config import Backoff
from tenure.contract.fields import FACTOR_MAX
from tenure.core.backoff import delay_ms

HUNDRED_YEARS_MS = 100 * 365 * 86_400_000
BACKOFFS = st.builds(
    lambda low, high, factor, jitter: Backoff(
        min_ms=min(low, high), max_ms=max(low, high), factor=factor, jitter=jitter
    ),
    st.integers(0, HUNDRED_YEARS_MS),
    st.integers(0, HUNDRED_YEARS_MS),
    st.floats(1, FACTOR_MAX),
    st.booleans(),
)


def plain(deliveries: int, **fields: float) -> int:
    backoff = Backoff(
        min_ms=int(fields.get("min_ms", 100)),
        max_ms=int(fields.get("max_ms", 1000)),
        factor=fields.get("factor", 2.0),
        jitter=False,
    )
    return delay_ms(backoff, deliveries=deliveries, seq=1)


def test_the_delay_grows_by_the_factor_up_to_the_cap() -> None:
    assert [plain(n) for n in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert [plain(n, factor=1.5) for n in range(1, 4)] == [100, 150, 225]
    assert [plain(n, factor=1.0) for n in (1, 2, 10**6)] == [100, 100, 100]


@pytest.mark.parametrize("factor", [1.0, 1.0000001, 2.0, FACTOR_MAX])
def test_a_million_deliveries_do_not_overflow(factor: float) -> None:
    for deliveries in (1, 1000, 10**6, 2**64):
        assert 100 <= plain(deliveries, factor=factor, max_ms=HUNDRED_YEARS_MS) <= HUNDRED_YEARS_MS


def test_a_job_never_delivered_waits_like_one_delivered_once() -> None:
    assert plain(0) == plain(1) == 100


def test_zero_stays_zero() -> None:
    assert plain(9, min_ms=0) == 0
    assert plain(9, min_ms=0, max_ms=0) == 0


@given(BACKOFFS, st.integers(1, 60), st.integers(1, 2**63))
def test_the_delay_is_that_of_exact_arithmetic(backoff: Backoff, deliveries: int, seq: int) -> None:
    exact = min(backoff.min_ms * Fraction(backoff.factor) ** (deliveries - 1), Fraction(backoff.max_ms))
    delay = delay_ms(backoff, deliveries=deliveries, seq=seq)
    tolerance_ms = 1 + exact / 10**12
    lowest = exact / 2 if backoff.jitter else exact
    assert isinstance(delay, int)
    assert lowest - tolerance_ms <= delay <= exact + tolerance_ms
    assert delay == delay_ms(backoff, deliveries=deliveries, seq=seq)


def test_jitter_spreads_jobs_evenly_over_the_upper_half() -> None:
    backoff = Backoff(min_ms=1000, max_ms=1000, jitter=True)
    delays = [delay_ms(backoff, deliveries=1, seq=seq) for seq in range(1, 50_001)]
    assert min(delays) == 500
    assert max(delays) == 1000
    tenths = [0] * 10
    for delay in delays:
        tenths[min((delay - 500) // 50, 9)] += 1
    assert max(tenths) < 1.1 * min(tenths)


def test_jitter_differs_from_delivery_to_delivery() -> None:
    backoff = Backoff(min_ms=10**6, max_ms=10**6, jitter=True)
    assert len({delay_ms(backoff, deliveries=n, seq=7) for n in range(1, 101)}) > 95


def test_the_hash_is_pinned_because_replay_depends_on_it() -> None:
    backoff = Backoff(min_ms=10**6, max_ms=10**6, jitter=True)
    assert [delay_ms(backoff, deliveries=1, seq=seq) for seq in (1, 2, 3)] == [673316, 955406, 966670]
