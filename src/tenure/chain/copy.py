"""The local copy of a log whose home is a chain: the same bytes at the same places.

A link is sent after its bytes are durable here, so a directory that was not lost holds at least what its own epochs
have in the chain, and perhaps a tail that was never sent. Where another directory led meanwhile, or the bytes differ,
the tail is of a history that did not happen: it is moved aside, never silently dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from itertools import chain, count
from typing import NamedTuple

from tenure.chain.link import Run
from tenure.chain.place import End
from tenure.chain.stored_checkpoint import sha256
from tenure.log.disk import Disk, File, write_whole
from tenure.log.frame import CHUNK_BYTES, nonzero_end
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES, SEGMENTS, SPARE, read_head, segment_name, segment_numbers
from tenure.log.spare_segments import unpublished_name
from tenure.log.unpublished import begun_segments, clear_spares
from tenure.log.walk import Walk

__all__ = ["DIVERGED", "LocalCopy"]

DIVERGED = "diverged"
_OPEN_MAX = 4


class _Aside(NamedTuple):
    """A file that was moved aside: where in its segment it began, and the bytes that were counted for it."""

    name: str
    offset: int
    counted_bytes: int


class LocalCopy:
    """The segment files of a directory while links are read into them. Every method may raise OSError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[int, File] = {}
        #: The segment and offset that nothing lies behind, while the files are open: most links begin there.
        self._tip: tuple[int, int] | None = None
        #: Bytes that were moved aside, where they held records.
        self.diverged_bytes = 0
        #: What was moved aside last, by segment.
        self._aside: dict[int, _Aside] = {}

    def is_dropped(self, run: Run) -> bool:
        """Return whether a run is of a segment that was dropped here since, or before the checkpoint this copy is from.

        No segment begins in the middle, and segments are dropped from the oldest on.
        """
        if run.segment in self._files or run.segment in (numbers := segment_numbers(self._disk)):
            return False
        if run.segment in begun_segments(self._disk):
            return False  # its writer died before it got its name
        return run.offset > 0 or (bool(numbers) and run.segment < numbers[0])

    def first_difference(self, runs: Sequence[Run]) -> End | None:
        """Return the first place where the bytes of a link are not here; None where all of them are."""
        for run in runs:
            if run.offset == 0:
                self._publish(run)
            here = self._read(run)
            if here != run.data:
                same = next((at for at, byte in enumerate(here) if byte != run.data[at]), len(here))
                return End(run.segment, run.offset + same)
        return None

    def _read(self, run: Run) -> bytes:
        with suppress(FileNotFoundError):
            return self._disk.pread(self._file(run.segment), len(run.data), run.offset)
        return b""

    def _publish(self, run: Run) -> None:
        """Give a segment its name where its writer died between the link that begins it and that."""
        name = unpublished_name(run.segment)
        if run.segment in segment_numbers(self._disk) or name.rpartition("/")[2] not in self._disk.listdir(SEGMENTS):
            return
        file = self._disk.open(name)
        try:
            is_same = self._disk.pread(file, len(run.data), 0) == run.data
        finally:
            self._disk.close(file)
        if is_same:
            self._disk.rename(name, segment_name(run.segment))
            self._disk.sync_dir(SEGMENTS)

    def write(self, runs: Sequence[Run]) -> None:
        """Write the bytes of a link at their places, behind which nothing lies."""
        self._tip = None
        for run in runs:
            if run.segment in self._files or run.segment in segment_numbers(self._disk):
                write_whole(self._disk, self._file(run.segment), run.data, offset=run.offset)
            else:
                self._begin(run)
        self._tip = runs[-1].segment, runs[-1].offset + len(runs[-1].data)

    def _begin(self, run: Run) -> None:
        """Begin a segment as a roll does: those before it are durable first, and it gets its name with its head."""
        self._sync_files()
        self._disk.mkdir(SEGMENTS)
        self._disk.sync_dir("")
        file = self._disk.create(SPARE)
        try:
            write_whole(self._disk, file, run.data, offset=run.offset)
            self._disk.sync(file)
        finally:
            self._disk.close(file)
        self._disk.rename(SPARE, segment_name(run.segment))
        self._disk.sync_dir(SEGMENTS)

    def cut(self, end: End, *, aside: str) -> None:
        """Move everything behind ``end`` to ``diverged/<aside>``, durably; nothing where there is nothing.

        It is moved before it is removed here, so that a power loss in between leaves it in two places. What was moved
        aside before stays as it is, also where a start that was cut short is made again.
        """
        if self._tip == (end.segment, end.offset):
            return
        kept = end.segment if end.offset >= HEAD_BYTES else end.segment - 1  # without its head, a segment is none
        for number in [number for number in self._files if number > kept]:
            self._disk.close(self._files.pop(number))
        later = [segment_name(number) for number in segment_numbers(self._disk) if number > kept]
        later += [unpublished_name(number) for number in begun_segments(self._disk)]
        tail = self._tail(end) if kept == end.segment else b""
        if later or tail:
            self._make_aside(aside)
            if tail:
                self._keep_tail(tail, end, aside=aside)
            self._move_all(dict(enumerate(later)), aside=aside)
        clear_spares(self._disk)
        if end.segment in segment_numbers(self._disk):
            self._disk.truncate(self._file(end.segment), end.offset)
        self._tip = end.segment, end.offset

    def has_segment(self, number: int, size: int, digest: str) -> bool:
        """Return whether a whole segment is here already."""
        with suppress(FileNotFoundError):
            data = self._disk.pread(self._file(number), size, 0)
            return len(data) == size and sha256(data) == digest
        return False

    def keep_only(self, numbers: Set[int], *, proven: End, aside: str) -> None:
        """Let go of every segment but these, durably; those that stay are durable, too.

        Up to ``proven`` this copy was read from the chain, and is garbage: the log has dropped it since, or it comes
        again. What lies behind may be a tail that was never sent: it goes to ``diverged/<aside>``.
        """
        self._sync_files()
        gone = [number for number in segment_numbers(self._disk) if number not in numbers]
        if proven.segment in gone and (tail := self._tail(proven)):
            self._keep_tail(tail, proven, aside=aside)
        self._close_files()
        doubtful = {number: segment_name(number) for number in gone if number > proven.segment}
        doubtful |= {number: unpublished_name(number) for number in begun_segments(self._disk)}
        if doubtful:
            self._aside |= self._move_all(doubtful, aside=aside)
        if garbage := [number for number in gone if number <= proven.segment]:
            for number in garbage:
                self._disk.unlink(segment_name(number))
            self._disk.sync_dir(SEGMENTS)
        clear_spares(self._disk)

    def take_back(self, number: int, data: bytes) -> None:
        """Remove what was just moved aside of a segment, where it is a part of these bytes: it was history after all.

        So it is with what was read after the place was noted last.
        """
        kept = self._aside.pop(number, None)
        if kept is None:
            return
        file = self._disk.open(kept.name)
        here = self._disk.pread(file, self._disk.size(file), 0).rstrip(b"\0")
        self._disk.close(file)
        if data[kept.offset : kept.offset + len(here)] == here:
            self._disk.unlink(kept.name)
            self.diverged_bytes -= kept.counted_bytes

    def _tail(self, end: End) -> bytes:
        """Return what the segment of the end holds behind it, without the zeros that no byte was written to."""
        with suppress(FileNotFoundError):
            file = self._file(end.segment)
            size = self._disk.size(file)
            stop = nonzero_end(lambda count, offset: self._disk.pread(file, count, offset), end.offset, end=size)
            return self._disk.pread(file, max(0, stop - end.offset), end.offset)
        return b""

    def _keep_tail(self, tail: bytes, end: End, *, aside: str) -> None:
        """Write what a segment holds behind an end to ``diverged/<aside>``, durably."""
        self._make_aside(aside)
        name = self._unused(f"{DIVERGED}/{aside}/{end.segment:010d}-{end.offset:010d}.part")
        self._keep(tail, name)
        counted_bytes = len(tail) if self._holds_records(end) else 0
        self.diverged_bytes += counted_bytes
        self._aside[end.segment] = _Aside(name, end.offset, counted_bytes)

    def _keep(self, data: bytes, name: str) -> None:
        file = self._disk.create(name)
        try:
            for start in range(0, len(data), CHUNK_BYTES):
                write_whole(self._disk, file, data[start : start + CHUNK_BYTES], offset=start)
            self._disk.sync(file)
        finally:
            self._disk.close(file)

    def _holds_records(self, end: End) -> bool:
        """Return whether what follows the end of a batch is more than the log's own marks, such as a seal.

        Where it cannot be read as batches, it counts as records.
        """
        if not end.batch:
            return True
        start = Position(end.segment, max(end.offset, HEAD_BYTES), end.batch + 1)
        file = self._file(end.segment)
        size, salt = self._disk.size(file), read_head(self._disk, end.segment)[0].salt
        walk = Walk(self._disk, file, start, salt=salt, epoch=0, witnessed=0)
        has_any = any(frames for frames in walk.batches(size))
        stop = nonzero_end(lambda count, offset: self._disk.pread(file, count, offset), walk.offset, end=size)
        return has_any or stop > walk.offset

    def _unused(self, name: str) -> str:
        """Return a name that no file has yet: this one, or this one with a number."""
        directory, _, base = name.rpartition("/")
        taken = set(self._disk.listdir(directory))
        names = chain([base], (f"{base}.{number}" for number in count(2)))
        return f"{directory}/{next(each for each in names if each not in taken)}"

    def _make_aside(self, aside: str) -> None:
        self._disk.mkdir(DIVERGED)
        self._disk.mkdir(f"{DIVERGED}/{aside}")

    def _move_all(self, names: Mapping[int, str], *, aside: str) -> dict[int, _Aside]:
        """Move these files to ``diverged/<aside>``, durably; return where each is."""
        self._make_aside(aside)
        moved = {}
        for number, name in names.items():
            file = self._disk.open(name)
            size = self._disk.size(file)
            self.diverged_bytes += size
            self._disk.close(file)
            target = self._unused(f"{DIVERGED}/{aside}/{name.rpartition('/')[2]}")
            self._disk.rename(name, target)
            moved[number] = _Aside(target, 0, size)
        for name in (f"{DIVERGED}/{aside}", DIVERGED, SEGMENTS, ""):
            self._disk.sync_dir(name)
        return moved

    def sync(self) -> None:
        """Make all that was written durable, and let go of the files."""
        self._sync_files()
        self._disk.mkdir(SEGMENTS)
        self._disk.sync_dir(SEGMENTS)
        self._disk.sync_dir("")

    def _sync_files(self) -> None:
        for file in self._files.values():
            self._disk.sync(file)
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._tip = None
        self._close_files()

    def _close_files(self) -> None:
        while self._files:
            self._disk.close(self._files.popitem()[1])

    def _file(self, number: int) -> File:
        file = self._files.get(number)
        if file is None:
            if number not in segment_numbers(self._disk):
                raise FileNotFoundError(segment_name(number))
            self._sync_oldest()
            file = self._files[number] = self._disk.open(segment_name(number), write=True)
        return file

    def _sync_oldest(self) -> None:
        """Make room for another open file: links go from one segment to the next, so the first ones are done."""
        while len(self._files) >= _OPEN_MAX:
            file = self._files.pop(next(iter(self._files)))
            self._disk.sync(file)
            self._disk.close(file)
