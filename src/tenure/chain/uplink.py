"""How much the way to the store carries, as it was measured: what decides which links go whole, and which in parts."""

from __future__ import annotations

from typing import Final

from tenure.limits import KIB, MIB
from tenure.objects.request_limits import REQUEST_BYTES_PER_S_MIN

__all__ = ["Uplink"]

_FIRST_BYTES_PER_S: Final = 512 * KIB
"""What is reckoned with before anything was sent: a few parts on a fast network cost less than a lead on a slow one."""
_WHOLE_BYTES_MIN: Final = 16 * KIB
_WHOLE_BYTES_MAX: Final = 2 * MIB
"""However fast the network is: it may be slower the next time, and nothing passes a link that is under way."""
_PART_BYTES_MIN: Final = MIB
_PART_BYTES_MAX: Final = 8 * MIB
_PARTS_MAX: Final = 4
_SAMPLE_RATIO: Final = 4
_SLOW_RATIO: Final = 8


class Uplink:
    """The rate of one leader's uploads. ``beat_ms`` is how often its followers want to hear of it.

    A link goes whole if it takes half a beat at most: nothing can pass it. The rate is that of the slowest upload of
    late; it comes back by halves. What is much smaller than such a link tells of the network's latency alone.
    """

    def __init__(self, beat_ms: int) -> None:
        self._beat_s = beat_ms / 1000
        self._bytes_per_s: float = _FIRST_BYTES_PER_S
        self.parts_at_once = 1

    @property
    def whole_bytes_max(self) -> int:
        """The most that a link may hold by itself."""
        return max(_WHOLE_BYTES_MIN, min(_WHOLE_BYTES_MAX, int(self._bytes_per_s * self._beat_s / 2)))

    @property
    def part_bytes(self) -> int:
        """The size of a part: links go past it, so that it may take a while."""
        return max(_PART_BYTES_MIN, min(_PART_BYTES_MAX, int(self._bytes_per_s * self._beat_s)))

    @property
    def bytes_per_s_min(self) -> int:
        """The rate of an upload that is not given up yet; they may share the network with others."""
        return max(REQUEST_BYTES_PER_S_MIN, int(self._bytes_per_s / _SLOW_RATIO))

    def measured(self, size_bytes: int, took_s: float) -> None:
        """Take note of an upload. Several at once share the network: more are, as long as each is quick."""
        if size_bytes * _SAMPLE_RATIO < self.whole_bytes_max:
            return
        rate = size_bytes / max(took_s, 0.001)
        self._bytes_per_s = min(rate, (self._bytes_per_s + rate) / 2)
        self.parts_at_once = min(_PARTS_MAX, 2 * self.parts_at_once) if took_s < self._beat_s else 1
