"""Server-sent events: parse chunks of bytes into frames.

A frame is cut out with two searches and no byte is looked at twice, because a work stream carries a job in each. An
incomplete frame is kept for the next chunk, up to a limit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.client.transport.wire import WireError

__all__ = ["Frame", "FrameReader"]

_END: Final = b"\n\n"
_DATA: Final = b"\ndata: "
_LINE_ENDS: Final = {ord("n"): b"\n", ord("r"): b"\r", ord("c"): b"\r\n"}


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event: its kind, its data, and the id to resume with ("" where it has none)."""

    event: bytes
    data: bytes
    id: str = ""


class FrameReader:
    """A parser of frames. It drops comments, which are the heartbeats."""

    __slots__ = ("_bytes_max", "_held", "_rest")

    def __init__(self, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max
        self._held = b""
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that are complete now. Raises WireError where none is and one grows beyond the limit."""
        return [frame for piece in self._pieces(chunk) if (frame := _frame(piece)) is not None]

    def feed_data(self, chunk: bytes, event: bytes) -> tuple[list[bytes], list[Frame]]:
        """Return the data of the frames of one kind, and the other frames: for streams that carry little else."""
        opening = b"event: " + event + _DATA
        datas: list[bytes] = []
        others: list[Frame] = []
        for piece in self._pieces(chunk):
            at = piece.find(opening)
            start = at + len(opening)
            if at >= 0 and (at == 0 or piece[at - 1] == 10) and piece.find(b"\n", start) < 0:
                datas.append(piece[start:])
            elif (frame := _frame(piece)) is not None:
                if frame.event == event:
                    datas.append(frame.data)
                else:
                    others.append(frame)
        return datas, others

    def _pieces(self, chunk: bytes) -> list[bytes]:
        text = self._lines(chunk)
        if self._rest:
            start = len(self._rest) - 1  # an end may lie on both sides of the cut
            self._rest += text
            pieces = bytes(self._rest).split(_END) if _END in self._rest[start:] else []
        else:
            pieces = text.split(_END)
        if pieces:
            self._rest = bytearray(pieces.pop())
        if len(self._rest) > self._bytes_max and not pieces:  # complete frames are returned before the error
            raise WireError(f"an event is longer than {self._bytes_max} bytes", sent=True)
        return pieces

    def _lines(self, chunk: bytes) -> bytes:
        """Return the chunk with LF for every line end. A CR at its end is held back: it may be half of a CRLF."""
        text = self._held + chunk
        if b"\r" not in text:
            self._held = b""
            return text
        self._held = b"\r" if text.endswith(b"\r") else b""  # not our server: a proxy rewrote the line ends
        return text[: len(text) - len(self._held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _frame(piece: bytes) -> Frame | None:
    """Parse the lines of one frame; return None where it has no data."""
    event, data, frame_id, ends = b"message", list[bytes](), "", b""
    for line in piece.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
        elif name == b"id":
            frame_id = value.decode("utf-8", "replace")
        elif name == b"line-ends":
            ends = value
    return Frame(event, _joined(data, ends), frame_id) if data else None


def _joined(lines: list[bytes], ends: bytes) -> bytes:
    """Join the lines of one value by LF, or by the line ends that the server's ``line-ends`` lists."""
    if len(ends) != len(lines) - 1:
        return b"\n".join(lines)
    parts = [line + _LINE_ENDS.get(end, b"\n") for line, end in zip(lines, ends, strict=False)]
    return b"".join(parts) + lines[-1]
