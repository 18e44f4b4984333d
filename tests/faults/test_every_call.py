"""Every disk call of every story fails once, in every way: the loop "fail at call 1, 2, 3 … until it passes"."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy

import pytest

from tenure.errors import TenureError
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import CrashMode, Failure, PowerLoss, SimDisk
from tests.faults.scenarios import SCENARIOS, Scenario, started, unfinished
from tests.faults.world import Ledger, Session, survive

FAILURES: tuple[Failure, ...] = ("crash", "EIO", "ENOSPC", "short")
POWER_LOSSES: tuple[CrashMode, ...] = ("lost", "torn", "reordered", "kept")


def judge(disk: SimDisk, ledger: Ledger, clock: ManualClock, *, call: int, copies: int = 1, every: bool) -> None:
    """Recover in the world after kill -9, and in one after a power loss, or in one of each kind."""
    losses = POWER_LOSSES if every else (POWER_LOSSES[call % 3],)
    survive(disk.kill(), ledger, deepcopy(clock), power_lost=False, copies=copies)
    for number, mode in enumerate(losses):
        survive(disk.crash(mode, seed=call * 10 + number), ledger, deepcopy(clock), power_lost=True, copies=copies)


def fail_every_call(scenario: Scenario, failure: Failure, *, every: bool = False) -> int:
    first, books, time = started(scenario, seed=11)
    call = 0
    while True:
        call += 1
        disk, ledger, clock = first.crash("lost", seed=call), deepcopy(books), deepcopy(time)
        disk.fail_at(call, failure)
        with suppress(PowerLoss, TenureError):
            scenario.story(Session(disk, ledger, clock))
        judge(disk, ledger, clock, call=call, copies=scenario.copies, every=every)
        if disk.operations < call:
            return call


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_fault_1_2_11_12_13_no_failing_call_loses_a_promise(scenario: Scenario, failure: Failure) -> None:
    """Faults 1, 2, 3, 4, 11, 12, 13: whichever call fails or is the last one, what was acknowledged is still there,
    what was acked stays gone, and nothing needs cleaning by hand.
    """
    assert fail_every_call(scenario, failure) > 15


@pytest.mark.full
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_fault_1_2_11_12_13_no_failing_call_loses_a_promise_in_any_world(scenario: Scenario, failure: Failure) -> None:
    assert fail_every_call(scenario, failure, every=True) > 15


@pytest.mark.parametrize("failure", FAILURES)
def test_fault_20_a_recovery_that_fails_at_any_call_is_simply_repeated(failure: Failure) -> None:
    """Fault 20: the machine stopped in the middle of things; then every call of the recovery fails, and of the next."""
    books, time, disk = Ledger(), ManualClock(), SimDisk(5)
    session = Session(disk, books, time)
    unfinished(session)
    for mode in POWER_LOSSES:
        call = 0
        while True:
            call += 1
            ledger = deepcopy(books)
            ledger.close_books(power_lost=True)
            world = disk.crash(mode, seed=3)
            world.fail_at(call, failure)
            with suppress(PowerLoss, TenureError):
                Session(world, deepcopy(ledger), deepcopy(time)).close()
            done = world.operations < call
            world = world.crash(POWER_LOSSES[call % 4], seed=call)
            world.fail_at(call + 1, failure)
            with suppress(PowerLoss, TenureError):
                Session(world, deepcopy(ledger), deepcopy(time)).close()
            survive(world.crash(POWER_LOSSES[call % 3], seed=call), ledger, deepcopy(time), power_lost=True)
            if done:
                break
