"""Durations and rates as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenure.durations import Rate, ms_of, rate_of
from tenure.errors import Invalid


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("30s", 30_000),
        ("500ms", 500),
        ("1m", 60_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1h30m", 5_400_000),
        ("1m500ms", 60_500),
        (30_000, 30_000),
        (0, 0),
        (timedelta(minutes=1, microseconds=999), 60_000),
    ],
)
def test_a_duration_is_text_a_timedelta_or_milliseconds(given: object, ms: int):
    assert ms_of(given, field="lease") == ms


@pytest.mark.parametrize("given", ["", "30", "s", "1w", "1 h", "-1s", "1s ", "٣s", 1.5, True, None, b"1s", "1s" * 40])
def test_what_is_no_duration_is_refused_by_the_name_of_its_field(given: object):
    with pytest.raises(Invalid, match="time_limit must be a duration") as refused:
        ms_of(given, field="time_limit")
    assert refused.value.detail == {"field": "time_limit"}


@pytest.mark.parametrize("given", [99, "101ms", -1, timedelta(days=-1)])
def test_a_duration_outside_its_bounds_is_refused(given: object):
    with pytest.raises(Invalid, match="from 100 to 100 ms"):
        ms_of(given, field="lease", min_ms=100, max_ms=100)


@pytest.mark.parametrize(
    ("given", "rate"),
    [("100/s", Rate(100, 1_000)), ("5/m", Rate(5, 60_000)), ("10/30s", Rate(10, 30_000)), ("1/d", Rate(1, 86_400_000))],
)
def test_a_rate_is_a_count_in_a_time(given: str, rate: Rate):
    assert rate_of(given) == rate


@pytest.mark.parametrize("given", ["100", "0/s", "/s", "1/", "1/x", "1.5/s", "-1/s", 100, None, "1/0s", "1/s/s"])
def test_what_is_no_rate_is_refused(given: object):
    with pytest.raises(Invalid, match="rate must be"):
        rate_of(given)
