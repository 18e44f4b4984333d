"""The arithmetic of room on a full disk; what the writer does with it is tested in `test_failures`."""

from __future__ import annotations

from tenure.log.room import Room
from tenure.log.segment import HEAD_BYTES, Head

SEGMENT = 65_536


def ended_at(*ends: int) -> list[Head]:
    """Return the heads of segments of which all but the last end there."""
    return [Head(number + 1, 1, bytes(16), 1, end, 0) for number, end in enumerate((0, *ends))]


def test_spares_are_kept_for_every_ack_and_for_the_growth_of_a_rewrite():
    room = Room(SEGMENT)
    assert room.kept == 2, "one for acks, one to empty a segment into"
    usable = room.usable_bytes(SEGMENT)
    assert room.reserve(3 * usable, 0)
    assert (room.kept - 1) * usable >= 3 * usable + SEGMENT // 8
    before = room.kept
    assert room.reserve(3 * usable, 2 * usable)
    assert room.kept == before + 2


def test_a_reserve_that_asks_for_the_same_spares_says_so_and_looks_ahead():
    room = Room(SEGMENT)
    usable = room.usable_bytes(SEGMENT)
    room.reserve(8 * usable, 0)
    assert room.kept_soon > room.kept
    assert not room.reserve(8 * usable + 1, 0)


def test_a_log_with_a_long_segment_needs_spares_that_hold_its_rewrite():
    room = Room(SEGMENT)
    room.measure(ended_at(SEGMENT), capacity=SEGMENT)
    assert room.reclaim_bytes == SEGMENT
    room.measure(ended_at(SEGMENT, 10 * SEGMENT), capacity=SEGMENT)
    assert room.reclaim_bytes > 10 * SEGMENT
    room.measure(ended_at(SEGMENT), capacity=10 * SEGMENT)
    assert room.reclaim_bytes > 10 * SEGMENT, "the one being written counts, too"
    assert room.spare_bytes(40 * SEGMENT) > 40 * SEGMENT


def test_what_emptying_has_appended_is_owed_no_more_until_a_segment_is_dropped():
    room = Room(SEGMENT)
    room.reserve(0, 5_000)
    room.measure(ended_at(40_000, 20_000), capacity=SEGMENT)
    owed = room.owed_bytes()
    assert owed == 40_000 - HEAD_BYTES + 40_000 // 8 + 5_000
    room.reclaimed_bytes += 15_000
    assert room.owed_bytes() == owed - 15_000
    room.reclaimed_bytes += 10 * SEGMENT
    assert room.owed_bytes() == 0
