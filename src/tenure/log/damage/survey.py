"""Survey a log that may be damaged: which batches are whole, and exactly what is broken.

Recovery stops at the first damage. A survey goes on after it: it looks for the next frame that opens a batch, counts
the batches between as broken, yields their whole frames as such, and reads around bytes that the disk refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from tenure.errors import Corrupt
from tenure.log import checkpoint
from tenure.log.damage.defects import Problem, Report
from tenure.log.disk import Disk, File
from tenure.log.features import FEATURES, Feature
from tenure.log.frame import (
    FIRST,
    HEADER_BYTES,
    KIND_FIRST,
    FoundFrame,
    Read,
    checksum,
    find_frames,
    nonzero_end,
    unpack_header,
)
from tenure.log.interface import Frame, Position
from tenure.log.segment import (
    HEAD_BYTES,
    SEGMENTS,
    Head,
    decode_head,
    read_features,
    salt_of,
    segment_name,
    segment_numbers,
)
from tenure.log.unpublished import find_unpublished
from tenure.log.walk import Walk

__all__ = ["Batch", "Survey", "find_salt"]

_TRIES_MAX = 1_000


def find_salt(read: Read, start: int, *, end: int) -> int | None:
    """Return the salt under which two frames in a row from ``start`` on are whole, or None."""
    before = b""
    for _ in range(_TRIES_MAX):
        frame = _frame(read, start, end=end)
        if not frame:
            return None
        if before:
            salt = _seed_of(before) ^ len(before)
            if checksum(frame, salt) == unpack_header(frame)[1]:
                return salt
        before, start = frame, start + len(frame)
    return None


def _frame(read: Read, start: int, *, end: int) -> bytes:
    """Return the frame at this place, as long as its header says; empty where that length is impossible."""
    header = read(min(HEADER_BYTES, end - start), start) if start < end else b""
    if len(header) < HEADER_BYTES:
        return b""
    length: int = unpack_header(header)[0]
    frame = read(length, start) if HEADER_BYTES <= length <= end - start else b""
    return frame if len(frame) == length else b""


def _seed_of(frame: bytes) -> int:
    """Return the seed with which the frame has the checksum in its header."""
    data, wanted = memoryview(frame)[8:], unpack_header(frame)[1]
    zero = crc32c(data, 0)
    rows: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        row, mask = _reduce(crc32c(data, 1 << bit) ^ zero, 1 << bit, rows)
        rows[row.bit_length()] = row, mask
    return _reduce(wanted ^ zero, 0, rows)[1]


def _reduce(value: int, mask: int, rows: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Take rows out of a value, its highest bit first, as long as there is one for it."""
    while value and value.bit_length() in rows:
        row, of = rows[value.bit_length()]
        value, mask = value ^ row, mask ^ of
    return value, mask


_PAGE_BYTES = 4096


class Batch(NamedTuple):
    """The frames of one batch, or (``whole`` false) those frames of a broken batch that are whole."""

    frames: list[Frame]
    whole: bool


class _Found(NamedTuple):
    """A segment as found: the file that holds it, and its head where that can be read."""

    number: int
    name: str
    head: Head | None


