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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenure.broker.answer import Answer, OpenAnswer, Promise, PromiseState
from tenure.broker.engine import Engine
from tenure.broker.serving.alarms import Alarm, Alarms
from tenure.contract.config import LEASE_MS_MAX
from tenure.contract.replies import Grant
from tenure.core.decide.holding import shift_deadline
from tenure.core.level import Level
from tenure.errors import TenureError

__all__ = ["PromisedGrant", "UnsyncedClaims"]

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


class PromisedGrant(Promise[Grant]):
    """The promise of a claim. What its caller does not get is given back; where the leases are durable, they are kept
    alive until it does.
    """

    __slots__ = ("_claims", "is_kept")
    ends_with_caller = True

    def __init__(self, claims: UnsyncedClaims) -> None:
        super().__init__()
        self._claims = claims
        self.is_kept = False
        """Whether its lease is kept alive for it."""

    def give(self, answer: Answer[Grant]) -> None:
        """Reply as ``answer`` does, after that is as durable as it asks for."""
        if answer.level == Level.SYNCED and answer.reply.lease:
            if self.decide(answer.reply):
                self._claims.keep(self, answer)
        else:
            super().give(answer)

    def withdraw(self) -> None:
        self._claims.leave(self)

    def take_back(self, reply: Grant) -> None:
        self._claims.give_back(reply)


class UnsyncedClaims:
    """The leases of claims that are not answered yet, kept alive, one entry per lease.

    ``give_back`` takes back a grant that its caller did not get; ``settle`` is called after a deadline was moved, which
    ``check_open`` must allow.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        alarms: Alarms,
        *,
        give_back: Callable[[Grant], None],
        settle: Callable[[], None],
        check_open: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._alarms = alarms
        self._settle = settle
        self._check_open = check_open
        self._waiting: dict[int, _Unsynced] = {}
        self._alarm: Alarm | None = None
        self.give_back = give_back

    def answer(self, answer: Answer[Grant]) -> Answer[Grant] | OpenAnswer[Grant]:
        """Return the answer of a claim whose lease is kept alive until it is durable, if it has to be."""
        if answer.level != Level.SYNCED or not answer.reply.lease or answer.batch <= self._engine.synced_batch:
            return answer
        promise = PromisedGrant(self)
        promise.give(answer)
        return OpenAnswer(promise, self._loop)

    # For the promises

    def keep(self, promise: PromisedGrant, answer: Answer[Grant]) -> None:
        """Finish a promise after its claim is durable, and keep the lease alive until then.

        A claim that repeats one which waits here waits with it. A repeat of one that was answered waits for the sync of
        what is pending, and keeps no lease alive.
        """
        claim = answer.reply
        entry = self._waiting.get(claim.lease)
        if entry is None and claim.lease_ms:
            deadline = claim.deadline - self._engine.state.wall_offset_ms
            entry = self._waiting[claim.lease] = _Unsynced(claim, deadline=deadline)
            self._watch(entry.due)
        if entry is not None:
            entry.callers += 1
            promise.is_kept = True
        self._after(promise, answer, partial(self._synced, promise, _ROUNDS_MAX))

    def leave(self, promise: PromisedGrant) -> None:
        """Count one caller less; after the last one the lease is not kept alive any more."""
        if promise.is_kept:
            promise.is_kept = False
            entry = self._waiting[promise.reply.lease]
            entry.callers -= 1
            if not entry.callers:
                del self._waiting[promise.reply.lease]

    def _after(self, promise: PromisedGrant, answer: Answer[Grant], call: Callable[[TenureError | None], None]) -> None:
        """Have ``call`` called when an answer is done: now, if it is."""
        try:
            is_done = answer.is_done()
        except TenureError as error:
            call(error)
            return
        if is_done:
            call(None)
        else:
            answer.when_done(call)

    def _synced(self, promise: PromisedGrant, rounds_left: int, error: TenureError | None) -> None:
        """Finish a promise whose claim is durable, with a durable deadline: moved where too little is left of it."""
        if promise.state is not PromiseState.DECIDED:
            return  # its caller is gone
        claim, engine = promise.reply, self._engine
        if error is not None:
            self.leave(promise)
            promise.refuse(error)
            return
        if promise.is_kept:
            entry = self._waiting[claim.lease]
            is_short = (entry.deadline - engine.now()) * 10 < entry.claim.lease_ms * 9
            move = (entry.move or self._move(entry)) if is_short and rounds_left else None
            if move is not None:
                moved = Answer(claim, move.batch, Level.SYNCED, engine.durability)
                self._after(promise, moved, partial(self._moved, promise, entry, move, rounds_left - 1))
                return
            shown = entry.deadline + engine.state.wall_offset_ms
            claim = claim if claim.deadline == shown else replace(claim, deadline=shown)
            self.leave(promise)
        promise.finish(engine.still_held(claim))

    def _moved(
        self, promise: PromisedGrant, entry: _Unsynced, move: _Move, rounds_left: int, error: TenureError | None
    ) -> None:
        if error is None and entry.move is move:  # else another caller that waits for this lease has seen it already
            entry.deadline, entry.wait_ms, entry.move = move.deadline, self._engine.now() - move.begun, None
        self._synced(promise, rounds_left, error)

    def _move(self, entry: _Unsynced) -> _Move | None:
        """Log a later deadline and return it with its batch; None where it cannot be logged."""
        lease_ms = min(entry.claim.lease_ms + entry.wait_ms, LEASE_MS_MAX)
        with suppress(TenureError):  # no room, or the broker closes: then what is durable is answered
            self._check_open()
            moved = self._shift(entry, lease_ms)
            if moved.reply:
                now = self._engine.now()
                entry.move, entry.due = _Move(moved.batch, moved.reply, now), now + lease_ms // 2
                self._watch(entry.due)
        self._settle()
        return entry.move

    def _shift(self, entry: _Unsynced, lease_ms: int) -> Answer[int]:
        """Log that a lease lasts ``lease_ms`` from now; the reply is its deadline, or 0 where it holds no job, or its
        queue is behind.
        """
        engine, topic = self._engine, self._engine.state.topics.get(entry.claim.topic)
        if topic is not None and not engine.state.advance(topic, engine.now()):
            return Answer(0, 0, Level.NOW)
        return engine.carry_out(shift_deadline(engine.state, entry.claim, engine.now(), lease_ms=lease_ms))

    # Keeping alive

    def _watch(self, due: int) -> None:
        """Set the alarm to this time, or earlier. An alarm that is early, or for a lease that is gone, does no harm."""
        if self._alarm is not None:
            if self._alarm.ring is not None and self._alarm.due_ms <= due:
                return
            self._alarm.cancel()
        self._alarm = self._alarms.at(due, self._keep)

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
