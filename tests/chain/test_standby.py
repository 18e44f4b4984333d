"""A standby: it follows warm, takes over when every grant is over, and never before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from tenure.broker.warm_state import WarmState
from tenure.chain.keys import mark_key
from tenure.chain.member import Led, Member
from tenure.chain.open import retrying_store
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.chain.standby import Standby
from tenure.errors import Indeterminate, NotLeader
from tenure.log.disk import Disk
from tenure.objects.background import background
from tenure.settings import Settings
from tenure.testing import ManualClock
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import Fault, SimStore

SETTINGS = ChainSettings(poll_ms=1, backoff_ms=0, backoff_ms_max=1, silence_ms=60_000)
SEGMENT_BYTES = 4096


class Frames:
    """A follower that only notes how it was called."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int]] = []
        self.begun_anew = 0

    def advance(self, segment: int, offset: int) -> None:
        self.ends.append((segment, offset))

    def begin_anew(self) -> None:
        self.begun_anew += 1

    def drop_segments(self) -> None: ...

    def save_if_due(self) -> None:
        return None


class Machine:
    """A directory with a clock of its own, on a store that it shares."""

    settings = SETTINGS

    def __init__(self, store: SimStore, name: str) -> None:
        self.store = store
        self.name = name
        self.disk: Disk = SimDisk(len(name))
        self.clock = ManualClock(boot_id=f"boot of {name}")
        self.follower = Frames()

    def member(self) -> Member:
        return Member(
            retrying_store(self.store, self.settings),
            self.disk,
            settings=self.settings,
            clock=self.clock,
            url=f"http://{self.name}",
            is_over=lambda: False,
            beats=True,
        )

    def standby(self, *, losses: int = 0) -> Standby:
        return Standby(self.member(), self.follower, losses=losses, random=Random(1))

    def lead(self, led: Led) -> ShippedLog:
        log = ShippedLog.lead(self.disk, led.leadership, led.notes, segment_bytes=SEGMENT_BYTES)
        for _ in log.replay():
            pass
        return log


def put(log: ShippedLog, body: bytes) -> None:
    log.append([(20, 1, body)])
    log.sync()


def first_leader(store: SimStore, name: str = "a", *, settings: ChainSettings = SETTINGS) -> tuple[Machine, ShippedLog]:
    machine = Machine(store, name)
    machine.settings = settings
    return machine, machine.lead(background().run(machine.standby().run()))


class Running:
    """A standby that runs on the background loop until it leads."""

    def __init__(self, standby: Standby) -> None:
        self.standby = standby
        self._future = background().start(standby.run())

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not is_true() and not self._future.done():
                await asyncio.sleep(0.001)

        background().run(asyncio.wait_for(wait(), 20))
        assert is_true()

    def wait_for(self, log: ShippedLog) -> None:
        """Wait until it has followed as far as a leader has gone."""
        place = log.leadership.place
        self.wait_until(lambda: self.standby.lag_ms is not None and self.standby.notes.place == place)

    def looks(self, count: int = 5) -> None:
        """Let it look at the chain some more times."""
        calls = self.standby._member.store.store.metrics.requests
        until = calls["get"] + count
        self.wait_until(lambda: calls["get"] >= until)

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def led(self) -> Led:
        return self._future.result(20)

    def stop(self) -> None:
        self._future.cancel()


def test_the_first_member_of_an_empty_home_leads_at_once():
    _, log = first_leader(SimStore())
    put(log, b"a")
    assert log.leadership.lost is None


def test_a_standby_holds_the_same_bytes_and_does_not_lead_while_links_come():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    for number in range(20):
        put(log, b"%d" % number + bytes(600))
        running.wait_for(log)
        other.clock.advance(1_000)
    assert not running.is_done
    assert running.standby.leader_url == "http://a"
    assert other.follower.ends[-1][0] > 1
    running.stop()