class Survey:
    """One pass over a directory; exhaust :meth:`batches`, then ask for the :meth:`report`.

    ``batches`` raises Corrupt for a newer format, and for a feature that is not ``known``.
    """

    def __init__(self, disk: Disk, *, known: Sequence[Feature] = FEATURES) -> None:
        self.disk = disk
        self._known = known
        #: The file and the salt of each segment that could be gone through.
        self.segments: dict[int, tuple[str, int]] = {}
        #: Whether a frame between the first segment and the place reached is missing or damaged.
        self.wounded = False
        self._problems: list[Problem] = []
        self._missing: list[tuple[int, Problem]] = []
        self._torn: Problem | None = None
        self._found = self._batches = self._frames = self._epoch = self._dropped = 0
        #: The batch that must come next; 0 until the first one is known.
        self._next = 0

    def report(self) -> Report:
        missing = [problem for number, problem in self._missing if number > self._dropped]
        counts = (self._found, self._batches, self._frames, self._epoch)
        return Report(*counts, missing + self._problems, self._torn)

    def batches(self) -> Iterator[Batch]:
        """Yield every batch, whole or what is left of it, in order, without the log's own frames."""
        found = self._find_segments()
        self._found = len(found)
        if not found and checkpoint.exists(self.disk):
            self._add_problem(
                Problem(SEGMENTS, 0, 0, "there are checkpoints but no segments: the log itself is missing")
            )
        log_id = next((each.head.log_id for each in found if each.head is not None), None)
        number = 1
        for place, each in enumerate(found):
            if each.number > number:
                self._note_missing(number, each)
                self.wounded |= place > 0
            number = each.number + 1
            after = found[place + 1] if place + 1 < len(found) else None
            yield from self._segment(each, after, salt=None if log_id is None else salt_of(log_id, each.number))

    def _add_problem(self, problem: Problem) -> None:
        self._problems.append(problem)
        self.wounded = True

    def _find_segments(self) -> list[_Found]:
        """Find the segments by what their heads say, or by their names where the head is damaged."""
        found: dict[int, _Found] = {}
        strays: list[_Found] = []
        for number in segment_numbers(self.disk):
            name = segment_name(number)
            try:
                head = decode_head(self._read_start(name), name)
            except Corrupt as error:
                if error.code == "format_too_new":
                    raise
                self._problems.append(Problem(name, 0, HEAD_BYTES, error.message))
                found[number] = _Found(number, name, None)
                continue
            self._epoch = max(self._epoch, head.epoch)
            if head.number == number:
                found[number] = _Found(number, name, head)
            else:
                self._problems.append(Problem(name, 0, HEAD_BYTES, f"the file holds segment {head.number}"))
                strays.append(_Found(head.number, name, head))
        for stray in strays:
            found.setdefault(stray.number, stray)
        row = [found[number] for number in sorted(found)]
        while row and (after := self._unpublished(row[-1])) is not None:
            row.append(after)
        for each in row:
            self._check_features(each)
        return row

    def _check_features(self, found: _Found) -> None:
        if found.head is not None:
            file = self.disk.open(found.name)
            try:
                read_features(partial(self.pread, file), found.head, known=self._known)
            finally:
                self.disk.close(file)

    def _unpublished(self, last: _Found) -> _Found | None:
        """Find the segment that follows the last one and was not published before its process died."""
        try:
            found = None if last.head is None else find_unpublished(self.disk, last.head, last.name)
        except OSError:
            return None  # The walk over the last segment meets the same error, and reports it.
        return None if found is None else _Found(found.head.number, found.name, found.head)

    def _read_start(self, name: str) -> bytes:
        file = self.disk.open(name)
        try:
            return self.pread(file, HEAD_BYTES, 0)
        finally:
            self.disk.close(file)

    def _note_missing(self, number: int, after: _Found) -> None:
        """Note that segments are not there; whether they were declared dropped is known at the end."""
        last = after.head.first_batch - 1 if after.head is not None else 0
        for each in range(number, after.number):
            why = f"the segment is missing (all of {number}..{after.number - 1} are)"
            self._missing.append((each, Problem(segment_name(each), 0, 0, why, max(1, self._next), last)))

    def _segment(self, found: _Found, after: _Found | None, *, salt: int | None) -> Iterator[Batch]:
        """Yield the batches of one segment, going on after damage."""
        file = self.disk.open(found.name)
        try:
            size = self.disk.size(file)
            follows = after.head if after is not None and after.number == found.number + 1 else None
            limit = size if follows is None else min(size, follows.previous_end)
            read = partial(self.pread, file)
            if salt is None and (salt := find_salt(read, HEAD_BYTES, end=limit)) is None:
                self._add_problem(
                    Problem(found.name, HEAD_BYTES, limit, "without any head, no frame in it can be verified")
                )
                return
            self.segments[found.number] = found.name, salt
            batch = found.head.first_batch if found.head is not None else self._first_batch(found.name, read, salt)
            start = Position(found.number, HEAD_BYTES, batch, 0, 0 if found.head is None else found.head.crc)
            walk = Walk(self, file, start, salt=salt, epoch=0, witnessed=0)
            while True:
                yield from self._whole_batches(walk, limit)
                resume, broken = self._note_damage(found, read, walk, limit=limit, salt=salt, last=after is None)
                yield from _broken_batches(found.number, read, broken)
                if resume is None:
                    break
                start = Position(found.number, resume.offset, resume.batch)
                walk = Walk(self, file, start, salt=salt, epoch=0, witnessed=0)
            if follows is not None:
                self._check_link(found, follows, walk, size=size)
        finally:
            self.disk.close(file)

    def _first_batch(self, name: str, read: Read, salt: int) -> int:
        """Return the batch that a segment without a head begins with: what its first frame says, if that is whole."""
        header = read(HEADER_BYTES, HEAD_BYTES)
        length = unpack_header(header)[0] if len(header) == HEADER_BYTES else 0
        frame = read(length, HEAD_BYTES) if length >= HEADER_BYTES else b""
        expected, batch = max(1, self._next), 0
        if frame and len(frame) == length and checksum(frame, salt) == unpack_header(frame)[1]:
            batch = int(unpack_header(frame)[3])
        if 0 < self._next < batch:
            self._add_problem(
                Problem(name, HEAD_BYTES, HEAD_BYTES, "batches are missing before it", expected, batch - 1)
            )
        return max(expected, batch)

    def _whole_batches(self, walk: Walk, limit: int) -> Iterator[Batch]:
        for frames in walk.batches(limit):
            self._epoch, self._dropped = max(self._epoch, walk.epoch), max(self._dropped, walk.dropped)
            if walk.batch <= self._next:
                continue  # A copy of what another segment already gave.
            self._next = walk.batch
            self._batches += 1
            self._frames += len(frames)
            yield Batch(frames, True)

    def _note_damage(
        self, found: _Found, read: Read, walk: Walk, *, limit: int, salt: int, last: bool
    ) -> tuple[FoundFrame | None, list[FoundFrame]]:
        """Note what is broken where a walk ended; return the frame to go on from, if any, and those before it."""
        end = nonzero_end(read, walk.offset, end=limit)
        if end == walk.offset:
            return None, []
        frames = list(find_frames(read, walk.offset, end=min(limit, end + HEADER_BYTES), salt=salt, batch=walk.batch))
        if last and not any(frame.synced_batch >= walk.batch for frame in frames):
            last_batch = max((frame.batch for frame in frames), default=walk.batch)
            why = "a torn tail: never said to be durable"
            self._torn = Problem(found.name, walk.offset, end, why, walk.batch, last_batch, _topics(frames))
            return None, []
        opening = (frame for frame in frames if frame.flags & FIRST and frame.offset >= walk.bad_offset)
        resume = next(opening, None)
        lost = [frame for frame in frames if resume is None or frame.offset < resume.offset]
        last_batch = resume.batch - 1 if resume is not None else max((each.batch for each in lost), default=walk.batch)
        self._epoch = max([self._epoch, *(frame.epoch for frame in frames)])
        hint = _topic_hint(read(HEADER_BYTES, walk.bad_offset), walk.batch)
        topics = tuple(sorted({*_topics(lost), *hint}))
        stop = end if resume is None else resume.offset
        why = f"a bad frame at offset {walk.bad_offset}"
        self._add_problem(Problem(found.name, walk.offset, stop, why, walk.batch, last_batch, topics))
        self._next = max(self._next, last_batch + 1)
        return resume, lost

    def _check_link(self, found: _Found, follows: Head, walk: Walk, *, size: int) -> None:
        first, last = max(self._next, walk.batch), follows.first_batch - 1
        if first <= last:
            why = f"the file ends at {size} bytes" if size < follows.previous_end else "batches are missing here"
            self._add_problem(Problem(found.name, walk.offset, follows.previous_end, why, first, last))
            self._next = last + 1
        elif walk.batch == follows.first_batch and walk.last_crc != follows.previous_crc:
            why = f"this is not the segment that {segment_name(follows.number)} follows"
            self._add_problem(Problem(found.name, 0, walk.offset, why))

    def pread(self, file: File, count: int, offset: int) -> bytes:
        """Read from the disk, with zeros for the pages that it refuses."""
        try:
            return self.disk.pread(file, count, offset)
        except OSError:
            pages = []
            for start in range(offset, offset + count, _PAGE_BYTES):
                wanted = min(_PAGE_BYTES, offset + count - start)
                try:
                    pages.append(self.disk.pread(file, wanted, start))
                except OSError:
                    pages.append(bytes(wanted))
            return b"".join(pages)


def _broken_batches(number: int, read: Read, frames: list[FoundFrame]) -> Iterator[Batch]:
    """Yield the frames of broken batches, one by one."""
    for frame in frames:
        if frame.kind >= KIND_FIRST:
            body = read(frame.length - HEADER_BYTES, frame.offset + HEADER_BYTES)
            yield Batch([(frame.kind, frame.topic, number << 32 | frame.offset, body)], False)


def _topics(frames: list[FoundFrame]) -> tuple[int, ...]:
    return tuple(sorted({frame.topic for frame in frames if frame.topic}))


def _topic_hint(header: bytes, batch: int) -> tuple[int, ...]:
    """Return the topic of a frame that fails its checksum, where at least its batch number is right."""
    if len(header) < HEADER_BYTES:
        return ()
    fields = unpack_header(header)
    return (fields[8],) if fields[3] == batch and fields[8] else ()
