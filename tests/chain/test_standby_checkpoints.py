"""Checkpoints of a home that a standby makes: the leader stands in for it, and nothing that they need is freed."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import msgspec
import pytest

from tenure.broker.warm_state import WarmState
from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain, Freed
from tenure.chain.fetch import fetch_log
from tenure.chain.home import find_home
from tenure.chain.home_upkeep import StandbyUpkeep
from tenure.chain.keys import mark_key
from tenure.chain.notes import begin_notes, save_notes
from tenure.chain.open import retrying_store
from tenure.chain.space import Space
from tenure.chain.standby import Standby
from tenure.chain.stored_checkpoint import CHECKPOINTS, SEGMENTS, StoredCheckpoint, StoredSegment, batch_of, segment_key
from tenure.errors import Overloaded
from tenure.http.cluster_view import ClusterView
from tenure.log import checkpoint
from tenure.log.interface import Position
from tenure.log.recovery import Scan
from tenure.log.segment import list_heads, segment_numbers
from tenure.objects.background import background
from tenure.settings import Settings
from tenure.testing import ManualClock
from tenure.testing.simdisk import PowerLoss, SimDisk
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.chain.test_space import SHORT, Story, cold, keys
from tests.chain.test_standby import SETTINGS, Machine, Running, first_leader, put

QUICK = msgspec.structs.replace(SHORT, place_ms=1)


class Copy:
    """A directory that follows a home, as a standby does, and makes checkpoints of what it holds."""

    def __init__(self, store: SimStore, name: str) -> None:
        self.store = store
        self.disk = SimDisk(len(name))
        retrying = retrying_store(store, QUICK)
        facts = background().run(find_home(retrying))
        assert facts is not None
        self.chain = Chain(retrying, bytes.fromhex(facts.log_id), QUICK)
        self.notes = begin_notes(facts, store.url)
        self.upkeep = StandbyUpkeep(self.disk, self.chain, url=f"http://{name}", batch=0, random=Random(1))
        self._catching_up = CatchUp(self.disk, save=partial(save_notes, self.disk), begun_anew=self.upkeep.begin_anew)

    def follow(self) -> Position:
        """Read to the end of the chain, and return where that is."""
        self.notes = background().run(self._catching_up.run(self.chain, self.notes))
        end = self.notes.place.end
        heads = [head for head in list_heads(self.disk) if head.number <= end.segment]
        scan = Scan(self.disk, heads, after=None, stop=Position(end.segment, end.offset, 0))
        for _ in scan.frames():
            pass
        return scan.end

    def make(self) -> Position:
        """Make a checkpoint of the directory where it is now."""
        position = self.follow()
        checkpoint.save(self.disk, position, b"state at %d" % position.batch)
        return position

    def save(self) -> Position:
        """Make a checkpoint, and bring it home."""
        self.store.advance(60_002)
        position = self.make()
        background().run(self.upkeep.save(position, self.notes))
        return position


def heads(store: SimStore) -> list[StoredCheckpoint]:
    """Return the heads of the checkpoints, newest first."""
    return [StoredCheckpoint.unpack(store.objects[key][0], key)[0] for key in reversed(keys(store, CHECKPOINTS))]


def check_whole(store: SimStore) -> None:
    """Check that every segment that a checkpoint names is in the home."""
    for head in heads(store):
        assert {segment_key(segment) for segment in head.segments} <= set(store.objects)


def makers(store: SimStore) -> list[tuple[str, str]]:
    return [(head.role, head.made_by) for head in heads(store)]


def test_a_new_machine_begins_at_the_checkpoint_of_a_standby():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    position = copy.save()
    [head] = heads(story.store)
    assert (head.position, head.role, head.made_by) == (position, "standby", "http://b")
    assert [segment.number for segment in head.segments] == [*range(1, position.segment)]
    check_whole(story.store)
    story.write(5)
    bodies, log = story.alive(), cold(story.store)
    assert [bytes(body) for *_, body in log.replay()] == bodies
    assert [payload for _, payload in checkpoint.load(log.disk)] == [b"state at %d" % position.batch]


def test_a_leader_leaves_checkpoints_to_a_standby_and_frees_what_those_replace():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    for _ in range(5):
        story.write()
        story.drop()
        copy.save()
        story.save()
    assert makers(story.store) == [("standby", "http://b")] * 2
    assert story.log._upkeep.stored == 0
    assert copy.upkeep.stored == 5
    assert keys(story.store, "freed/")
    assert int(keys(story.store, SEGMENTS)[0].removeprefix(SEGMENTS)[:10]) > 1
    assert [bytes(body) for *_, body in cold(story.store).replay()] == story.alive()


def test_a_leader_alone_saves_each_of_its_checkpoints():
    story = Story()
    for count in range(1, 5):
        story.write()
        story.save()
        assert story.log._upkeep.stored == count


def test_a_leader_stands_in_where_none_has_come_for_two_intervals_and_goes_on_until_one_comes():
    story = Story()
    copy = Copy(story.store, "b")
    made = []
    for does_follow in (True, True, False, False, False, True, True):
        story.write()
        if does_follow:
            copy.save()
        before = story.log._upkeep.stored
        story.save()
        made.append(story.log._upkeep.stored - before)
    assert made == [0, 0, 0, 1, 1, 0, 0]


def test_a_checkpoint_of_a_standby_that_is_damaged_does_not_count():
    story = Story()
    story.write()
    Copy(story.store, "b").save()
    [key] = keys(story.store, CHECKPOINTS)
    data, at = story.store.objects[key]
    story.store.objects[key] = (data[:-1] + bytes([data[-1] ^ 1]), at)
    story.write()
    story.save()
    assert (key in story.store.objects, story.log._upkeep.stored) == (True, 1)
    assert [bytes(body) for *_, body in cold(story.store).replay()] == story.alive()


def test_of_two_standbys_one_makes_the_checkpoints_and_the_other_goes_on_where_it_stops():
    story = Story()
    copies = [Copy(story.store, "b"), Copy(story.store, "cc")]
    stored = []
    for count in range(6):
        story.write()
        for copy in copies[count // 3 :]:
            copy.save()
        stored.append([copy.upkeep.stored for copy in copies])
    assert stored == [[1, 0], [2, 0], [3, 0], [3, 1], [3, 2], [3, 3]]


def test_two_members_that_save_the_same_position_do_not_hinder_each_other():
    story = Story()
    story.write()
    story.save()
    copies = [Copy(story.store, "b"), Copy(story.store, "cc")]
    story.write()
    positions = [copy.make() for copy in copies]
    assert positions[0] == positions[1]
    for copy in copies:
        copy.upkeep._is_made = _not_made  # type: ignore[method-assign]
        background().run(copy.upkeep.save(positions[0], copy.notes))
    assert [copy.upkeep.stored for copy in copies] == [1, 0]
    assert len(keys(story.store, CHECKPOINTS)) == 2


async def _not_made() -> bool:
    return False


def test_a_segment_that_no_checkpoint_names_yet_is_not_collected_under_the_one_that_will():
    """A standby died between its segments and its checkpoint; the next one sees them, however old they are."""
    story = Story()
    for _ in range(2):
        story.write()
        story.save()
    copy = Copy(story.store, "b")
    story.write()
    position = copy.make()

    def die(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("head", mark_key(copy.notes.place.epoch)):
            raise PowerLoss
        return None

    story.store.hook = die
    with pytest.raises(PowerLoss):
        background().run(copy.upkeep.save(position, copy.notes))
    story.store.advance(86_400_000)

    def collect(call: Call) -> Fault | None:
        """Let the leader collect between the look at the segments and the checkpoint that names them."""
        if (call.kind, call.key) == ("head", mark_key(copy.notes.place.epoch)):
            story.store.hook = lambda call: None
            asyncio.get_running_loop().create_task(story.log._upkeep._space.collect(story.log._notes.notes))
        return None

    story.store.hook = collect
    background().run(copy.upkeep.save(position, copy.notes))
    check_whole(story.store)


def test_a_segment_that_the_older_checkpoint_names_stays_although_it_was_dropped_since():
    story = Story()
    story.write(30)
    story.save()
    first = keys(story.store, SEGMENTS)[0]
    story.drop()
    story.write(3)
    story.save()
    assert first in story.store.objects
    check_whole(story.store)


def test_epochs_that_another_leader_freed_are_not_freed_link_by_link_again():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    for _ in range(4):
        story.write()
        copy.save()
        story.save()
    assert len(keys(story.store, "freed/")) > 2
    before, calls = set(story.store.objects), len(story.store.calls)
    freed = background().run(Space(copy.chain).collect(copy.notes))
    assert freed >= {int(key.removeprefix("freed/")) for key in keys(story.store, "freed/")}
    assert not any(call.kind == "delete" and call.key.startswith("chain/") for call in story.store.calls[calls:])
    assert before == set(story.store.objects)


def test_a_checkpoint_that_comes_late_is_collected_and_never_begun_at():
    """Its writer stood still: the links behind it are freed by now, and segments that it names were dropped."""
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    position, notes = copy.make(), copy.notes
    held = Hold()

    def stand_still(call: Call) -> Hold | None:
        if call.kind == "put_new" and call.key.startswith(CHECKPOINTS):
            story.store.hook = lambda call: None
            return held
        return None

    story.store.hook = stand_still
    saving = background().start(copy.upkeep.save(position, notes))
    background().run(held.reached.wait())
    for _ in range(5):
        story.write()
        story.drop()
        story.save()
    assert keys(story.store, "freed/")
    background().run(_release(held))
    saving.result(20)
    late = keys(story.store, CHECKPOINTS)[0]
    assert batch_of(late) == position.batch
    assert fetch_log(story.store, SimDisk(9), SHORT).end.batch - 1 == story.log.synced_batch
    story.write()
    story.save()
    assert late not in story.store.objects
    check_whole(story.store)


def test_a_standby_in_an_epoch_that_was_freed_stores_nothing():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    position = copy.make()
    story.store.objects[mark_key(copy.notes.place.epoch)] = (b"freed", story.store.clock_ms)
    with pytest.raises(Freed):
        background().run(copy.upkeep.save(position, copy.notes))
    assert keys(story.store, CHECKPOINTS) == []


def test_a_standby_that_begins_anew_forgets_the_segments_that_it_had():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    copy.save()
    other = StoredSegment(1, 100, "of another history")
    copy.upkeep._sealed = dict.fromkeys(copy.upkeep._sealed, other)
    story.store.objects[segment_key(other)] = (bytes(100), story.store.clock_ms)
    copy._catching_up._begun_anew()
    story.write()
    copy.save()
    assert all(other not in head.segments for head in heads(story.store))


def test_a_segment_that_the_home_lost_is_brought_again():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    copy.save()
    story.store.lose(keys(story.store, SEGMENTS)[:1])
    story.write()
    copy.save()
    check_whole(story.store)


def test_nothing_of_an_unsent_tail_goes_home():
    """A leader died with a tail of several segments; its directory follows, and the chain ends before the tail."""
    story = Story()
    story.write()
    sent = story.log.leadership.place.end
    for number in range(20):
        story.log.append([(20, 1, b"unsent %d" % number + bytes(700))])
        story.log.write()
    copy = Copy(story.store, "b")
    copy.disk, notes = story.disk.kill(), story.log._notes.notes
    copy.upkeep._disk = copy.disk
    copy._catching_up = CatchUp(copy.disk, save=partial(save_notes, copy.disk))
    copy.notes = notes
    position = copy.save()
    assert (position.segment, position.offset) == (sent.segment, sent.offset)
    assert not any(b"unsent" in data for key, (data, _) in story.store.objects.items() if "chain/" not in key)
    assert [segment.number for segment in heads(story.store)[0].segments] == [*range(1, sent.segment)]


def test_a_segment_that_is_cut_while_it_is_read_is_not_stored():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    position = copy.make()
    alive = copy.upkeep._alive(position)
    copy.upkeep._alive = lambda position: {number: size + 1 for number, size in alive.items()}  # type: ignore[method-assign]
    with pytest.raises(FileNotFoundError, match="segment 1 ends"):
        background().run(copy.upkeep.save(position, copy.notes))
    assert keys(story.store, SEGMENTS) == []


def test_a_new_machine_reads_everything_after_each_store_call_of_a_standby_and_its_leader():
    calls = _save_both(Story())
    for number in range(*calls):
        store = SimStore()

        def hook(call: Call, number: int = number) -> Fault | None:
            if call.number == number:
                raise PowerLoss
            return None

        store.hook = hook
        story = Story(store)
        with pytest.raises(PowerLoss):
            _save_both(story)
        store.hook = lambda call: None
        assert [bytes(body) for *_, body in cold(store).replay()] == story.alive()


def _save_both(story: Story) -> tuple[int, int]:
    story.write(6)
    copy = Copy(story.store, "b")
    for _ in range(2):
        story.write(6)
        copy.save()
        story.save()
        story.drop()
    story.write(6)
    before = len(story.store.calls)
    copy.save()
    story.save()
    return before, len(story.store.calls)


async def _release(held: Hold) -> None:
    held.release()


class Positions(WarmState):
    """A warm state that folds nothing, and has a checkpoint due when it is told."""

    is_due = False

    def advance(self, segment: int, offset: int) -> None:
        self._read_heads(segment)
        scan = Scan(self._disk, self._heads, after=self.position, stop=Position(segment, offset, 0))
        for _ in scan.frames():
            pass
        self.position = scan.end

    def save_if_due(self) -> Position | None:
        self._folded_bytes, self._due_bytes = int(self.is_due), 1
        self.is_due = False
        return super().save_if_due()


class Following:
    """A standby that follows a leader, with a checkpoint when it is told."""

    def __init__(self, store: SimStore) -> None:
        self.machine = Machine(store, "bb")
        self.machine.settings = msgspec.structs.replace(SETTINGS, place_ms=1)
        self.warm = Positions(self.machine.disk, Settings())
        self.standby = Standby(self.machine.member(), self.warm, random=Random(1))
        self.running = Running(self.standby)

    def checkpoint(self) -> None:
        """Make a checkpoint due."""
        self.warm.is_due = True
        self.machine.clock.advance(2)


def test_a_standby_brings_a_checkpoint_when_one_is_due():
    store = SimStore()
    _, log = first_leader(store)
    following = Following(store)
    put(log, b"a")
    following.running.wait_for(log)
    following.checkpoint()
    following.running.wait_until(lambda: following.standby.checkpoints == 1)
    assert makers(store) == [("standby", "http://bb")]
    following.running.stop()


def test_a_takeover_waits_for_no_upload_and_none_goes_on_after_it():
    store = SimStore()
    _, log = first_leader(store)
    for _ in range(12):
        put(log, bytes(700))
    following = Following(store)
    following.running.wait_for(log)
    held = Hold()

    def hang(call: Call) -> Hold | None:
        return held if call.kind == "put_new" and call.key.startswith(SEGMENTS) else None

    store.hook = hang
    following.checkpoint()
    following.running.wait_until(held.reached.is_set)
    put(log, b"followed all the same")
    following.running.wait_for(log)
    following.machine.clock.advance(10_000)
    assert following.running.led().leadership.epoch == log.leadership.epoch + 1
    saving = following.standby._upkeep._saving  # type: ignore[union-attr]
    assert saving is not None
    assert saving.cancelled()
    background().run(_release(held))
    assert keys(store, CHECKPOINTS) == []


def test_segments_that_are_dropped_during_an_upload_stay_until_it_is_done():
    store = SimStore()
    _, log = first_leader(store)
    for _ in range(12):
        put(log, bytes(700))
    following = Following(store)
    following.running.wait_for(log)
    held = Hold()

    def hang(call: Call) -> Hold | None:
        return held if call.kind == "put_new" and call.key.startswith(SEGMENTS) else None

    store.hook = hang
    following.checkpoint()
    following.running.wait_until(held.reached.is_set)
    log.drop(1)
    log.sync()
    following.running.wait_for(log)
    following.machine.clock.advance(2)
    following.running.looks()
    assert 1 in segment_numbers(following.machine.disk)
    background().run(_release(held))
    following.running.wait_until(lambda: following.standby.checkpoints == 1)
    following.machine.clock.advance(2)
    following.running.wait_until(lambda: 1 not in segment_numbers(following.machine.disk))
    following.running.stop()
    check_whole(store)


def test_a_standby_whose_disk_takes_no_checkpoint_follows_all_the_same(monkeypatch: pytest.MonkeyPatch):
    store = SimStore()
    _, log = first_leader(store)
    following = Following(store)
    following.running.wait_for(log)

    def refuse(*arguments: object) -> None:
        raise Overloaded("the checkpoint could not be written", code="disk_full")

    monkeypatch.setattr(checkpoint, "save", refuse)
    following.checkpoint()
    following.running.wait_until(lambda: not following.warm.is_due)
    put(log, b"a")
    following.running.wait_for(log)
    following.running.stop()
    assert following.standby.checkpoints == 0


def test_the_maker_of_a_checkpoint_is_read_without_its_payload():
    story = Story()
    story.write()
    copy = Copy(story.store, "b")
    copy.save()
    [key] = keys(story.store, CHECKPOINTS)
    received = copy.chain.store.store.metrics.bytes_received
    assert background().run(Space(copy.chain).peek(key)) == heads(story.store)[0]
    assert copy.chain.store.store.metrics.bytes_received - received < len(story.store.objects[key][0])


def test_checkpoints_are_counted_over_the_parts_of_a_servers_life():
    view = ClusterView("http://b", ManualClock())
    view.checkpoints = 2
    store = SimStore()
    _, log = first_leader(store)
    view.log = log
    log._upkeep.stored = 3
    [family] = [each for each in view.families({}) if each.name == "tenure_chain_checkpoints_total"]
    assert [value for _, _, value in family.samples] == [5]
