"""Which moments a schedule names: against cronsim itself, and where clocks are put forward and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from tenure import Invalid
from tenure.worker.cron import Cron, Every, Schedule, due_ticks

BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000
EXPRESSIONS = ("0 3 * * *", "*/15 2,3 * * *", "30 2 * * *", "0 9 * * MON-FRI", "0,30 1-3 L * *", "15 */2 * * *")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe")


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, *, fold: int = 0) -> int:
    """A time in Berlin, as a tick."""
    return int(datetime(year, month, day, hour, minute, second, tzinfo=BERLIN, fold=fold).timestamp() * 1000)


def within(schedule: Schedule, from_ms: int, until_ms: int) -> list[int]:
    """All ticks after one time and not after the other, found one by one."""
    ticks = []
    at = schedule.after(from_ms)
    while at is not None and at <= until_ms:
        ticks.append(at)
        at = schedule.after(at)
    return ticks


def told(schedule: Schedule, ticks: list[int]) -> list[str]:
    return [schedule.at(tick).strftime("%d %H:%M %Z") for tick in ticks]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Santiago"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_year_of_ticks_is_what_cronsim_says(expression: str, zone: str):
    schedule = Cron(expression, timezone=zone)
    begin = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone) if zone != "UTC" else UTC)
    end_ms = int((begin + timedelta(days=365)).timestamp() * 1000)
    expected, simulated = [], CronSim(expression, begin)
    while (at := int(next(simulated).timestamp() * 1000)) <= end_ms:
        expected.append(at)
    begin_ms = int(begin.timestamp() * 1000)
    assert due_ticks(schedule, begin_ms, end_ms, 20) == expected[-20:]
    assert within(schedule, begin_ms, end_ms) == expected
    assert all(early < late for early, late in pairwise(expected))


def test_a_time_that_the_clock_skips_fires_once_at_the_first_minute_there_is():
    schedule = Cron("30 2 * * *", timezone="Europe/Berlin")
    ticks = within(schedule, ms(2026, 3, 28), ms(2026, 3, 31))
    assert told(schedule, ticks) == ["28 02:30 CET", "29 03:00 CEST", "30 02:30 CEST"]


def test_a_time_that_comes_twice_fires_the_first_time_only():
    schedule = Cron("30 2 * * *", timezone="Europe/Berlin")
    ticks = within(schedule, ms(2026, 10, 24), ms(2026, 10, 27))
    assert told(schedule, ticks) == ["24 02:30 CEST", "25 02:30 CEST", "26 02:30 CET"]


def test_between_the_two_passes_of_a_doubled_hour_nothing_is_fired_again():
    schedule = Cron("30 2 * * *", timezone="Europe/Berlin")
    first = ms(2026, 10, 25, 2, 30)
    for now in (
        first,
        ms(2026, 10, 25, 2, 15, fold=1),
        ms(2026, 10, 25, 2, 30, fold=1),
        ms(2026, 10, 25, 2, 59, fold=1),
    ):
        assert schedule.after(now) == ms(2026, 10, 26, 2, 30)
        assert due_ticks(schedule, first, now, 10) == []
        assert due_ticks(schedule, now - 3 * DAY_MS, now, 1) == [first]


def test_stars_count_real_hours_in_both_nights():
    schedule = Cron("0 * * * *", timezone="Europe/Berlin")
    spring = within(schedule, ms(2026, 3, 29, 0, 30), ms(2026, 3, 29, 4))
    assert told(schedule, spring) == ["29 01:00 CET", "29 03:00 CEST", "29 04:00 CEST"]
    autumn = within(schedule, ms(2026, 10, 25, 1, 30), ms(2026, 10, 25, 3))
    assert told(schedule, autumn) == ["25 02:00 CEST", "25 02:00 CET", "25 03:00 CET"]


@pytest.mark.parametrize("month", [4, 10])
@pytest.mark.parametrize("hour", [0, 1, 2, 3, 5, 23])
def test_stars_count_real_minutes_also_where_clocks_are_set_by_half_an_hour(hour: int, month: int):
    schedule = Cron(f"*/7 {hour} * * *", timezone="Australia/Lord_Howe")
    begin, end = ms(2026, month, 3), ms(2026, month, 7)
    minutes = [at for at in range(begin, end + 1, 60_000) if schedule.at(at).hour == hour]
    expected = [at for at in minutes if schedule.at(at).minute % 7 == 0]
    assert within(schedule, begin - 1, end) == expected
    for at in range(begin, expected[-1], 1_234_567):
        assert schedule.after(at) == next(tick for tick in expected if tick > at)


def test_six_fields_have_seconds():
    schedule = Cron("*/20 * * * * *")
    assert due_ticks(schedule, 0, 60_000, 10) == [20_000, 40_000, 60_000]


def test_an_interval_is_aligned_to_the_epoch_so_that_all_workers_agree():
    schedule = Every(900_000)
    assert [schedule.after(at) for at in (0, 1, 899_999, 900_000)] == [900_000, 900_000, 900_000, 1_800_000]
    assert schedule.at(900_000) == datetime(1970, 1, 1, 0, 15, tzinfo=UTC)


def test_of_many_missed_ticks_only_the_latest_are_named_and_in_order():
    schedule = Every(1_000)
    now = 1_800_000_000_000
    assert due_ticks(schedule, 0, now, 3) == [now - 2_000, now - 1_000, now]
    assert due_ticks(schedule, now, now, 3) == []
    assert due_ticks(schedule, now + 60_000, now, 3) == []


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.integers(0, 2 * 365 * DAY_MS),
    st.integers(0, 10 * DAY_MS),
    st.integers(1, 5),
)
def test_looking_back_finds_the_same_ticks_as_walking_on(expression: str, zone: str, at: int, span: int, bound: int):
    schedule = Cron(expression, timezone=zone)
    last = 1_760_000_000_000 + at
    assert due_ticks(schedule, last, last + span, bound) == within(schedule, last, last + span)[-bound:]


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "0 0 31 2 *", "soon", "0 0 0 1 1 1 1"])
def test_what_is_no_cron_expression_is_refused_when_it_is_declared(expression: str):
    with pytest.raises(Invalid, match="cron expression"):
        Cron(expression)


def test_an_expression_that_never_ticks_is_refused_when_it_is_declared():
    with pytest.raises(Invalid, match="never ticks"):
        Cron("0 0 */31 2 MON#5")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd"])
def test_a_zone_that_nobody_knows_is_refused_when_it_is_declared(zone: str):
    with pytest.raises(Invalid, match="time zone"):
        Cron("0 3 * * *", timezone=zone)


@pytest.mark.parametrize(
    ("macro", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_a_macro_is_the_expression_that_it_stands_for(macro: str, fields: str):
    for zone in ZONES:
        ticks = [Cron(text, timezone=zone).after(ms(2024, 2, 29)) for text in (macro, fields)]
        assert ticks[0] == ticks[1]


@pytest.mark.parametrize("expression", ["@reboot", "@often", 5, None])
def test_what_is_no_macro_is_refused_with_those_that_are(expression: object):
    with pytest.raises(Invalid, match="@daily"):
        Cron(expression)  # type: ignore[arg-type]
