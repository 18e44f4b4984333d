"""The space of a home: a new machine finds every payload after each step of the collector, and old links go."""

from __future__ import annotations

import pytest

from tenure.chain.fetch import fetch_log
from tenure.chain.inspect import Verified, home_status, verify_home
from tenure.chain.keys import link_key, mark_key
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.chain.stored_checkpoint import CHECKPOINTS, SEGMENTS
from tenure.errors import Corrupt
from tenure.log import FileLog, checkpoint
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.testing.simdisk import PowerLoss, SimDisk
from tenure.testing.simstore import Call, Fault, SimStore
from tests.chain.kit import SEGMENT_BYTES, open_log

SHORT = ChainSettings(
    silence_ms=3, hint_ms=1, lapse_ms=60_000, keep_ms=60_001, epoch_links_max=5, backoff_ms=0, backoff_ms_max=1
)


class Story:
    """One leader that writes, checkpoints and drops, on one store."""

    def __init__(self, store: SimStore | None = None) -> None:
        self.store = store or SimStore()
        self.disk = SimDisk()
        self.log = open_log(self.store, self.disk, settings=SHORT)
        list(self.log.replay())
        self.written = 0

    def write(self, count: int = 12) -> None:
        for _ in range(count):
            self.log.append([(20, 1, b"%d " % self.written + bytes(700))])
            self.written += 1
            self.log.write()
            self.log.sync()

    def save(self) -> None:
        """Make a checkpoint as the broker does, and bring it home. The payload stands for a state."""
        self.store.advance(60_002)
        position = self.log.position()
        checkpoint.save(self.disk, position, b"state at %d" % position.batch)
        background().run(self.log._upkeep.save(position, self.log._notes.notes))

    def drop(self) -> None:
        self.log.drop(self.log.segments()[0].number)
        self.log.sync()

    def alive(self) -> list[bytes]:
        return [bytes(body) for *_, body in self.log.replay()]


def cold(store: SimStore) -> ShippedLog:
    log = open_log(store, SimDisk(9), settings=SHORT)
    for _ in log.replay():
        pass
    return log


def keys(store: SimStore, prefix: str) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(prefix))


def test_a_new_machine_finds_every_payload_and_the_checkpoint():
    story = Story()
    story.write()
    story.save()
    story.write(5)
    bodies, log = story.alive(), cold(story.store)
    assert [bytes(body) for *_, body in log.replay()] == bodies
    [(position, payload)] = list(checkpoint.load(log.disk))
    assert payload == b"state at %d" % position.batch
    assert log.contains(position)
    locations = [location for _, _, location, _ in log.replay(position)]
    assert locations
    assert all(log.read(location) for location in locations)


def test_links_of_closed_epochs_below_both_checkpoints_are_freed_and_their_fences_stay():
    story = Story()
    for _ in range(6):
        story.write()
        story.save()
    freed = [int(key.rpartition("/")[2]) for key in keys(story.store, "freed/")]
    assert len(freed) > 5
    for epoch in freed:
        [fence] = keys(story.store, f"chain/{epoch:010d}/")
        assert fence != link_key(epoch, 0)
    assert len(keys(story.store, CHECKPOINTS)) == 2
    assert len(keys(story.store, "chain/")) < 6 * 12


def test_a_living_epoch_is_never_freed():
    story = Story()
    for _ in range(6):
        story.write()
        story.save()
    assert mark_key(story.log.leadership.epoch) not in story.store.objects


def test_what_is_younger_than_the_time_to_keep_stays():
    story = Story()
    kept = ChainSettings(silence_ms=3, hint_ms=1, keep_ms=3_600_000, epoch_links_max=5)
    story.log.leadership.chain.settings = kept
    story.log._upkeep._space._settings = kept
    for _ in range(4):
        story.write()
        story.save()
    assert keys(story.store, "freed/") == []
    story.store.advance(3_600_001)
    story.write(1)
    story.save()
    assert keys(story.store, "freed/")


def test_segments_that_were_dropped_leave_the_home_with_the_second_checkpoint_after():
    story = Story()
    story.write(30)
    story.save()
    first = keys(story.store, SEGMENTS)[0]
    for _ in range(3):
        story.drop()
        story.write(3)
        story.save()
    assert first not in story.store.objects
    assert [bytes(body) for *_, body in cold(story.store).replay()] == story.alive()


def test_a_new_machine_reads_everything_after_each_store_call_of_the_upkeep():
    whole = Story()
    calls = _run(whole)
    for number in range(calls[0], calls[1]):
        store = SimStore()

        def hook(call: Call, number: int = number) -> Fault | None:
            if call.number == number:
                raise PowerLoss
            return None

        store.hook = hook
        story = Story(store)
        with pytest.raises(PowerLoss):
            _run(story)
        store.hook = lambda call: None
        expected = story.alive()
        found = cold(store)
        assert [bytes(body) for *_, body in found.replay()] == expected


def _run(story: Story) -> tuple[int, int]:
    for _ in range(2):
        story.write()
        story.save()
        story.drop()
    story.write()
    before = len(story.store.calls)
    story.save()
    return before, len(story.store.calls)


def test_a_directory_behind_the_freed_links_begins_at_a_checkpoint():
    story = Story()
    story.write()
    old = story.disk.kill()
    for _ in range(5):
        story.write()
        story.save()
    bodies = story.alive()
    story.log.close()
    log = open_log(story.store, old, settings=SHORT)
    assert [bytes(body) for *_, body in log.replay()][-1] == bodies[-1]


