"""How long a standby waits for its leader before it takes over."""

from __future__ import annotations

from random import Random
from typing import Final

from tenure.chain.link import Link
from tenure.chain.settings import ChainSettings
from tenure.clock import Clock

__all__ = ["DRIFT", "Silence"]

DRIFT: Final = 1.02
"""Clocks of two machines run at nearly the same rate: a grant may end this much later than its leader's clock says."""
_JITTER: Final = 0.1
_BEATS_MISSED: Final = 3
_FENCE_RATIO: Final = 2
"""Who has just ended an epoch needs time to open its log before its first link."""
_LOSSES_MAX: Final = 3


class Silence:
    """The time since the newest link of any kind was received, and whether that is long enough.

    A leader answers what is not committed for the grant that its link says, from when it sent it, and whoever follows
    receives that link later: so waiting for as long after the receipt outlasts every grant. The settings of this member
    stand in only for a link that does not say, as those of the version before. From the second leadership on that this
    process lost lately before it was steady, each doubles the wait, or two members on a slow store would end each
    other's epochs in turn.
    """

    def __init__(self, settings: ChainSettings, clock: Clock, *, url: str, losses: int, random: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._url = url
        self._ratio = 1 << min(max(0, losses - 1), _LOSSES_MAX)
        self._random = random
        self._since_ms = clock.boot_ms()
        self._jitter = 1.0
        #: The newest link; None where nothing was received in this life yet.
        self.last: Link | None = None

    def hear(self, link: Link) -> None:
        """Take note of a link right after it was received."""
        self.last = link._replace(runs=())
        self.begin()

    def begin(self) -> None:
        """Begin to wait now: what was received before this life says nothing about grants of the time between."""
        self._since_ms = self._clock.boot_ms()
        self._jitter = 1 + self._random.random() * _JITTER

    @property
    def lasted_ms(self) -> int:
        """How long nothing has been received."""
        return self._clock.boot_ms() - self._since_ms

    def left_ms(self, *, is_released: bool) -> float:
        """Return how long to wait for a leader that beats, or that gave up the lead; 0 once it is time to take over."""
        return max(0.0, self._wait_ms(is_released=is_released) - self.lasted_ms)

    def _wait_ms(self, *, is_released: bool) -> float:
        settings, last = self._settings, self.last
        beat_ms = (last.beat_ms if last is not None else 0) or settings.beat_ms
        grant_ms = (last.grant_ms if last is not None else 0) or settings.grant_ms
        wait_ms = max(grant_ms * DRIFT, _BEATS_MISSED * beat_ms) * self._jitter
        if is_released:  # its writer answers nothing any more: whom it names goes first
            is_named = last is None or last.url in ("", self._url)
            return 0 if is_named else wait_ms
        if last is not None and last.is_fence:
            wait_ms *= _FENCE_RATIO
        return wait_ms * self._ratio
