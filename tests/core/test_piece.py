"""Where frames lie, against a plain list of them."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from tenure.core.state.frame_index import (
    Piece,
    ShortPiece,
    Spot,
    WidePiece,
    add_frame,
    cut,
    find,
    replace_frames,
    spots,
)
from tenure.core.state.state import State


def make(frames: list[Spot]) -> list[Piece]:
    """Pieces as appends build them: a new one wherever the segment changes."""
    pieces: list[Piece] = []
    for frame in frames:
        is_new = not pieces or pieces[-1].segment != frame[1] >> 32
        assert add_frame(pieces, *frame) == is_new
    return pieces


def listed(pieces: list[Piece]) -> list[Spot]:
    assert all(piece.firsts for piece in pieces), "no piece is empty"
    assert all(isinstance(piece, ShortPiece) == (len(piece.firsts) <= 4) for piece in pieces)
    spots = [piece.spot(index) for piece in pieces for index in range(len(piece.firsts))]
    assert spots == [
        (first, piece.segment << 32 | offset, size, time_ms)
        for piece in pieces
        for first, offset, size, time_ms in zip(piece.firsts, piece.offsets, piece.sizes, piece.times, strict=True)
    ]
    return spots


@st.composite
def frame_lists(draw: st.DrawFn) -> list[Spot]:
    frames: list[Spot] = []
    seq, segment, offset = 1, 1, 64
    for size, roll in draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=40)):
        if roll:
            segment, offset = segment + 1, 64
        frames.append((seq, segment << 32 | offset, size * 10, 1000 + seq))
        seq, offset = seq + size, offset + size * 10
    return frames


@given(frame_lists(), st.integers(1, 250))
def test_a_seq_is_found_in_the_frame_that_answers_for_it(frames: list[Spot], seq: int) -> None:
    pieces = make(frames)
    at, index = find(pieces, seq)
    assert pieces[at].spot(index) == [frame for frame in frames if frame[0] <= seq][-1]


@given(frame_lists(), st.integers(1, 250), st.integers(0, 100))
def test_the_frames_of_a_range_come_in_order(frames: list[Spot], lo: int, width: int) -> None:
    hi = lo + width
    before = [frame for frame in frames if frame[0] <= lo][-1:]
    inside = [frame for frame in frames if lo < frame[0] < hi]
    assert list(spots(make(frames), lo, hi)) == (before + inside if width else [])


@given(frame_lists(), st.integers(1, 100), st.integers(0, 100))
def test_a_cut_takes_out_what_starts_in_its_range(frames: list[Spot], lo: int, width: int) -> None:
    pieces = make(frames)
    cut(pieces, lo, lo + width)
    assert listed(pieces) == [frame for frame in frames if not lo <= frame[0] < lo + width]


@given(frame_lists(), st.data())
def test_a_frame_takes_the_place_of_those_it_carries(frames: list[Spot], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(frames) - 1))
    stop = data.draw(st.integers(start + 1, len(frames)))
    lo = frames[start][0]
    hi = frames[stop][0] if stop < len(frames) else 10**6
    segment = data.draw(st.sampled_from([frames[start][1] >> 32, 99]))
    carried = (lo, segment << 32 | 7, 5, 1)
    pieces = make(frames)
    replace_frames(pieces, lo, hi, carried)
    assert listed(pieces) == [*frames[:start], carried, *frames[stop:]]


def test_a_frame_may_be_put_where_nothing_was() -> None:
    pieces: list[Piece] = []
    replace_frames(pieces, 1, 10, (1, 5 << 32, 3, 4))
    assert listed(pieces) == [(1, 5 << 32, 3, 4)]


def test_there_is_nothing_in_no_pieces() -> None:
    assert list(spots([], 1, 10)) == []


def test_a_piece_of_few_frames_is_one_small_object() -> None:
    frames = [(seq, 7 << 32 | 64 * seq, 10, 1_000) for seq in range(1, 7)]
    for count, bytes_max in ((1, 80), (4, 152)):
        (piece,) = make(frames[:count])
        assert isinstance(piece, ShortPiece)
        assert sys.getsizeof(piece) <= bytes_max
    (piece,) = make(frames)
    assert isinstance(piece, WidePiece)


def test_the_holders_of_a_segment_take_a_few_bytes_each() -> None:
    state = State()
    for topic_id in range(1, 10_001):
        state.note_holder(3, topic_id)
    assert list(state.holders[3]) == list(range(1, 10_001))
    assert len(state.holders[3].serialize()) <= 2.5 * 10_000
