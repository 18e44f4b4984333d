"""Claims that wait for their sync: no worker has the jobs yet, so their leases must not expire (fault 15).

A claim on a queue with durable leases is answered after it is synced. Where the disk takes long, the lease is extended
before it expires, each time for twice as long as before, so a sync of any length needs few events.

The deadline in the answer is durable too. Where less than nine tenths of the lease are left after the sync, the
deadline moves to a whole lease from then, and that is synced before the answer. If this sync takes part of the lease as
well, the next one probably will too: then the deadline moves by the length of that wait on top.

The common case, a sync of a millisecond, costs a dict entry and nothing else: there is one alarm for all of them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from tenure.broker.answer import Answer
from tenure.broker.serving.alarms import Alarm
from tenure.broker.serving.pending import Pending
from tenure.contract.config import LEASE_MS_MAX
from tenure.contract.replies import Grant
from tenure.core.decide.holding import keep_held, shift_deadline
from tenure.core.level import Level
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.broker.serving.loop import ServingLoop

__all__ = ["RepeatedClaim", "SyncedClaim", "UnsyncedClaims"]

_ROUNDS_MAX: Final = 4
"""How often a deadline is moved and synced again before the claim is answered with what is left of it."""
_SOON: Final = 8
"""Leases that are due within this part of the time they are kept for are extended together."""


class _Move(NamedTuple):
    """A later deadline, in a batch that is not synced yet."""

    batch: int
    deadline: int
    begun: int


class _Unsynced:
    """A lease whose claim waits for its sync, and how many callers wait for it.

    ``deadline`` is the one known to be durable; ``move`` is under way, and ``wait_ms`` is how long the last one was.
    ``due`` is when the lease is extended next, to last for ``keep_ms`` at least.
    """

    __slots__ = ("callers", "claim", "deadline", "due", "keep_ms", "move", "wait_ms")

    def __init__(self, claim: Grant, *, deadline: int) -> None:
        self.claim = claim
        self.callers = 0
        self.deadline = deadline
        self.keep_ms = claim.lease_ms
        self.due = deadline - claim.lease_ms // 2
        self.move: _Move | None = None
        self.wait_ms = 0


class UnsyncedClaims:
    """The leases of claims that are not answered yet, kept alive, one entry per lease."""

    def __init__(self, serving: ServingLoop) -> None:
        self._serving = serving
        self._engine = serving.engine
        self._waiting: dict[int, _Unsynced] = {}
        self._alarm: Alarm | None = None

    def answer(self, answer: Answer[Grant]) -> Answer[Grant] | SyncedClaim | RepeatedClaim:
        """Return an awaitable that resolves after a claim is durable.

        A claim that repeats one which waits here waits with it. A repeat of one that was answered waits for the sync of
        what is pending, and keeps no lease alive.
        """
        claim = answer.reply
        if answer.batch <= self._engine.synced_batch:
            return answer
        if claim.lease_ms or claim.lease in self._waiting:
            return SyncedClaim(self._serving, self, answer)
        return RepeatedClaim(self._serving, answer)

    # For the waiting claims

    def join(self, claim: Grant) -> None:
        """Count one more caller that waits for this lease."""
        entry = self._waiting.get(claim.lease)
        if entry is None:
            deadline = claim.deadline - self._engine.state.wall_offset_ms
            entry = self._waiting[claim.lease] = _Unsynced(claim, deadline=deadline)
            self._watch(entry.due)
        entry.callers += 1

    def leave(self, claim: Grant) -> None:
        """Count one caller less; after the last one the lease is not kept alive any more."""
        entry = self._waiting[claim.lease]
        entry.callers -= 1
        if not entry.callers:
            del self._waiting[claim.lease]

    async def complete(self, claim: Grant) -> Grant:
        """Return the claim, which is durable now, with a durable deadline: moved where too little is left of it."""
        entry, engine = self._waiting[claim.lease], self._engine
        for _ in range(_ROUNDS_MAX):
            if (entry.deadline - engine.now()) * 10 >= entry.claim.lease_ms * 9:
                break
            move = entry.move or self._move(entry)
            if move is None:
                break
            await Answer(claim, move.batch, Level.SYNCED, engine.durability)
            if entry.move is move:  # else another caller that waits for this lease has seen it already
                entry.deadline, entry.wait_ms, entry.move = move.deadline, engine.now() - move.begun, None
        shown = entry.deadline + engine.state.wall_offset_ms
        answered = claim if claim.deadline == shown else replace(claim, deadline=shown)
        return keep_held(engine.state, answered, engine.now())

    def _move(self, entry: _Unsynced) -> _Move | None:
        """Log a later deadline and return it with its batch; None where it cannot be logged."""
        lease_ms = min(entry.claim.lease_ms + entry.wait_ms, LEASE_MS_MAX)
        with suppress(TenureError):  # no room, or the broker closes: then what is durable is answered
            self._serving.check_open()
            moved = self._shift(entry, lease_ms)
            if moved.reply:
                now = self._engine.now()
                entry.move, entry.due = _Move(moved.batch, moved.reply, now), now + lease_ms // 2
                self._watch(entry.due)
        self._serving.settle()
        return entry.move

    def _shift(self, entry: _Unsynced, lease_ms: int) -> Answer[int]:
        """Log that a lease lasts ``lease_ms`` from now; the reply is its deadline, or 0 where it holds no job."""
        engine = self._engine
        return engine.carry_out(shift_deadline(engine.state, entry.claim, engine.now(), lease_ms=lease_ms))

    # Keeping alive

    def _watch(self, due: int) -> None:
        """Set the alarm to this time, or earlier. An alarm that is early, or for a lease that is gone, does no harm."""
        if self._alarm is not None:
            if self._alarm.ring is not None and self._alarm.due_ms <= due:
                return
            self._alarm.cancel()
        self._alarm = self._serving.alarms.at(due, self._keep)

    def _keep(self) -> None:
        """Extend the leases that are due, and those that soon will be: few alarms for any number of leases."""
        now = self._engine.now()
        for entry in self._waiting.values():
            if entry.due - now <= entry.keep_ms // _SOON:
                entry.keep_ms = min(2 * entry.keep_ms, LEASE_MS_MAX)
                entry.due = now + entry.keep_ms // 2
                with suppress(TenureError):  # the caller gets the error of a failed log by itself
                    self._shift(entry, entry.keep_ms)
        if self._waiting:
            self._watch(min(entry.due for entry in self._waiting.values()))


class RepeatedClaim(Pending[Grant]):
    """A repeat of a claim that was answered before: the jobs still held of it, after the log is durable up to here."""

    def __init__(self, serving: ServingLoop, answer: Answer[Grant]) -> None:
        self._engine = serving.engine
        self._answer = answer
        super().__init__(serving.loop)

    async def _finish(self) -> Grant:
        answered = await self._answer
        return keep_held(self._engine.state, answered, self._engine.now())

    def _abandon(self) -> None:
        """Keep the lease: the first caller may still hold it."""


class SyncedClaim(Pending[Grant]):
    """A claim that is answered after it is durable. Cancelling or dropping it gives back what it holds."""

    def __init__(self, serving: ServingLoop, claims: UnsyncedClaims, answer: Answer[Grant]) -> None:
        self._serving = serving
        self._claims = claims
        self._answer = answer
        claims.join(answer.reply)
        super().__init__(serving.loop)

    async def _finish(self) -> Grant:
        try:
            return await self._claims.complete(await self._answer)
        except (asyncio.CancelledError, GeneratorExit):
            self._serving.give_back(self._answer.reply)
            raise
        finally:
            self._claims.leave(self._answer.reply)

    def _abandon(self) -> None:
        self._claims.leave(self._answer.reply)
        self._serving.give_back(self._answer.reply)
