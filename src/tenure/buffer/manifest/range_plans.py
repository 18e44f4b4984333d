"""Planned ends of a group's ranges, decided once per beginning, so that all planners cut the queue alike.

A cut is an object that is created only if absent. The second planner, with any limits, reads the first one's. A cut
may be deleted once its range is acknowledged: no planner starts there any more.
"""

from __future__ import annotations

import logging

from tenure.buffer.manifest.format import FORMAT, Cut, decode, encode
from tenure.buffer.manifest.keys import PLAN, plan_key
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.errors import Corrupt, Overloaded, TenureError
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore

__all__ = ["RangePlans"]

log = logging.getLogger("tenure.buffer")

_CUT_BYTES_MAX = 64 * 1024
_ATTEMPTS_MAX = 8


class RangePlans:
    """The cuts of one group of one buffer."""

    def __init__(self, store: ObjectStore, buffer: str, *, group: str, settings: BufferSettings) -> None:
        self._retrying = RetryingStore(Metered(store, BufferMetrics()), settings)
        self._buffer = buffer
        self._group = group

    async def agree(self, low: int, high: int) -> int:
        """Return where the range from ``low`` ends: at ``high``, unless it was decided before.

        Raises Corrupt for a cut that is damaged or another buffer's, OutcomeUnknown where the store does not answer:
        the same call finds out.
        """
        key = plan_key(self._group, low)
        mine = encode(Cut(FORMAT, self._buffer, low, high))
        for _ in range(_ATTEMPTS_MAX):
            if await self._retrying.create(key, mine):
                return high
            found = await self._retrying.find(key, _CUT_BYTES_MAX)
            if found is not None:
                return self._check(found, key, low)
            # It was deleted between the two calls: another planner has acknowledged it. The consumer will find that
            # out.
        raise Overloaded(f"{key} came and went at every attempt: try again later", code="contended", key=key)

    async def forget_below(self, seq: int) -> None:
        """Delete the cuts of ranges that begin below ``seq``, as far as that succeeds; the next call tries again."""
        try:
            listed = [info.key async for info in self._retrying.list_objects(f"plan/{self._group}/")]
            stale = [key for key in listed if (found := PLAN.fullmatch(key)) and int(found[2]) < seq]
            await self._retrying.delete(stale)
        except TenureError as error:
            log.warning("old plans of group %s were not deleted: %s", self._group, error)

    async def forget(self, low: int) -> None:
        """Delete one cut, as far as that succeeds."""
        try:
            await self._retrying.delete([plan_key(self._group, low)])
        except TenureError as error:
            log.warning("the plan of group %s from %s was not deleted: %s", self._group, low, error)

    def _check(self, data: bytes, key: str, low: int) -> int:
        cut = decode(Cut, data, key)
        if (cut.buffer, cut.low) != (self._buffer, low) or cut.high < low:
            raise Corrupt(
                f"{key} says {cut.low} to {cut.high} of buffer {cut.buffer}: it is another's, or was changed by hand. "
                "Delete it once no job of the group runs",
                code="plan_damaged",
                key=key,
            )
        return cut.high
