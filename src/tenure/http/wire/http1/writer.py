"""The sending half of an HTTP/1.1 connection: one write per turn, and back-pressure for streams."""

from __future__ import annotations

import asyncio

from tenure.http.wire.connections import Connections
from tenure.http.wire.message import SharedBytes
from tenure.http.wire.outbound import Outbound

__all__ = ["Http1Sender", "Http1Writer"]


class Http1Writer(Outbound):
    """The writer of one transport. What is written while ``gathering`` is sent together.

    ``held_bytes`` are of answers that wait for those before them. A stream's bytes are bounded: `send` returns only
    when the transport has room again.
    """

    __slots__ = ("_gathered", "_gathered_bytes", "_room", "gathering")

    def __init__(self, transport: asyncio.Transport, registry: Connections) -> None:
        super().__init__(transport, registry)
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._room: asyncio.Future[None] | None = None
        self.gathering = False

    def write(self, data: bytes) -> None:
        """Write, or gather."""
        if self.gathering:
            self._gathered.append(data)
            self._gathered_bytes += len(data)
            if self._gathered_bytes > self._registry.limits.write_buffer_bytes:
                self.release()  # so that the transport can say that the peer does not keep up
        elif not self._transport.is_closing():
            self._give(data)

    def release(self) -> None:
        """Send what was gathered."""
        gathered = self._gathered
        if gathered:
            if not self._transport.is_closing():
                self._give(gathered[0] if len(gathered) == 1 else b"".join(gathered))
            self._gathered = []
            self._gathered_bytes = 0

    async def send(self, data: bytes) -> None:
        """Send bytes of a stream; return when there is room for more. Raises ConnectionError where the peer is gone or
        was cut.
        """
        await self._wait_for_room()
        if data and not self.offer(data):
            raise ConnectionResetError("the peer is gone")
        del data  # what the socket has taken is not kept until it takes the rest
        await self._wait_for_room()
        if self.gone:
            raise ConnectionResetError("the peer is gone")

    def offer(self, data: bytes) -> bool:
        """Send bytes of a stream where there is room for them, else return False."""
        if self.stalled or self.gone or self._transport.is_closing():
            return False
        self._give(data)
        return True

    async def _wait_for_room(self) -> None:
        while self.stalled:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def flow(self) -> None:
        """Continue streams, because the transport has room again."""
        self.stalled = False
        self.note()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def lose(self) -> None:
        """Fail the waiting stream, because the peer is gone."""
        super().lose()
        if self._room is not None and not self._room.done():
            self._room.set_exception(ConnectionResetError("the peer is gone"))
            self._room.exception()  # a waiting stream gets it; without one the loop must not log it
        self._room = None


class Http1Sender:
    """The sending end of one stream, in chunks or, for HTTP/1.0, as it is."""

    __slots__ = ("_chunked", "_writer")

    def __init__(self, writer: Http1Writer, *, chunked: bool) -> None:
        self._writer = writer
        self._chunked = chunked

    async def __call__(self, data: bytes) -> None:
        """Send bytes, as one chunk; an empty one would end the body, so it is left out."""
        sending = self._writer.send(SharedBytes(data).chunk if data and self._chunked else data)
        del data
        await sending

    def offer(self, shared: SharedBytes) -> bool:
        """Send bytes where there is room for them."""
        return self._writer.offer(shared.chunk if self._chunked else shared.data)
