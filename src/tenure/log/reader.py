"""Read single frames by location: a bounded set of open files, and a window of the file read last."""

from __future__ import annotations

import errno
from collections import Counter, OrderedDict

from crc32c import crc32c

from tenure.errors import Corrupt, NotFound, Overloaded, TenureError
from tenure.log.disk import Disk, File
from tenure.log.frame import HEADER_BYTES, checksum, unpack_header
from tenure.log.segment import damage_error, segment_name

__all__ = ["FrameReader", "SegmentFiles", "read_error"]

_READ_BYTES = 4096
_AHEAD_BYTES = 1 << 16
_CHECK_BYTES = 1 << 18
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def read_error(error: OSError, number: int, offset: int) -> TenureError:
    """Return the error for a failed read: Overloaded where it may pass, else Corrupt with the range to look at."""
    name = segment_name(number)
    if error.errno in _SCARCE:
        return Overloaded(f"{name} cannot be opened now: {error.strerror}", file=name)
    message = f"{name}: reading at offset {offset} failed: {error.strerror}. The rest of the log is served."
    return Corrupt(message, code="unreadable", file=name, offset=offset)


def _dropped(number: int) -> NotFound:
    return NotFound(f"segment {number} is not part of the log any more", code="segment_dropped", segment=number)


class SegmentFiles:
    """The open files of segments, at most so many; pinned ones stay open for a sync or for writing."""

    def __init__(self, disk: Disk, *, handles_max: int) -> None:
        self._disk = disk
        self._handles_max = handles_max
        self._open: OrderedDict[int, File] = OrderedDict()
        self._pins: Counter[int] = Counter()
        self._doomed: set[int] = set()

    def get(self, number: int) -> File:
        """Return the file of a segment, opening it for reading if need be. Raises OSError."""
        file = self._open.get(number)
        if file is None:
            file = self._disk.open(segment_name(number))
            self.adopt(number, file)
        else:
            self._open.move_to_end(number)
        return file

    def adopt(self, number: int, file: File) -> None:
        """Keep an open file, and close the one used longest ago if there are too many."""
        if number in self._open:
            self._disk.close(self._open.pop(number))
        self._open[number] = file
        if len(self._open) > self._handles_max:
            idle = next((each for each in self._open if not self._pins[each] and each != number), None)
            if idle is not None:
                self._disk.close(self._open.pop(idle))

    def pin(self, number: int) -> None:
        self._pins[number] += 1

    def unpin(self, number: int) -> None:
        self._pins[number] -= 1
        if not self._pins[number]:
            del self._pins[number]
            if number in self._doomed:
                self.forget(number)

    def forget(self, number: int) -> None:
        """Close the file of a segment that is gone, as soon as no sync needs it."""
        if self._pins[number]:
            self._doomed.add(number)
            return
        self._doomed.discard(number)
        if (file := self._open.pop(number, None)) is not None:
            self._disk.close(file)

    def close(self) -> None:
        while self._open:
            self._disk.close(self._open.popitem()[1])


class FrameReader:
    """Reads frames by location and verifies each.

    A window of the file read last is kept: claims follow one another through the log, so the next frame is mostly in
    it. A frame that is not whole there (the tail may have grown since) is read again.
    """

    def __init__(self, disk: Disk, files: SegmentFiles) -> None:
        self._disk = disk
        self._files = files
        self._window = b""
        self._window_at = 0
        self._next = 0

    def read(self, location: int, salt: int | None) -> tuple[int, int, bytes]:
        """Return (kind, topic, body). Raises NotFound where the segment is gone, Corrupt where the frame is bad."""
        start, window = location - self._window_at, self._window
        if salt is not None and 0 <= start <= len(window) - HEADER_BYTES:
            length, crc, _, _, _, kind, _, _, topic = unpack_header(window, start)
            end = start + length
            if HEADER_BYTES <= length <= len(window) - start and crc32c(window[start + 8 : end], length ^ salt) == crc:
                self._next = location + length
                return kind, topic, window[start + HEADER_BYTES : end]
        return self._read_through(location, salt)

    def _read_through(self, location: int, salt: int | None) -> tuple[int, int, bytes]:
        number, offset = location >> 32, location & 0xFFFFFFFF
        if salt is None:
            raise _dropped(number)
        frame = self._fetch(number, offset, ahead=0 <= location - self._next < _READ_BYTES)
        length, crc, _, _, _, kind, _, _, topic = unpack_header(frame)
        if checksum(frame, salt) != crc:
            raise damage_error(segment_name(number), offset, end=offset + length, why="a frame fails its checksum")
        self._next = location + length
        return kind, topic, frame[HEADER_BYTES:]

    def check(self, location: int, salt: int | None) -> tuple[int, int]:
        """Return the kind and the length of the body, after reading the whole frame in pieces. Raises as ``read``."""
        number, offset = location >> 32, location & 0xFFFFFFFF
        if salt is None:
            raise _dropped(number)
        try:
            file = self._files.get(number)
            front = self._disk.pread(file, HEADER_BYTES, offset)
            size = self._disk.size(file) - offset
            if len(front) < HEADER_BYTES or not HEADER_BYTES <= unpack_header(front)[0] <= size:
                raise damage_error(segment_name(number), offset, end=offset + HEADER_BYTES, why="no frame begins here:")
            length, expected, _, _, _, kind, _, _, _ = unpack_header(front)
            crc = crc32c(front[8:], length ^ salt)
            for start in range(HEADER_BYTES, length, _CHECK_BYTES):
                crc = crc32c(self._disk.pread(file, min(_CHECK_BYTES, length - start), offset + start), crc)
        except OSError as error:
            raise read_error(error, number, offset) from error
        if crc != expected:
            raise damage_error(segment_name(number), offset, end=offset + length, why="a frame fails its checksum")
        return kind, length - HEADER_BYTES

    def read_part(self, location: int, start: int, count: int, *, is_there: bool) -> bytes:
        """Return a part of the body of a frame that was checked. Raises as ``read``."""
        number, offset = location >> 32, (location & 0xFFFFFFFF) + HEADER_BYTES + start
        if not is_there:
            raise _dropped(number)
        try:
            return self._disk.pread(self._files.get(number), count, offset)
        except OSError as error:
            raise read_error(error, number, offset) from error

    def drop(self, segment: int) -> None:
        """Drop the window if it is of a segment that is gone."""
        if self._window_at >> 32 == segment:
            self._window, self._window_at = b"", 0

    def _fetch(self, number: int, offset: int, *, ahead: bool) -> bytes:
        """Read the bytes of one frame, and more after it where reads go forward; only its length is checked."""
        wanted = _AHEAD_BYTES if ahead else _READ_BYTES
        try:
            file = self._files.get(number)
            frame = self._disk.pread(file, wanted, offset)
            length = int.from_bytes(frame[:4], "little")
            if length > len(frame) == wanted:
                if offset + length > self._disk.size(file):
                    length = 0
                else:
                    frame += self._disk.pread(file, length - wanted, offset + wanted)
        except OSError as error:
            raise read_error(error, number, offset) from error
        if not HEADER_BYTES <= length <= len(frame):
            raise damage_error(segment_name(number), offset, end=offset + HEADER_BYTES, why="no frame begins here:")
        if len(frame) <= _AHEAD_BYTES:
            self._window, self._window_at = frame, number << 32 | offset
        return frame[:length] if length < len(frame) else frame
