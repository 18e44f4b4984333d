"""How long a failed job waits."""

from __future__ import annotations

import pytest

from tenure.errors import Invalid
from tenure.worker.backoff import Exponential, Fixed


def test_an_exponential_wait_doubles_up_to_its_maximum():
    rule = Exponential("1s", "5s", jitter=False)
    assert [rule.delay_ms(n, seq=1) for n in (1, 2, 3, 4, 5, 10_000)] == [1_000, 2_000, 4_000, 5_000, 5_000, 5_000]


def test_jitter_spreads_a_wait_over_its_upper_half():
    rule = Exponential(min="1s", max="5m", jitter=True)
    waits = {rule.delay_ms(2, seq=seq) for seq in range(1_000)}
    assert 1_000 <= min(waits) < 1_100
    assert 1_900 < max(waits) <= 2_000


def test_a_factor_of_one_waits_the_same_time():
    assert Exponential("3s", "5m", factor=1, jitter=False).delay_ms(9, seq=1) == 3_000


def test_a_fixed_wait_stays():
    assert [Fixed("10s").delay_ms(n, seq=1) for n in (1, 7)] == [10_000, 10_000]


def test_waits_that_cannot_be_are_refused_when_they_are_written():
    for wrong in (
        lambda: Exponential("5m", "1s"),
        lambda: Exponential("1s", "2d"),
        lambda: Exponential(factor=0.5),
        lambda: Fixed("25h"),
        lambda: Fixed("soon"),
    ):
        with pytest.raises(Invalid, match="backoff"):
            wrong()


def test_a_rule_shows_what_it_is():
    assert repr([Exponential(), Fixed("1s")]) == "[Exponential(1000, 300000, factor=2, jitter=True), Fixed(1000)]"
