"""Where frames lie, against a plain list of them."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from tenure.core.state.frame_index import (
    FramePlace,
    SegmentIndex,
    ShortIndex,
    WideIndex,
    add_frame,
    cut,
    find,
    places,
    replace_frames,
)
from tenure.core.state.state import State


def make(frames: list[FramePlace]) -> list[SegmentIndex]:
    """Pieces as appends build them: a new one wherever the segment changes."""
    entries: list[SegmentIndex] = []
    for frame in frames:
        is_new = not entries or entries[-1].segment != frame[1] >> 32
        assert add_frame(entries, *frame) == is_new
    return entries


def listed(entries: list[SegmentIndex]) -> list[FramePlace]:
    assert all(entry.firsts for entry in entries), "no piece is empty"
    assert all(isinstance(entry, ShortIndex) == (len(entry.firsts) <= 4) for entry in entries)
    places = [entry.place(index) for entry in entries for index in range(len(entry.firsts))]
    assert places == [
        (first, entry.segment << 32 | offset, size, time_ms)
        for entry in entries
        for first, offset, size, time_ms in zip(entry.firsts, entry.offsets, entry.sizes, entry.times_ms, strict=True)
    ]
    return places


@st.composite
def frame_lists(draw: st.DrawFn) -> list[FramePlace]:
    frames: list[FramePlace] = []
    seq, segment, offset = 1, 1, 64
    for size, roll in draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=40)):
        if roll:
            segment, offset = segment + 1, 64
        frames.append((seq, segment << 32 | offset, size * 10, 1000 + seq))
        seq, offset = seq + size, offset + size * 10
    return frames


@given(frame_lists(), st.integers(1, 250))
def test_a_seq_is_found_in_the_frame_that_answers_for_it(frames: list[FramePlace], seq: int) -> None:
    entries = make(frames)
    at, index = find(entries, seq)
    assert entries[at].place(index) == [frame for frame in frames if frame[0] <= seq][-1]


@given(frame_lists(), st.integers(1, 250), st.integers(0, 100))
def test_the_frames_of_a_range_come_in_order(frames: list[FramePlace], lo: int, width: int) -> None:
    hi = lo + width
    before = [frame for frame in frames if frame[0] <= lo][-1:]
    inside = [frame for frame in frames if lo < frame[0] < hi]
    assert list(places(make(frames), lo, hi)) == (before + inside if width else [])


@given(frame_lists(), st.integers(1, 100), st.integers(0, 100))
def test_a_cut_takes_out_what_starts_in_its_range(frames: list[FramePlace], lo: int, width: int) -> None:
    entries = make(frames)
    cut(entries, lo, lo + width)
    assert listed(entries) == [frame for frame in frames if not lo <= frame[0] < lo + width]


@given(frame_lists(), st.data())
def test_a_frame_takes_the_place_of_those_it_carries(frames: list[FramePlace], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(frames) - 1))
    stop = data.draw(st.integers(start + 1, len(frames)))
    lo = frames[start][0]
    hi = frames[stop][0] if stop < len(frames) else 10**6
    segment = data.draw(st.sampled_from([frames[start][1] >> 32, 99]))
    carried = (lo, segment << 32 | 7, 5, 1)
    entries = make(frames)
    replace_frames(entries, lo, hi, carried)
    assert listed(entries) == [*frames[:start], carried, *frames[stop:]]


def test_a_frame_may_be_put_where_nothing_was() -> None:
    entries: list[SegmentIndex] = []
    replace_frames(entries, 1, 10, (1, 5 << 32, 3, 4))
    assert listed(entries) == [(1, 5 << 32, 3, 4)]


def test_there_is_nothing_in_no_pieces() -> None:
    assert list(places([], 1, 10)) == []


def test_a_piece_of_few_frames_is_one_small_object() -> None:
    frames = [(seq, 7 << 32 | 64 * seq, 10, 1_000) for seq in range(1, 7)]
    for count, bytes_max in ((1, 80), (4, 152)):
        (entry,) = make(frames[:count])
        assert isinstance(entry, ShortIndex)
        assert sys.getsizeof(entry) <= bytes_max
    (entry,) = make(frames)
    assert isinstance(entry, WideIndex)


def test_the_holders_of_a_segment_take_a_few_bytes_each() -> None:
    state = State()
    for topic_id in range(1, 10_001):
        state.note_holder(3, topic_id)
    assert list(state.holders[3]) == list(range(1, 10_001))
    assert len(state.holders[3].serialize()) <= 2.5 * 10_000
