"""Whether a call that failed may be sent again: one rule for the HTTP client and for scripts in Redis.

    not sent, or refused     nothing changed: repeat
    no answer                unknown: repeat where a second copy is safe (`Repeat`)

Once the outcome of an attempt is unknown, only a success resolves it: the refusal of a later copy says nothing about
the first. A read changes nothing, so its outcome is never unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure.contract.repeat import Repeat

__all__ = ["Retries"]


class Retries:
    """The failed attempts of one call: at most ``attempts_max``, the last within ``retry_for_ms`` of the first.

    ``unknown`` is True once an earlier copy of the call may have been carried out. ``failures`` counts every attempt
    that failed, also those that the limit leaves out.
    """

    def __init__(self, repeat: Repeat, *, attempts_max: int, retry_for_ms: int, now_s: Callable[[], float]) -> None:
        self.failures = 0
        self.unknown = False
        self._count = 0
        self._repeat = repeat
        self._attempts_max = attempts_max
        self._now_s = now_s
        self._until_s = now_s() + retry_for_ms / 1000

    def may_repeat(self, *, again: bool, unknown: bool, wait_s: float, counted: bool = True) -> bool:
        """Count a failed attempt, and return whether to send the call again after ``wait_s``.

        ``again``: the same call may succeed later. ``unknown``: this attempt may have been carried out. One that is not
        ``counted`` is bounded by the time alone.
        """
        self.failures += 1
        self._count += counted
        self.unknown = self.unknown or (unknown and self._repeat is not Repeat.READ)
        if not again or (unknown and self._repeat is Repeat.NEVER):
            return False
        return self._count < self._attempts_max and self._now_s() + wait_s <= self._until_s
