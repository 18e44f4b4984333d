"""Claims that wait for their sync: nobody has the jobs yet, so their leases may not run out (fault 15).

A claim on a queue with durable leases is answered once it is synced. Where the disk takes long, the lease is started
anew at every half of it, and once more when the answer goes out. The common case, a sync of a millisecond, pays for a
dict entry and nothing else: there is one alarm for all of them.
"""

from __future__ import annotations

from contextlib import suppress

from tenure.broker.alarms import Alarm, Alarms
from tenure.broker.answer import Answer
from tenure.broker.engine import Engine
from tenure.broker.leases import shift_deadline
from tenure.broker.replies import Claim
from tenure.errors import TenureError

__all__ = ["UnsyncedClaims"]


class UnsyncedClaims:
    """Keeps the leases of claims alive until they are answered."""

    def __init__(self, engine: Engine, alarms: Alarms) -> None:
        self._engine = engine
        self._alarms = alarms
        #: By lease: the claim, its duration, and the log time at which it is half over.
        self._waiting: dict[int, tuple[Claim, int, int]] = {}
        self._alarm: Alarm | None = None

    async def answer(self, answer: Answer[Claim], *, started: int) -> Claim:
        """The claim once it is synced; where that took more than a tenth of the lease, its deadline moves by the
        wait.
        """
        engine, claim = self._engine, answer.reply
        lease_ms = claim.deadline - engine.state.wall_offset_ms - started
        half = started + lease_ms // 2
        self._waiting[claim.lease] = (claim, lease_ms, half)
        self._watch(half)
        try:
            await answer
        finally:
            del self._waiting[claim.lease]
        if (engine.now() - started) * 10 > lease_ms:
            return shift_deadline(engine, claim, lease_ms=lease_ms)
        return claim

    def _watch(self, half: int) -> None:
        """Wake up at this half-time, or before. An alarm that turns out to be early, or for nobody, costs nothing."""
        if self._alarm is not None:
            if self._alarm.due_ms <= half:
                return
            self._alarm.cancel()
        self._alarm = self._alarms.at(half, self._keep)

    def _keep(self) -> None:
        self._alarm = None
        now = self._engine.now()
        for lease, (claim, lease_ms, half) in list(self._waiting.items()):
            if half <= now:
                with suppress(TenureError):  # a log that failed tells the caller by itself
                    shift_deadline(self._engine, claim, lease_ms=lease_ms)
                self._waiting[lease] = (claim, lease_ms, now + lease_ms // 2)
        if self._waiting:
            self._watch(min(half for _, _, half in self._waiting.values()))
