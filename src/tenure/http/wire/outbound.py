"""The bytes on their way to one peer: counted with those of all peers, and measured where the peer is slow."""

from __future__ import annotations

import asyncio

from tenure.http.wire.byte_pace import Pace
from tenure.http.wire.connections import Connections

__all__ = ["Outbound"]


class Outbound:
    """What both protocols know of a slow peer.

    ``held_bytes`` are kept outside of the transport; ``stalled`` says that the socket takes no more for now, and
    ``gone`` that nothing will be sent any more.
    """

    __slots__ = ("_noted", "_pace", "_registry", "_transport", "_written_bytes", "gone", "held_bytes", "stalled")

    def __init__(self, transport: asyncio.Transport, registry: Connections) -> None:
        self._transport = transport
        self._registry = registry
        self._pace: Pace | None = None
        self._written_bytes = 0
        self._noted = False
        self.held_bytes = 0
        self.stalled = False
        self.gone = False

    def _give(self, data: bytes) -> None:
        self._written_bytes += len(data)
        self._transport.write(data)
        if self.stalled:
            self.note()

    def stall(self) -> None:
        """Send nothing more until the socket has room again; measure from now on how fast the peer takes it."""
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

    def note(self) -> None:
        """Have what is kept for the peer counted with what all others have not taken."""
        keeps = not self.gone and self.unsent_bytes() > 0
        if keeps or self._noted:
            self._noted = keeps
            self._registry.note_unsent(self)

    def unsent_bytes(self) -> int:
        """Return how many bytes are kept for the peer."""
        return self.held_bytes + self._transport.get_write_buffer_size()

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
