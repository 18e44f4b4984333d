"""Runs against the naive thing: Python sets of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tenure.core.state import ranges

SMALL = st.integers(min_value=0, max_value=400)
SEQS = st.lists(SMALL, max_size=120)
# Borders of containers, of bytes and of words are where a bitmap and a byte trick would go wrong.
FAR = st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**32 - 3, 2**32, 2**48, 2**63 - 500])
BITMAPS = st.builds(
    lambda base, offsets, lo, n: BitMap64([base + o for o in offsets]) | BitMap64(range(base + lo, base + lo + n)),
    FAR,
    st.sets(SMALL, max_size=60),
    SMALL,
    SMALL,
)


def naive_runs(seqs: set[int]) -> list[int]:
    runs: list[int] = []
    for seq in sorted(seqs):
        if runs and runs[-2] + runs[-1] == seq:
            runs[-1] += 1
        else:
            runs += [seq, 1]
    return runs


@given(SEQS, FAR)
def test_runs_cover_exactly_the_seqs_given(offsets: list[int], base: int) -> None:
    seqs = [base + o for o in offsets]
    runs = ranges.to_runs(seqs)
    assert runs == naive_runs(set(seqs))
    assert list(ranges.each(runs)) == sorted(set(seqs))
    assert ranges.count(runs) == len(set(seqs))


@given(FAR, st.integers(1, 3000))
def test_contiguous_seqs_are_one_run(base: int, n: int) -> None:
    assert ranges.to_runs(list(range(base, base + n))) == [base, n]
    assert ranges.to_runs(range(base, base + n)) == [base, n]
    assert ranges.to_runs(reversed(range(base, base + n))) == [base, n]


@given(FAR, st.integers(3, 1500), st.data())
def test_one_seq_moved_out_of_a_long_run_is_noticed(base: int, n: int, data: st.DataObject) -> None:
    seqs = list(range(base, base + n))
    at = data.draw(st.integers(1, n - 2))
    seqs[at] = base + data.draw(st.integers(0, n - 1))
    assert ranges.to_runs(seqs) == naive_runs(set(seqs))


def test_no_seqs_are_no_runs() -> None:
    assert ranges.to_runs([]) == []
    assert ranges.count([]) == 0
    assert list(ranges.each([])) == []


def test_numbers_outside_u64_are_still_grouped_rightly() -> None:
    assert ranges.to_runs([-1, 0, 1]) == [-1, 3]
    assert ranges.to_runs([2**64 - 1, 2**64]) == [2**64 - 1, 2]


def test_the_last_byte_alone_does_not_make_a_run() -> None:
    # Each last byte counts up by one and the ends are right; only the order gives it away.
    assert ranges.to_runs([0, 257, 2]) == [0, 1, 2, 1, 257, 1]


@given(BITMAPS, FAR, SMALL)
def test_first_absent_is_the_first_integer_not_in_the_bitmap(bitmap: BitMap64, base: int, offset: int) -> None:
    start = base + offset
    expected = start
    while expected in bitmap:
        expected += 1
    assert ranges.first_absent(bitmap, start) == expected


def test_first_absent_finds_the_end_of_a_long_run() -> None:
    bitmap = BitMap64(range(7, 3_000_007))
    assert ranges.first_absent(bitmap, 7) == 3_000_007
    assert ranges.first_absent(bitmap, 2_999_999) == 3_000_007
    assert ranges.first_absent(bitmap, 6) == 6


@given(BITMAPS, FAR, SMALL, SMALL)
def test_runs_and_gaps_of_a_window_split_it_between_them(bitmap: BitMap64, base: int, offset: int, width: int) -> None:
    lo, hi = base + offset, base + offset + width
    window = range(lo, hi)
    assert ranges.runs_of(bitmap, lo, hi) == naive_runs({seq for seq in window if seq in bitmap})
    assert ranges.gaps_of(bitmap, lo, hi) == naive_runs({seq for seq in window if seq not in bitmap})


def test_an_empty_window_has_neither_runs_nor_gaps() -> None:
    bitmap = BitMap64([3])
    assert ranges.runs_of(bitmap, 3, 3) == ranges.gaps_of(bitmap, 3, 3) == []
    assert ranges.runs_of(bitmap, 5, 3) == ranges.gaps_of(bitmap, 5, 3) == []
