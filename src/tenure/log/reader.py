"""Reading single frames back: a bounded set of open files, and a small cache of large frames.

Many claims of one job each read the same frame of a thousand records, so frames of 4 KiB and more are kept for a
while; small ones are not, since the page cache already holds them and a pread costs less than the bookkeeping.
"""

from __future__ import annotations

import errno
from collections import Counter, OrderedDict

from tenure.errors import Corrupt, NotFound, Overloaded, TenureError
from tenure.log.disk import Disk, File
from tenure.log.frame import HEADER_BYTES, checksum, unpack_header
from tenure.log.segment import damage, segment_name

__all__ = ["FrameReader", "SegmentFiles", "read_error"]

_READ_BYTES = 4096
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def read_error(error: OSError, number: int, offset: int) -> TenureError:
    """Say what a failed read means for the caller: come back later, or an operator must look at that range."""
    name = segment_name(number)
    if error.errno in _SCARCE:
        return Overloaded(f"{name} cannot be opened now: {error.strerror}", file=name)
    message = f"{name}: reading at offset {offset} failed: {error.strerror}. The rest of the log is served."
    return Corrupt(message, code="unreadable", file=name, offset=offset)


class SegmentFiles:
    """The open files of segments, at most so many; pinned ones stay open for a sync or for writing."""

    def __init__(self, disk: Disk, *, handles_max: int) -> None:
        self._disk = disk
        self._handles_max = handles_max
        self._open: OrderedDict[int, File] = OrderedDict()
        self._pins: Counter[int] = Counter()
        self._doomed: set[int] = set()

    def get(self, number: int) -> File:
        """Give the file of a segment, opening it for reading if need be. Raises OSError."""
        file = self._open.get(number)
        if file is None:
            file = self._disk.open(segment_name(number))
            self.adopt(number, file)
        else:
            self._open.move_to_end(number)
        return file

    def adopt(self, number: int, file: File) -> None:
        """Take over an open file, closing the one used longest ago if there are too many."""
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
        """Close the file of a segment that is gone, as soon as nobody syncs it."""
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
    """Reads frames by location and verifies each."""

    def __init__(self, disk: Disk, files: SegmentFiles, *, cache_bytes: int) -> None:
        self._disk = disk
        self._files = files
        self._cache_bytes_max = cache_bytes
        self._cache_bytes = 0
        self._cache: OrderedDict[int, tuple[int, int, bytes]] = OrderedDict()

    def read(self, location: int, salt: int | None) -> tuple[int, int, bytes]:
        """Give (kind, topic, body). Raises NotFound where the segment is gone, Corrupt where the frame is bad."""
        entry = self._cache.get(location)
        if entry is not None:
            self._cache.move_to_end(location)
            return entry
        number, offset = location >> 32, location & 0xFFFFFFFF
        if salt is None:
            raise NotFound(f"segment {number} is not part of the log any more", code="segment_dropped", segment=number)
        frame = self._fetch(number, offset)
        length, crc, _, _, _, kind, _, _, topic = unpack_header(frame)
        if checksum(frame, salt) != crc:
            raise damage(segment_name(number), offset, end=offset + length, why="a frame fails its checksum")
        entry = (kind, topic, frame[HEADER_BYTES:])
        if length >= _READ_BYTES:
            self._keep(location, entry)
        return entry

    def drop(self, segment: int) -> None:
        """Forget what was cached of a segment that is gone."""
        for location in [each for each in self._cache if each >> 32 == segment]:
            self._cache_bytes -= len(self._cache.pop(location)[2])

    def _fetch(self, number: int, offset: int) -> bytes:
        """Read one frame's bytes; its length is checked, its content not."""
        try:
            file = self._files.get(number)
            frame = self._disk.pread(file, _READ_BYTES, offset)
            length = int.from_bytes(frame[:4], "little")
            if length > len(frame) == _READ_BYTES:
                if offset + length > self._disk.size(file):
                    length = 0
                else:
                    frame += self._disk.pread(file, length - _READ_BYTES, offset + _READ_BYTES)
        except OSError as error:
            raise read_error(error, number, offset) from error
        if not HEADER_BYTES <= length <= len(frame):
            raise damage(segment_name(number), offset, end=offset + HEADER_BYTES, why="no frame begins here:")
        return frame[:length] if length < len(frame) else frame

    def _keep(self, location: int, entry: tuple[int, int, bytes]) -> None:
        size = len(entry[2])
        if size > self._cache_bytes_max:
            return
        self._cache[location] = entry
        self._cache_bytes += size
        while self._cache_bytes > self._cache_bytes_max:
            self._cache_bytes -= len(self._cache.popitem(last=False)[1][2])
