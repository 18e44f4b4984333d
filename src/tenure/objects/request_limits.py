"""How long one request to a store may take: a time for the answer, and more for each byte that it moves."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["REQUEST_BYTES_PER_S_MIN", "REQUEST_TIMEOUT_MS", "RequestLimits"]

REQUEST_TIMEOUT_MS: Final = 60_000
REQUEST_BYTES_PER_S_MIN: Final = 64 * 1024


class RequestLimits(NamedTuple):
    """``timeout_ms`` for a request without content; content may move as slowly as ``bytes_per_s_min``.

    A fixed time would let a large upload on a slow uplink fail at each attempt, for ever; one that is long enough for
    it would notice late that a store has fallen silent.
    """

    timeout_ms: int = REQUEST_TIMEOUT_MS
    bytes_per_s_min: int = REQUEST_BYTES_PER_S_MIN

    def seconds(self, size_bytes: int = 0) -> float:
        """Return how long a request that moves so many bytes may take."""
        return self.timeout_ms / 1000 + size_bytes / self.bytes_per_s_min

    def for_half_the_rate(self) -> RequestLimits:
        """Return the limits for a network that is half as fast."""
        return self._replace(bytes_per_s_min=max(1, self.bytes_per_s_min // 2))
