"""Log time where the last leader was another machine: it is followed, whatever the wall clocks say."""

from __future__ import annotations

import pytest

from tenure.broker.engine import Engine
from tenure.broker.warm_state import Warm
from tenure.core.state.state import State
from tenure.log import FileLog
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES, list_heads
from tenure.settings import Settings
from tenure.testing import ManualClock
from tenure.testing.simdisk import SimDisk

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


def written() -> SimDisk:
    """Return the disk of a log whose time began at ``START_MS``, on one machine."""
    disk = SimDisk()
    engine = Engine(FileLog.open(disk), clock=ManualClock(wall_ms=START_MS, boot_id="first"), settings=Settings())
    engine.recover()
    return disk.kill()


def opened(clock: ManualClock, *, log_ms: int, boot_ms: int) -> int:
    """Open that log on another machine, which followed; return log time."""
    settings, disk = Settings(), written()
    [head] = list_heads(disk)
    engine = Engine(FileLog.open(disk), clock=clock, settings=settings)
    begin = Position(head.number, HEAD_BYTES, head.first_batch, 0, head.crc)
    engine.recover(warm=Warm(State(settings), begin, log_ms, boot_ms))
    return engine.now()


@pytest.mark.parametrize("apart_ms", [-HOUR_MS, 0, HOUR_MS])
def test_wall_clocks_that_differ_neither_end_nor_prolong_what_was_followed(apart_ms: int):
    clock = ManualClock(wall_ms=START_MS + apart_ms, boot_ms=50_000, boot_id="other")
    assert opened(clock, log_ms=START_MS + 700, boot_ms=49_000) == START_MS + 1_700


def test_a_link_that_is_older_than_the_uptime_lets_all_of_its_time_pass():
    clock = ManualClock(wall_ms=START_MS, boot_ms=50_000, boot_id="other")
    assert opened(clock, log_ms=START_MS, boot_ms=50_000 - HOUR_MS) == START_MS + HOUR_MS


def test_where_the_links_say_no_time_the_wall_clock_does():
    clock = ManualClock(wall_ms=START_MS + HOUR_MS, boot_ms=50_000, boot_id="other")
    assert opened(clock, log_ms=0, boot_ms=0) == START_MS + HOUR_MS


def test_on_the_machine_of_the_last_leader_its_uptime_is_exact():
    clock = ManualClock(wall_ms=START_MS + HOUR_MS, boot_ms=6_000, boot_id="first")
    assert opened(clock, log_ms=START_MS, boot_ms=5_900) == START_MS + 5_000


def test_a_home_whose_clock_is_years_ahead_lets_three_days_pass(caplog: pytest.LogCaptureFixture):
    clock = ManualClock(wall_ms=START_MS, boot_ms=50_000, boot_id="other")
    assert opened(clock, log_ms=START_MS, boot_ms=-365 * 24 * HOUR_MS) == START_MS + Settings().reboot_ms_max
    assert "the clock of the log's home is" in caplog.text