def test_a_silent_leader_is_overtaken_after_its_grant_and_not_before():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_until(lambda: running.standby.lag_ms is not None)
    other.clock.advance(SETTINGS.grant_ms)
    running.looks()
    assert not running.is_done
    other.clock.advance(SETTINGS.grant_ms // 5 + SETTINGS.beat_ms)
    log2 = other.lead(running.led())
    with pytest.raises(NotLeader) as caught:
        put(log, b"lost")
    assert caught.value.detail["leader"] == "http://bb"
    put(log2, b"b")


LONG = replace(SETTINGS, grant_ms=20_000)


def test_a_standby_waits_for_the_grant_of_its_leader_and_not_for_its_own():
    store = SimStore()
    machine, log = first_leader(store, settings=LONG)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_for(log)
    assert log.granted_until_ms == machine.clock.boot_ms() + LONG.grant_ms
    other.clock.advance(LONG.grant_ms)
    running.looks()
    assert not running.is_done, "the leader may still answer"
    other.clock.advance(LONG.grant_ms // 5)
    assert running.led().leadership.epoch == log.leadership.epoch + 1


def test_a_standby_with_a_longer_grant_does_not_wait_for_its_own():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    other.settings = replace(LONG, beat_ms=5_000)
    running = Running(other.standby())
    running.wait_for(log)
    other.clock.advance(SETTINGS.grant_ms * 6 // 5)
    assert running.led().leadership.epoch == log.leadership.epoch + 1


def test_a_standby_that_begins_at_the_end_waits_for_the_grant_of_the_last_link():
    store = SimStore()
    _, log = first_leader(store, settings=LONG)
    put(log, b"a")
    other = Machine(store, "bb")
    before = Running(other.standby())
    before.wait_for(log)
    before._future.cancel()
    again = Running(other.standby())
    again.wait_for(log)
    other.clock.advance(LONG.grant_ms)
    again.looks()
    assert not again.is_done
    again.stop()


def test_behind_a_fence_the_grant_that_it_announces_counts():
    store = SimStore()
    machine = Machine(store, "a")
    machine.settings = LONG
    led = background().run(machine.standby().run())
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_until(lambda: running.standby.lag_ms is not None)
    assert led.leadership.place == running.standby.notes.place
    other.clock.advance(LONG.grant_ms)
    running.looks()
    assert not running.is_done
    running.stop()


def test_a_link_that_does_not_say_its_grant_has_the_one_that_is_set_here():
    """Links of the version before, whose leader answered under its own setting all the same."""
    store = SimStore()
    _, log = first_leader(store)
    log.leadership.fence = log.leadership.fence._replace(grant_ms=0)
    put(log, b"a")
    other = Machine(store, "bb")
    other.settings = LONG
    running = Running(other.standby())
    running.wait_for(log)
    other.clock.advance(LONG.grant_ms)
    running.looks()
    assert not running.is_done
    running.stop()


@pytest.mark.parametrize("how", ["refused", "lost_request"])
def test_a_look_that_failed_is_not_silence(how: Fault):
    """Naive: the store was away for both, is back, and who is served first ends the epoch of a healthy leader."""
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_for(log)
    store.hook = lambda call: how if call.kind == "get" else None
    other.clock.advance(SETTINGS.grant_ms * 10)
    running.looks(40)
    store.hook = lambda call: None
    running.looks(20)
    assert not running.is_done, "a grant begins with what was seen last, and nothing was seen"
    put(log, b"b")
    running.wait_for(log)
    running.stop()


def test_a_released_lead_is_taken_at_once_by_the_named_one_and_later_by_another():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    named, other = Machine(store, "bb"), Machine(store, "ccc")
    waiting, taking = Running(other.standby()), Running(named.standby())
    for running in (waiting, taking):
        running.wait_until(lambda running=running: running.standby.lag_ms is not None)  # type: ignore[misc]
    log.release("http://bb")
    assert taking.led().leadership.epoch == log.leadership.epoch + 1
    waiting.looks()
    assert not waiting.is_done
    waiting.stop()


def test_an_own_directory_leads_again_at_once_on_the_same_boot_and_waits_on_another():
    store = SimStore()
    machine, log = first_leader(store)
    put(log, b"a")
    machine.disk = machine.disk.kill()  # type: ignore[attr-defined]
    log2 = machine.lead(background().run(machine.standby().run()))
    put(log2, b"b")
    machine.disk = machine.disk.kill()  # type: ignore[attr-defined]
    machine.clock = ManualClock(boot_id="another")
    running = Running(machine.standby())
    running.wait_until(lambda: running.standby.lag_ms is not None)
    running.looks()
    assert not running.is_done
    machine.clock.advance(10_000)
    assert running.led().leadership.epoch == log2.leadership.epoch + 1


def test_two_standbys_do_not_end_each_others_epochs():
    """The fence of the first is heard by the second, which waits for its first link."""
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    machines = [Machine(store, "bb"), Machine(store, "ccc")]
    running = [Running(machine.standby()) for machine in machines]
    for each in running:
        each.wait_until(lambda each=each: each.standby.lag_ms is not None)  # type: ignore[misc]
    machines[0].clock.advance(3_000)
    assert running[0].led().leadership.epoch == log.leadership.epoch + 1
    running[1].wait_until(lambda: running[1].standby.leader_url == "http://bb")
    machines[1].clock.advance(SETTINGS.grant_ms * 3 // 2)
    running[1].looks()
    assert not running[1].is_done
    machines[1].clock.advance(SETTINGS.grant_ms * 2)
    assert running[1].led().leadership.epoch == log.leadership.epoch + 2


def test_the_tail_of_a_leader_that_was_overtaken_goes_aside():
    store = SimStore()
    machine, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_until(lambda: running.standby.lag_ms is not None)
    log.append([(20, 1, b"never shipped")])
    log.write()
    other.clock.advance(10_000)
    log2 = other.lead(running.led())
    put(log2, b"b")
    machine.disk = machine.disk.kill()  # type: ignore[attr-defined]
    standby = machine.standby(losses=1)
    again = Running(standby)
    again.wait_until(lambda: standby.lag_ms is not None)
    assert standby.diverged_bytes > 0
    assert standby.notes.place == log2.leadership.place
    again.stop()


def test_a_seal_that_was_not_shipped_is_no_loss():
    store = SimStore()
    machine, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_until(lambda: running.standby.lag_ms is not None)
    assert log.witness()
    log.write()
    other.clock.advance(10_000)
    put(other.lead(running.led()), b"b")
    machine.disk = machine.disk.kill()  # type: ignore[attr-defined]
    standby = machine.standby(losses=1)
    again = Running(standby)
    again.wait_until(lambda: standby.lag_ms is not None)
    assert standby.diverged_bytes == 0
    again.stop()


def test_a_standby_looks_more_often_while_records_come_and_not_for_beats():
    """A lead that is given up while callers wait is found sooner, and an idle cluster costs no more requests."""
    store = SimStore()
    _, log = first_leader(store)
    machine = Machine(store, "bb")
    running = Running(machine.standby())
    running.wait_for(log)
    machine.clock.advance(1_400)
    log._sync_once()
    running.wait_for(log)
    assert running.standby._pause_ms() == SETTINGS.poll_ms, "after a beat"
    put(log, b"a")
    running.wait_for(log)
    assert running.standby._pause_ms() == SETTINGS.poll_ms / 4, "after a record"
    machine.clock.advance(5 * SETTINGS.poll_ms)
    assert running.standby._pause_ms() == SETTINGS.poll_ms, "after the last of them"
    running.stop()


def test_a_standby_wakes_when_the_silence_is_over_and_not_with_its_next_look(monkeypatch: pytest.MonkeyPatch):
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    machine = Machine(store, "bb")
    standby = machine.standby()
    running = Running(standby)
    running.wait_for(log)
    running.stop()
    monkeypatch.setattr(standby, "_settings", replace(SETTINGS, poll_ms=100))
    left_ms = standby._silence.left_ms(is_released=False)
    assert 1_530 <= left_ms <= 1_683, "a grant and the drift of clocks, and up to a tenth more"
    machine.clock.advance(1_000)
    assert standby._pause_ms() == 100
    machine.clock.advance(int(left_ms) - 1_007)
    assert 7 <= standby._pause_ms() < 8
    machine.clock.advance(8)
    assert standby._pause_ms() == 100, "it does not spin where it could not take over"


def test_a_link_that_comes_while_nobody_is_known_to_lead_is_reported():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    machine, found = Machine(store, "bb"), list[str]()
    standby = Standby(
        machine.member(),
        machine.follower,
        losses=4,
        random=Random(1),
        leader_found=lambda: found.append(standby.leader_url),
    )
    running = Running(standby)
    running.wait_for(log)
    found.clear()
    put(log, b"b")
    running.wait_for(log)
    assert found == [], "the leader was known"
    machine.clock.advance(1_001)
    assert standby.leader_url == ""
    put(log, b"c")
    running.wait_for(log)
    assert found == ["http://a"]
    running.stop()


def test_a_warm_state_follows_the_log_and_an_engine_opens_from_it():
    """See tests/chain/test_shared.py for a whole broker; here the position and the segments."""
    store = SimStore()
    _, log = first_leader(store)
    machine = Machine(store, "bb")
    warm = WarmState(machine.disk, Settings())
    standby = Standby(machine.member(), warm, random=Random(1))
    running = Running(standby)
    running.wait_for(log)
    assert warm.position is not None
    assert warm.position.batch == log.leadership.place.end.batch + 1
    running.stop()


def test_a_standby_whose_place_was_freed_tries_on_until_a_checkpoint_is_listed():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_for(log)
    store.objects[mark_key(log.leadership.epoch)] = (b"freed", 0)
    with pytest.raises(Indeterminate):
        background().run(log.leadership.renew(bytes(16)))  # its void fence lies in the slot that is read next
    running.looks(20)
    assert not running.is_done
    running.stop()


def leader_at(store: SimStore, log_ms: int) -> ShippedLog:
    """Return the log of a leader whose newest link says that time."""
    _, log = first_leader(store)
    log.log_ms = lambda: log_ms
    put(log, b"a")
    return log


def overtaken(machine: Machine, log: ShippedLog, *, after_ms: int) -> Led:
    """Let a machine follow a leader, which is silent from then on, and take over."""
    running = Running(machine.standby())
    running.wait_for(log)
    machine.clock.advance(after_ms)
    return running.led()


def test_a_standby_that_begins_at_the_end_dates_the_last_link_by_the_clock_of_the_store():
    store = SimStore()
    log = leader_at(store, 5_000_000)
    other = Machine(store, "bb")
    before = Running(other.standby())
    before.wait_for(log)
    before.stop()
    store.advance(90_000)
    other.clock.advance(7)
    again = Running(other.standby())
    again.wait_for(log)
    log_ms, boot_ms = again.standby.log_time_ms
    assert log_ms == 5_000_000
    assert other.clock.boot_ms() - boot_ms == 89_000  # some stores round to seconds: it is never early
    again.stop()


def test_a_store_that_cannot_tell_the_time_lets_none_pass():
    store = SimStore()
    log = leader_at(store, 5_000_000)
    store.advance(90_000)
    store.hook = lambda call: "refused" if call.kind == "now" else None
    other = Machine(store, "bb")
    running = Running(other.standby())
    running.wait_for(log)
    assert running.standby.log_time_ms == (5_000_000, other.clock.boot_ms())
    running.stop()


def test_the_fence_of_a_standby_carries_log_time_for_who_begins_behind_it():
    store = SimStore()
    led = overtaken(Machine(store, "bb"), leader_at(store, 5_000_000), after_ms=120_000)
    assert led.leadership.fence.log_ms == 5_120_000
    following = Running(Machine(store, "ccc").standby())
    following.wait_until(lambda: following.standby.lag_ms is not None)
    assert following.standby.log_time_ms[0] == 5_120_000
    following.stop()


def test_links_before_the_log_is_open_and_fences_of_further_epochs_carry_log_time_too():
    store = SimStore()
    other = Machine(store, "bb")
    other.settings = replace(SETTINGS, epoch_links_max=1)
    leadership = (led := overtaken(other, leader_at(store, 5_000_000), after_ms=120_000)).leadership
    log = other.lead(led)
    other.clock.advance(30)
    put(log, b"b")
    assert leadership.last.log_ms == 5_120_030
    epoch = leadership.epoch
    put(log, b"c")
    assert leadership.epoch == epoch + 1
    assert leadership.fence.log_ms == leadership.last.log_ms == 5_120_030
