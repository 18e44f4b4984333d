"""A leader's life, cut or hurt at every call of its disk and of its store: what the home confirmed is never lost.

After each cut the log is opened twice: from what a power loss left of the directory, and from an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tenure.errors import TenureError
from tenure.testing.power_loss import MODES, CrashMode
from tenure.testing.simdisk import Failure, PowerLoss, SimDisk
from tenure.testing.simstore import Call, Fault, SimStore
from tests.chain.kit import open_log

EVERY = pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.full)])
"""Each so many-th call is hurt, and each single one in the full suite."""
FAULTS: tuple[Fault, ...] = ("lost_request", "lost_reply", "duplicate", "late", "refused", "false_exists")


class Life:
    """What one life wrote, what was confirmed, and which segments it declared dropped and saw confirmed."""

    def __init__(self) -> None:
        self.written: list[tuple[int, bytes]] = []
        self.confirmed = 0
        self.dropped = 0
        self.is_dead = False

    def live(self, store: SimStore, disk: SimDisk) -> None:
        """Open, fill some segments, drop the oldest, close; then do it again."""
        for _ in range(2):
            log = open_log(store, disk, is_over=lambda: self.is_dead)
            for _ in log.replay():
                pass
            for number in range(14):
                body = b"%d " % len(self.written) + bytes(600)
                [location] = log.append([(20, 1, body)])
                self.written.append((location >> 32, body))
                log.write()
                if number % 3 == 2:
                    log.sync()
                    self.confirmed = len(self.written)
            oldest = log.segments()[0].number
            log.drop(oldest)
            self.dropped = oldest
            log.sync()
            self.confirmed = len(self.written)
            log.close()

    def check(self, store: SimStore, disk: SimDisk) -> None:
        """Open the home with this directory: all that was confirmed is there, in order, and nothing unheard of."""
        log = open_log(store, disk)
        bodies = [bytes(body) for *_, body in log.replay()]
        log.close()
        wrote = [body for _, body in self.written]
        lasting = [body for segment, body in self.written[: self.confirmed] if segment > self.dropped]
        first = wrote.index(bodies[0]) if bodies else len(wrote)
        assert bodies == wrote[first : first + len(bodies)]
        assert [body for body in lasting if body not in bodies] == []


def count_calls() -> tuple[int, int]:
    store, disk, life = SimStore(), SimDisk(), Life()
    life.live(store, disk)
    counted = len(store.calls), disk.operations
    life.check(store, disk)
    return counted


STORE_CALLS, DISK_CALLS = count_calls()


@EVERY
@pytest.mark.parametrize("mode", MODES)
def test_a_power_loss_at_every_disk_call_loses_nothing_that_the_home_confirmed(mode: CrashMode, every: int):
    for operation in range(1 + MODES.index(mode), DISK_CALLS, every):
        store, disk, life = SimStore(), SimDisk(operation), Life()
        disk.fail_at(operation, "crash")
        with pytest.raises(PowerLoss):
            life.live(store, disk)
        life.check(store, disk.crash(mode))
        life.check(store, SimDisk())


@EVERY
@pytest.mark.parametrize("failure", ["EIO", "ENOSPC", "short"])
def test_a_failing_disk_loses_nothing_that_the_home_confirmed(failure: Failure, every: int):
    for operation in range(1, DISK_CALLS, every):
        store, disk, life = SimStore(), SimDisk(operation), Life()
        disk.fail_at(operation, failure)
        with suppress(TenureError):
            life.live(store, disk)
        life.check(store, disk.crash("lost"))
        life.check(store, SimDisk())


@EVERY
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_store_call_loses_nothing_that_was_confirmed(fault: Fault, every: int):
    for number in range(FAULTS.index(fault), STORE_CALLS, every):
        store, disk, life = SimStore(), SimDisk(), Life()
        store.fail(number, fault)
        with suppress(TenureError):
            life.live(store, disk)
        store.deliver_late()
        life.check(store, disk.kill())
        store.deliver_late()
        life.check(store, SimDisk())


@EVERY
def test_a_death_before_and_after_every_store_call_loses_nothing_that_was_confirmed(every: int):
    for number in range(0, STORE_CALLS, every):
        for fault in ("lost_request", "lost_reply"):
            store, disk, life = SimStore(), SimDisk(), Life()
            store.hook = _death(life, disk, number, fault)
            with suppress(PowerLoss, TenureError):
                life.live(store, disk)
            store.hook = lambda call: None
            life.check(store, disk.kill())
            life.check(store, SimDisk())


def _death(life: Life, disk: SimDisk, number: int, fault: Fault) -> Callable[[Call], Fault | None]:
    """From this call on nothing of the process happens any more, in the store or on the disk."""

    def hook(call: Call) -> Fault | None:
        if call.number < number:
            return None
        life.is_dead = True
        disk.fail_at(disk.operations + 1, "crash")
        return fault if call.number == number else "lost_request"

    return hook
