"""Read single frames of a damaged log, which a survey has found whole."""

from __future__ import annotations

from tenure.log.damage.survey import Survey
from tenure.log.disk import File
from tenure.log.frame import HEADER_BYTES, checksum, unpack_header
from tenure.log.segment import damage_error

__all__ = ["Revisit"]

_WINDOW_BYTES = 4096


class Revisit:
    """A reader of frames by location. It keeps one file and a small window of it, because neighbours are read next."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._number = -1
        self._file: File = -1
        self._window, self._window_at = b"", 0

    def read(self, location: int) -> tuple[int, int, bytes]:
        """Return (kind, topic, body), verified. Raises Corrupt where the frame is not whole any more, OSError."""
        number, offset = location >> 32, location & 0xFFFFFFFF
        name, salt = self._survey.segments[number]
        self._turn_to(number, name)
        header = self._bytes(offset, HEADER_BYTES)
        length = unpack_header(header)[0] if len(header) == HEADER_BYTES else 0
        frame = self._bytes(offset, length) if length >= HEADER_BYTES else b""
        if len(frame) != length or not frame or checksum(frame, salt) != unpack_header(frame)[1]:
            raise damage_error(name, offset, end=offset + max(length, HEADER_BYTES), why="a frame does not read back")
        _, _, _, _, _, kind, _, _, topic = unpack_header(frame)
        return kind, topic, frame[HEADER_BYTES:]

    def close(self) -> None:
        """Close the file that was read last."""
        if self._file != -1:
            self._survey.disk.close(self._file)
        self._number = self._file = -1
        self._window = b""

    def _turn_to(self, number: int, name: str) -> None:
        if number != self._number:
            self.close()
            self._file = self._survey.disk.open(name)
            self._number = number

    def _bytes(self, offset: int, count: int) -> bytes:
        start = offset - self._window_at
        if start < 0 or start + count > len(self._window):
            self._window = self._survey.pread(self._file, max(count, _WINDOW_BYTES), offset)
            self._window_at, start = offset, 0
        return self._window[start : start + count]