def test_a_damaged_checkpoint_is_passed_over_and_a_damaged_segment_too():
    story = Story()
    story.write()
    story.save()
    story.write()
    story.save()
    bodies = story.alive()
    newest = keys(story.store, CHECKPOINTS)[-1]
    data, at = story.store.objects[newest]
    story.store.objects[newest] = (data[:-1] + bytes([data[-1] ^ 1]), at)
    assert [bytes(body) for *_, body in cold(story.store).replay()] == bodies
    segment = keys(story.store, SEGMENTS)[0]
    story.store.objects[segment] = (b"other", at)
    with pytest.raises(Corrupt, match=segment):
        cold(story.store)


def test_a_collector_that_stood_still_after_its_listing_deletes_no_segment_that_came_meanwhile():
    story = Story()
    for _ in range(2):
        story.write()
        story.save()
    theirs = f"{SEGMENTS}0000000099-of-the-next-leader"

    def stand_still(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("list", CHECKPOINTS):
            story.store.objects[theirs] = (b"needed by a checkpoint of the next leader", story.store.clock_ms)
            story.store.advance(3_600_000)
        return None

    story.write()
    story.store.hook = stand_still
    story.save()
    assert theirs in story.store.objects


def test_a_segment_that_a_checkpoint_needs_and_the_store_lost_is_named():
    story = Story()
    for _ in range(2):
        story.write()
        story.save()
    segment = keys(story.store, SEGMENTS)[0]
    story.store.lose([segment])
    with pytest.raises(Corrupt, match=segment):
        cold(story.store)


def test_a_new_machine_whose_checkpoint_is_collected_while_it_reads_begins_at_a_newer_one():
    story = Story()
    for _ in range(2):
        story.write()
        story.save()
    segment, old = keys(story.store, SEGMENTS)[0], story.store.snapshot()
    story.drop()
    for _ in range(2):
        story.write()
        story.save()
    bodies, new = story.alive(), story.store.snapshot()
    assert segment not in new
    story.store.restore(old)

    def collect(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("get", segment):
            story.store.restore(new)
        return None

    story.store.hook = collect
    assert [bytes(body) for *_, body in cold(story.store).replay()] == bodies


def verified(store: SimStore) -> Verified:
    return background().run(verify_home(RetryingStore(Metered(store, StoreMetrics()), SHORT), SHORT))


def test_a_checkpoint_that_was_collected_and_is_stored_again_counts():
    story = Story()
    story.write()
    story.save()
    [key] = [key for key in story.store.objects if key.startswith(CHECKPOINTS)]
    del story.store.objects[key]  # by the collector of another leader, while this one stood still
    story.log._notes.notes = story.log._notes.notes.without_closed({0})
    story.save()
    assert key in story.store.objects
    story.log.close()


def test_a_home_is_verified_also_where_links_were_freed():
    story = Story()
    story.write()
    assert verified(story.store).links > 10
    for _ in range(5):
        story.write()
        story.save()
    found = verified(story.store)
    assert keys(story.store, "freed/")
    assert found.place == story.log.leadership.place
    assert (found.checkpoints, found.segments > 3) == (2, True)
    status = background().run(home_status(RetryingStore(Metered(story.store, StoreMetrics()), SHORT), SHORT))
    assert (status.last.epoch, status.checkpoints) == (found.place.epoch, 2)


@pytest.mark.parametrize("prefix", ["chain/", SEGMENTS, CHECKPOINTS])
def test_every_object_that_a_new_machine_needs_is_missed_by_verify(prefix: str):
    story = Story()
    for _ in range(4):
        story.write()
        story.save()
    story.write(3)
    floor = min(head.begin for head in story.log._upkeep._space._heads.values())
    first = link_key(floor.epoch, floor.number) if prefix == "chain/" else ""
    needed = [key for key in keys(story.store, prefix) if key >= first][:-1]  # the last link may be missing: it is new
    assert needed
    for key in needed:
        flipped = SimStore()
        flipped.objects = dict(story.store.objects)
        data, at = flipped.objects[key]
        flipped.objects[key] = (data[:-1] + bytes([data[-1] ^ 1]), at)
        with pytest.raises(Corrupt, match=key):
            verified(flipped)


def test_a_log_is_fetched_as_it_was_confirmed_while_its_leader_goes_on():
    story = Story()
    for _ in range(3):
        story.write()
        story.save()
    story.write(5)
    disk = SimDisk(3)
    fetched = fetch_log(story.store, disk, SHORT)
    assert fetched.end.batch - 1 == story.log.synced_batch
    copy = FileLog.open(disk, segment_bytes=SEGMENT_BYTES)
    assert [bytes(body) for *_, body in copy.replay()] == story.alive()
    story.write(1)


def test_a_checkpoint_whose_segments_were_dropped_meanwhile_is_left_to_the_next_one():
    story = Story()
    story.write(30)
    position = story.log.position()
    checkpoint.save(story.disk, position, b"state")
    story.drop()
    with pytest.raises(FileNotFoundError, match="dropped"):
        background().run(story.log._upkeep.save(position, story.log._notes.notes))
    assert keys(story.store, CHECKPOINTS) == []
    story.save()
    assert len(keys(story.store, CHECKPOINTS)) == 1
