"""Links that carry pieces of segments which were dropped since: those pieces are left out, and nothing else changes."""

from __future__ import annotations

from tenure.chain.shipped import ShippedLog
from tenure.log import checkpoint
from tenure.objects.background import background
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.chain.kit import open_log


def bodies(log: ShippedLog) -> list[bytes]:
    return [bytes(body) for *_, body in log.replay()]


def test_a_new_machine_leaves_out_the_end_of_a_segment_that_was_dropped_before_the_checkpoint():
    """The link that began the open segment also carries the end of the one before it."""
    store, disk = SimStore(), SimDisk()
    log = open_log(store, disk)
    list(log.replay())
    while len(log.segments()) < 2:
        log.append([(20, 1, bytes(700))])
        log.write()
        if len(log.segments()) == 1 and log.segments()[0].used_bytes < 2_000:
            log.sync()
    log.sync()
    log.drop(1)
    log.sync()
    position = log.position()
    checkpoint.save(disk, position, b"state")
    background().run(log._upkeep.save(position, log._notes.notes))
    log.append([(20, 1, b"last")])
    log.sync()
    alive = bodies(log)
    log.close()
    fresh = open_log(store, SimDisk(1))
    assert bodies(fresh) == alive
    assert [segment.number for segment in fresh.segments()] == [2]


def test_a_killed_leader_whose_place_lies_in_a_dropped_segment_keeps_its_tail():
    """The place is noted now and then: links behind it are read again, also those of segments that went since."""
    store, disk = SimStore(), SimDisk()
    log = open_log(store, disk)
    list(log.replay())
    log.append([(20, 1, b"first")])
    log.sync()
    log._notes.save()
    while len(log.segments()) < 3:
        log.append([(20, 1, bytes(700))])
        log.sync()
    log.drop(1)
    log.sync()
    log.append([(20, 1, b"the tail")])
    log.write()
    alive = bodies(log)
    killed = disk.kill()
    again = open_log(store, killed)
    assert bodies(again) == alive
    assert again.leadership.metrics.diverged_bytes == 0
