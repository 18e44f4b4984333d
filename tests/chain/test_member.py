"""How a directory comes to lead its home: cold, warm, with a tail, behind another leader, and where it must not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from tenure.chain.adopt import adopt
from tenure.chain.copy import DIVERGED
from tenure.chain.keys import HOME, hint_key, link_key
from tenure.chain.place import End
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.clock import SystemClock
from tenure.errors import Conflict, Corrupt, Indeterminate, NotFound, NotLeader
from tenure.log import FileLog
from tenure.objects.store import StoreRefused
from tenure.testing import ManualClock
from tenure.testing.power_loss import MODES, CrashMode
from tenure.testing.simdisk import PowerLoss, SimDisk
from tenure.testing.simstore import Call, Fault, SimStore
from tests.chain.kit import FAST, SEGMENT_BYTES, open_log


def opened(store: SimStore, disk: SimDisk, *, settings: ChainSettings = FAST) -> tuple[ShippedLog, list[bytes]]:
    log = open_log(store, disk, settings=settings)
    return log, [bytes(body) for *_, body in log.replay()]


def put(log: ShippedLog, *bodies: bytes, ship: bool = True) -> None:
    for body in bodies:
        log.append([(20, 1, body)])
        log.write()
    if ship:
        log.sync()


def diverged(disk: SimDisk) -> list[str]:
    return [name for name in disk.names() if name.startswith(DIVERGED)]


def test_a_machine_with_an_empty_disk_serves_what_was_there():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    put(log, *(b"%d" % number * 100 for number in range(300)))
    assert len(log.segments()) > 3
    _, bodies = opened(store, SimDisk())
    assert bodies == [b"%d" % number * 100 for number in range(300)]


def test_the_same_directory_goes_on_without_reading_the_chain_again():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    for number in range(100):
        put(log, b"%d" % number)
    log.close()
    before = len(store.calls)
    again, bodies = opened(store, disk)
    assert len(bodies) == 100
    assert len([call for call in store.calls[before:] if call.kind == "get" and call.key.startswith("chain/")]) < 10
    assert again.epoch == log.epoch + 1


def test_a_tail_that_was_not_shipped_survives_a_kill_and_is_shipped_first():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"shipped")
    put(log, *(b"tail %d" % number + bytes(300) for number in range(40)), ship=False)
    assert len(log.segments()) > 2
    again, bodies = opened(store, disk.kill())
    assert len(bodies) == 41
    assert again.synced_batch == again.written_batch
    _, cold = opened(store, SimDisk())
    assert cold == bodies


def test_a_long_tail_is_shipped_in_links_of_bounded_size():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, *(b"%d" % number + bytes(500) for number in range(60)), ship=False)
    small = ChainSettings(silence_ms=3, hint_ms=1, link_bytes_max=2_000)
    before = set(store.objects)
    opened(store, disk.kill(), settings=small)
    sizes = [len(store.objects[key][0]) for key in set(store.objects) - before if key.startswith("chain/")]
    assert len(sizes) > 15
    assert max(sizes) < 2_000 + 1_000


def test_the_tail_of_a_directory_that_another_overtook_is_moved_aside():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"shipped")
    put(log, *(b"tail %d" % number + bytes(300) for number in range(40)), ship=False)
    other, _ = opened(store, SimDisk(1))
    put(other, b"theirs")
    other.close()
    left = disk.kill()
    _, bodies = opened(store, left)
    assert bodies == [b"shipped", b"theirs"]
    assert len(diverged(left)) > 2
    assert b"tail 0" in left.content(diverged(left)[0])


def test_a_tail_stays_aside_whenever_the_start_that_moved_it_is_cut_short():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"shipped")
    put(log, b"tail" + bytes(300), ship=False)
    other, _ = opened(store, SimDisk(1))
    for number in range(8):
        put(other, b"theirs %d" % number)
    other.close()
    home = store.snapshot()
    for number in range(70):  # the first calls are those of the probe
        store.restore(home)
        left, at = disk.kill(), len(store.calls) + number

        def refuse(call: Call, at: int = at) -> Fault | None:
            return "refused" if call.number == at and call.key.startswith("chain/") else None

        store.hook = refuse
        with suppress(StoreRefused):
            opened(store, left)
        store.hook = lambda call: None
        left = left.kill()
        opened(store, left)
        assert any(b"tail" in left.content(name) for name in diverged(left)), number


def test_a_tail_is_moved_aside_also_where_the_other_leader_wrote_nothing():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"shipped")
    put(log, b"tail", ship=False)
    open_log(store, SimDisk(1))
    left = disk.kill()
    _, bodies = opened(store, left)
    assert bodies == [b"shipped"]
    assert diverged(left)


def test_what_a_fenced_leader_was_told_did_not_happen_never_comes_back():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"a")
    other, _ = opened(store, SimDisk(1))
    log.append([(20, 1, b"never")])
    with pytest.raises(NotLeader):
        log.sync()
    assert isinstance(log.failed, NotLeader)
    log.close()
    other.close()
    _, bodies = opened(store, disk)
    assert bodies == [b"a"]


def test_a_directory_whose_bytes_differ_from_the_chain_takes_the_chains():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"first", b"second")
    old = disk.kill()
    put(log, b"third")
    log.close()
    _, bodies = opened(store, old)  # a copy of the directory from before: its own epoch went on without it
    assert bodies == [b"first", b"second", b"third"]


@pytest.mark.parametrize("mode", MODES)
def test_a_power_loss_after_a_cold_start_leaves_everything_that_was_read(mode: CrashMode):
    store = SimStore()
    log, _ = opened(store, SimDisk())
    for number in range(60):
        put(log, b"%d" % number * 100)
    assert len(log.segments()) > 3
    cold = SimDisk(1)
    opened(store, cold)
    _, bodies = opened(store, cold.crash(mode))
    assert bodies == [b"%d" % number * 100 for number in range(60)]


@pytest.mark.parametrize("mode", MODES)
def test_a_power_loss_during_a_cold_start_leaves_a_directory_that_starts_again(mode: CrashMode):
    store = SimStore()
    log, _ = opened(store, SimDisk())
    for number in range(60):
        put(log, b"%d" % number * 100)
    log.close()
    whole = SimDisk(1)
    opened(store, whole)
    for operation in range(1, whole.operations, 29):
        cold = SimDisk(operation)
        cold.fail_at(operation, "crash")
        with suppress(PowerLoss):
            opened(store, cold)
        _, bodies = opened(store, cold.crash(mode))
        assert bodies == [b"%d" % number * 100 for number in range(60)]


def test_a_log_without_a_home_is_not_taken_into_one_by_accident():
    disk = SimDisk()
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES)
    list(log.replay())
    log.close()
    store = SimStore()
    with pytest.raises(Conflict) as caught:
        open_log(store, disk)
    assert caught.value.code == "not_adopted"
    assert store.objects == {}


def test_a_directory_of_another_home_is_refused():
    disk = SimDisk()
    log, _ = opened(SimStore(), disk)
    put(log, b"a")
    log.close()
    other, _ = opened(store := SimStore(), SimDisk())
    other.close()
    with pytest.raises(Conflict) as caught:
        open_log(store, disk)
    assert caught.value.code == "foreign_log"


def test_a_directory_whose_home_is_gone_is_refused():
    disk = SimDisk()
    log, _ = opened(SimStore(), disk)
    put(log, b"a")
    log.close()
    with pytest.raises(Conflict) as caught:
        open_log(SimStore(), disk)
    assert caught.value.code == "home_missing"


def test_a_leader_that_lives_is_not_overtaken():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    put(log, b"a")

    def live(call: Call) -> Fault | None:
        if call.kind == "get" and call.key.startswith("members/"):
            store.objects[hint_key(log.leadership.fence.directory.hex())] = (
                b'{"url":"http://a","epoch":2,"count":%d}' % call.number,
                0,
            )
        return None

    store.hook = live
    with pytest.raises(Conflict) as caught:
        open_log(store, SimDisk(1), settings=ChainSettings(silence_ms=60_000))
    assert caught.value.code == "home_led"
    store.hook = lambda call: None
    put(log, b"b")


def test_a_server_alone_waits_for_the_grant_of_a_leader_that_was_followed():
    store, clock = SimStore(), ManualClock()
    log = open_log(store, SimDisk(), settings=replace(FAST, grant_ms=20_000), beats=True)
    for _ in log.replay():
        pass
    put(log, b"a")

    def pass_time(call: Call) -> Fault | None:
        clock.advance(500 if call.kind == "get" and call.key.startswith("members/") else 0)
        return None

    store.hook = pass_time
    began_ms = clock.boot_ms()
    open_log(store, SimDisk(1), clock=clock)
    assert 20_000 < clock.boot_ms() - began_ms < 22_000


def test_a_leader_that_gave_up_is_followed_at_once():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    log.close()
    opened(store, SimDisk(1), settings=ChainSettings(silence_ms=3_600_000))


def test_two_that_create_a_home_at_once_end_up_in_one():
    theirs, store = SimStore(), SimStore()
    other, _ = opened(theirs, SimDisk(2))
    put(other, b"theirs")
    other.close()

    def rival(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("put_new", link_key(0, 0)):
            store.objects.update(theirs.objects)
        return None

    store.hook = rival
    log, bodies = opened(store, SimDisk(1))
    assert bodies == [b"theirs"]
    assert log.leadership.chain.log_id == other.leadership.chain.log_id


def test_a_store_that_ignores_conditions_is_refused_and_holds_nothing_afterwards():
    store = SimStore()
    store.ignores_conditions = True
    with pytest.raises(StoreRefused) as caught:
        open_log(store, SimDisk())
    assert caught.value.code == "store_unconditional"
    assert HOME not in store.objects


def test_a_store_that_is_away_at_the_start_is_reported():
    store = SimStore()
    store.hook = lambda call: "lost_request"
    with pytest.raises(Indeterminate):
        open_log(store, SimDisk())


def test_damaged_links_and_missing_ones_are_named():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    for number in range(5):
        put(log, b"%d" % number)
    log.close()
    key = link_key(log.epoch, 3)
    data, at = store.objects[key]
    store.objects[key] = (data[:-1] + bytes([data[-1] ^ 1]), at)
    with pytest.raises(Corrupt, match=key):
        open_log(store, SimDisk())
    del store.objects[key]
    with pytest.raises(Corrupt, match=key):
        open_log(store, SimDisk())


def test_notes_that_cannot_be_read_are_named():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    log.close()
    disk.put("home.json", b"{")
    with pytest.raises(Corrupt, match=r"home\.json"):
        open_log(store, disk, settings=FAST)


def adopted(store: SimStore, disk: SimDisk) -> int:
    clock = SystemClock()
    return adopt(store, disk, settings=FAST, clock=clock, segment_bytes=SEGMENT_BYTES).end.batch


def lonely(disk: SimDisk) -> list[bytes]:
    """Fill the log of a directory without a home, drop its first segment, and return what is left."""
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES)
    list(log.replay())
    for number in range(40):
        log.append([(20, 1, b"%d" % number + bytes(400))])
        log.write()
    log.sync()
    log.drop(log.segments()[0].number)
    bodies = [bytes(body) for *_, body in log.replay()]
    log.close()
    return bodies


def test_the_log_of_a_directory_is_adopted_whole():
    store, disk = SimStore(), SimDisk()
    bodies = lonely(disk)
    assert len(bodies) < 40
    adopted(store, disk)
    assert opened(store, disk)[1] == bodies
    assert opened(store, SimDisk(1))[1] == bodies


def test_an_adoption_that_was_cut_goes_on_where_it_stopped():
    disk = SimDisk()
    bodies = lonely(disk)
    whole = disk.kill()
    adopted(SimStore(), whole)
    for operation in range(1, whole.operations, 5):
        store, cut = SimStore(), disk.kill()
        cut.fail_at(operation, "crash")
        with suppress(PowerLoss):
            adopted(store, cut)
        after = cut.crash("lost")
        adopted(store, after)
        assert opened(store, SimDisk(1))[1] == bodies


def test_a_directory_without_a_log_cannot_be_adopted_nor_a_prefix_with_one_adopt():
    store, disk = SimStore(), SimDisk()
    with pytest.raises(NotFound):
        adopted(store, disk)
    lonely(disk)
    opened(store, SimDisk(1))[0].close()
    with pytest.raises(Conflict) as caught:
        adopted(store, disk)
    assert caught.value.code == "home_exists"


def test_an_old_copy_of_the_bucket_is_found_and_nothing_is_written_to_it():
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    put(log, b"a")
    log.close()
    old = dict(store.objects)
    log, _ = opened(store, disk)
    put(log, b"b")
    for when in ("between two links", "right after the fence"):
        left = disk.kill()
        restored = SimStore()
        restored.objects = dict(old)
        with pytest.raises(Corrupt, match="took back"):
            open_log(restored, left)
        assert {key for key in restored.objects if key.startswith("chain/")} == {
            key for key in old if key.startswith("chain/")
        }, when
        log.close()
        log = open_log(store, disk)


def test_a_directory_whose_home_is_lost_is_adopted_into_a_new_one():
    disk = SimDisk()
    log, _ = opened(SimStore(), disk)
    put(log, b"a", b"b")
    log.close()
    store = SimStore()
    adopted(store, disk)
    assert opened(store, SimDisk(1))[1] == [b"a", b"b"]


class Counted(deque[End]):
    """Counts what is looked at."""

    looked = 0

    def __iter__(self) -> Iterator[End]:
        for end in super().__iter__():
            self.looked += 1
            yield end


def test_a_link_costs_what_it_carries_and_not_what_waits():
    small = ChainSettings(silence_ms=3, hint_ms=1, link_bytes_max=500)
    log, _ = opened(SimStore(), SimDisk(), settings=small)
    put(log, *(b"%d" % number for number in range(5_000)), ship=False)
    waiting = log._ends = Counted(log._ends)
    sync = log.begin_sync()
    sync.run()
    log.end_sync(sync)
    assert waiting.looked < 100
