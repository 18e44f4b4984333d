"""The bytes on their way to one peer: counted with those of all peers, and measured where the peer is slow."""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.http.wire.byte_pace import Pace
from tenure.http.wire.connections import Connections

__all__ = ["Outbound"]


_PIECE_BYTES: Final = 64 * 1024


class Outbound:
    """What both protocols know of a slow peer.

    ``held_bytes`` are kept outside of the transport; ``stalled`` says that the socket takes no more for now, and
    ``gone`` that nothing will be sent any more.

    What is counted is what is in memory. A transport keeps the whole of each object of which a byte is left, so a large
    one is given to it in pieces, until the socket takes no more; and what it keeps then counts until it is all gone.
    """

    __slots__ = (
        "_kept_bytes",
        "_noted",
        "_pace",
        "_registry",
        "_transport",
        "_written_bytes",
        "gone",
        "held_bytes",
        "stalled",
    )

    def __init__(self, transport: asyncio.Transport, registry: Connections) -> None:
        self._transport = transport
        self._registry = registry
        self._pace: Pace | None = None
        self._written_bytes = 0
        self._kept_bytes = 0
        self._noted = False
        self.held_bytes = 0
        self.stalled = False
        self.gone = False

    def _give(self, data: bytes) -> None:
        size = len(data)
        if size > _PIECE_BYTES:
            at = 0
            while at + _PIECE_BYTES < size and not self.stalled:
                self._written_bytes += _PIECE_BYTES
                self._transport.write(data[at : at + _PIECE_BYTES])
                at += _PIECE_BYTES
            data, size = data[at:], size - at
        self._written_bytes += size
        if self.stalled:
            self._kept_bytes += size
        self._transport.write(data)
        if self.stalled:
            self.note()

    def stall(self) -> None:
        """Send nothing more until the socket has room again; measure from now on how fast the peer takes it."""
        self.stalled = True
        self._kept_bytes = self._transport.get_write_buffer_size()
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

    def note(self) -> None:
        """Have what is kept for the peer counted with what all others have not taken."""
        keeps = not self.gone and self.unsent_bytes() > 0
        if keeps or self._noted:
            self._noted = keeps
            self._registry.note_unsent(self)

    def unsent_bytes(self) -> int:
        """Return how many bytes are kept for the peer."""
        in_transport = self._transport.get_write_buffer_size()
        return self.held_bytes + (max(self._kept_bytes, in_transport) if self.stalled else in_transport)

    def taken_bytes(self) -> int:
        """Return how many bytes the peer has taken since it connected."""
        return self._written_bytes - self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close without another byte."""
        self._transport.abort()

    def lose(self) -> None:
        """Count nothing for this peer any more: it is gone."""
        self.gone = True
        self.stalled = False
        self._registry.unsent.forget(self)
