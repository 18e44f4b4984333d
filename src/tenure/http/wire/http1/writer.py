"""The sending half of an HTTP/1.1 connection: one write per turn, and back-pressure for streams."""

from __future__ import annotations

import asyncio

from tenure.http.wire.byte_pace import Pace
from tenure.http.wire.connections import Connections

__all__ = ["Http1Writer"]


class Http1Writer:
    """The writer of one transport. What is written while ``gathering`` is sent together.

    A stream's bytes are bounded: ``send_chunk`` and ``send_plain`` return only when the transport has room again, and
    raise ConnectionError where the peer is gone or was cut.
    """

    __slots__ = (
        "_gathered",
        "_gathered_bytes",
        "_noted",
        "_pace",
        "_registry",
        "_room",
        "_transport",
        "_written_bytes",
        "gathering",
        "gone",
        "held_bytes",
        "stalled",
    )

    def __init__(self, transport: asyncio.Transport, registry: Connections) -> None:
        self._transport = transport
        self._registry = registry
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._room: asyncio.Future[None] | None = None
        self.gathering = False
        self.gone = False
        self.held_bytes = 0
        """Answers that wait for those before them."""
        self._noted = False
        self.stalled = False
        self._written_bytes = 0
        self._pace: Pace | None = None

    def write(self, data: bytes) -> None:
        """Write, or gather."""
        if self.gathering:
            self._gathered.append(data)
            self._gathered_bytes += len(data)
            if self._gathered_bytes > self._registry.limits.write_buffer_bytes:
                self.release()  # so that the transport can say that the peer does not keep up
        elif not self._transport.is_closing():
            self._give(data)

    def _give(self, data: bytes) -> None:
        self._written_bytes += len(data)
        self._transport.write(data)
        if self.stalled:
            self.note()

    def release(self) -> None:
        """Send what was gathered."""
        gathered = self._gathered
        if gathered:
            if not self._transport.is_closing():
                data = gathered[0] if len(gathered) == 1 else b"".join(gathered)
                self._written_bytes += len(data)
                self._transport.write(data)
            self._gathered = []
            self._gathered_bytes = 0

    async def send_chunk(self, data: bytes) -> None:
        """Send bytes as one chunk; an empty one would end the body, so it is left out."""
        if data:
            await self.send_plain(b"%x\r\n%b\r\n" % (len(data), data))

    async def send_plain(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self.gone or self._transport.is_closing():
            raise ConnectionResetError("the peer is gone")
        self._give(data)
        while self.stalled:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def stall(self) -> None:
        """Wait with streams, because the transport's buffer is full; measure how fast the peer takes it."""
        self.stalled = True
        self._pace = Pace(self._registry.now_s, self.taken_bytes())
        self.note()

    def too_slow(self, now_s: float) -> bool:
        """Return whether the peer takes what waits for it too slowly; called on ticks while something waits."""
        limits, taken_bytes = self._registry.limits, self.taken_bytes()
        if self._pace is None:
            self._pace = Pace(self._registry.now_s, taken_bytes)
        return self._pace.too_slow(
            now_s, taken_bytes, window_ms=limits.write_stall_ms, bytes_per_s_min=limits.body_bytes_per_s_min
        )

    def taken_bytes(self) -> int:
        """Return how many bytes the peer has taken since it connected."""
        return self._written_bytes - self._transport.get_write_buffer_size()

    def unsent_bytes(self) -> int:
        """Return how many bytes are kept for the peer."""
        return self._transport.get_write_buffer_size() + self.held_bytes

    def note(self) -> None:
        """Have what is kept for the peer counted with what all others have not taken."""
        keeps = not self.gone and self.unsent_bytes() > 0
        if keeps or self._noted:
            self._noted = keeps
            self._registry.note_unsent(self)

    def abort(self) -> None:
        """Close without another byte: the peer takes nothing, and the room is needed."""
        self._transport.abort()

    def flow(self) -> None:
        """Continue streams, because the transport has room again."""
        self.stalled = False
        self.note()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def lose(self) -> None:
        """Fail the waiting stream, because the peer is gone."""
        self.gone = True
        self.stalled = False
        self._registry.unsent.forget(self)
        if self._room is not None and not self._room.done():
            self._room.set_exception(ConnectionResetError("the peer is gone"))
            self._room.exception()  # a waiting stream gets it; without one the loop must not log it
        self._room = None
