"""Fair turns: the loop's time for requests, shared by callers in the order of what each has used.

A turn of the loop starts requests for ``share_ms``. What comes beyond that waits in the line of its caller, and from
the next turn on the caller that has used the least time is served first, one step after the other. So a caller with
much in flight waits for itself, one that asks seldom waits for a turn and a step, and no turn is long because much has
arrived. While nobody waits nothing is held: then a request costs two readings of a clock and a few comparisons.

- **Time is measured, not estimated**, and charged afterwards: a step that took longer than a turn makes its caller rest
  for as many turns, unless other processes had the processor meanwhile. Those turns are short where nothing else is to
  do, so the rest costs little; where other callers have work of several turns (a connection, a sync), they have these
  turns.
- **What is compared is the time used since the last moment at which nobody waited.** A caller that comes later is taken
  to have used as much as the one served last, less one turn: it comes first, and cannot save up for more than that.
- **Those who have not been served yet stand in one line**, and share as one caller whose time counts for an eighth: a
  first request waits for few others, and yet whoever opens connections without end does not keep everybody else waiting
  for as long.
- The steps of one caller keep their order, and so do the requests of one connection.

This module knows no request and no connection: a step is a function, and a caller is whatever has a line of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from time import perf_counter, thread_time
from typing import Final, TypeVar

__all__ = ["Caller", "FairTurns", "in_turn"]

T = TypeVar("T")
Step = Callable[[], None]
_REST_TURNS_MAX: Final = 32
_NEW_WEIGHT: Final = 8


class Caller:
    """One caller, and the line of its steps. ``used_s`` is compared with others of the same ``epoch`` only."""

    __slots__ = ("_turns", "epoch", "is_in_line", "is_new", "rests_until", "used_s", "waiting")

    def __init__(self, turns: FairTurns, *, is_new: bool = True) -> None:
        self._turns = turns
        self.is_new = is_new
        """Whether it has not been charged with anything yet."""
        self.epoch = 0
        self.used_s = 0.0
        self.rests_until = 0
        """The number of the turn in which it is served again."""
        self.waiting: deque[Step] = deque()
        self.is_in_line = False

    @property
    def is_free(self) -> bool:
        """Whether a step may be done at once."""
        return self._turns.is_free

    def spend(self, began_s: float) -> None:
        """Charge the time since then, by the clock of the turns; of one step within another the time counts once."""
        turns = self._turns
        now_s = turns.clock()
        took_s = now_s - (began_s if began_s > turns.charged_s else turns.charged_s)
        turns.charged_s = now_s
        if took_s > turns.share_s:
            took_s = turns.without_preemption(took_s)
        self.is_new = False
        if self.epoch != turns.epoch:
            self.epoch, self.used_s = turns.epoch, 0.0
        self.used_s += took_s
        turns.left_s -= took_s
        if turns.left_s < turns.low_s:
            turns.run_low(self, took_s)

    def wait(self, step: Step) -> None:
        """Have a step called in a later turn, after those of this caller that wait already."""
        line = self._turns.newcomers if self.is_new else self
        line.waiting.append(step)
        self._turns.line_up(line)

    async def do(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or raise its error: it is done at once, or in a later turn of this caller."""
        if self._turns.is_free:
            began_s = self._turns.clock()
            try:
                return work()
            finally:
                self.spend(began_s)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.wait(partial(self._do, work, done))
        return await done

    def _do(self, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        if done.done():
            return  # its task was cancelled
        began_s = self._turns.clock()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        self.spend(began_s)


class FairTurns:
    """The turns of one loop, and the callers by name; ``share_ms`` is the time for requests in each turn.

    ``is_free`` is True while a step may be done at once. It is the caller's to ask, to `Caller.wait` otherwise, and to
    `Caller.spend` what it used. ``deadline_s`` is for who does many steps at once: after it, the rest must wait.
    """

    def __init__(
        self,
        share_ms: int,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = perf_counter,
        cpu_clock: Callable[[], float] = thread_time,
    ) -> None:
        self.clock = clock
        self.cpu_clock = cpu_clock
        self._cpu_s = cpu_clock()
        self.is_free = True
        self.epoch = 1
        self.left_s = self.share_s = share_ms / 1000
        self.low_s = self.share_s / 2
        """Below this the turn must be told from the next one, which costs a callback."""
        self.deadline_s = 0.0
        self.charged_s = 0.0
        self._loop = loop
        self._end_s = 0.0
        self._level_s = 0.0
        self._number = 0
        self._turn = 0
        self._is_due = False
        self._serving: Caller | None = None
        self._is_first = False
        self._line: list[tuple[float, int, Caller]] = []
        self._named: dict[str, Caller] = {}
        self.newcomers = Caller(self, is_new=False)
        """Has the steps of all callers that are new."""

    def named(self, name: str) -> Caller:
        """Return the caller of this name. Names are kept: there must be a limited number of them."""
        caller = self._named.get(name)
        if caller is None:
            caller = self._named[name] = Caller(self, is_new=False)
        return caller

    def serves(self, caller: Caller) -> bool:
        """Return whether this is a turn of the caller's, with time left in it. There is for the first thing in it: else
        a machine that is slow enough would do nothing.
        """
        if self._serving is not (self.newcomers if caller.is_new else caller):
            return False
        is_first, self._is_first = self._is_first, False
        return is_first or self.clock() < self._end_s

    def without_preemption(self, took_s: float) -> float:
        """Return how much of a long step is its caller's doing: no more than this thread has run since the last look.
        On a busy machine the rest is the time of other processes.
        """
        before_s, self._cpu_s = self._cpu_s, self.cpu_clock()
        return min(took_s, self._cpu_s - before_s)

    def run_low(self, caller: Caller, took_s: float) -> None:
        """Have the end of this turn noticed, and begin to hold steps where its time is used up."""
        if took_s > self.share_s:
            caller.rests_until = self._turn + 1 + min(int(took_s / self.share_s), _REST_TURNS_MAX)
        if self.left_s <= 0:
            self.is_free = False
        self._have_next()

    def line_up(self, caller: Caller) -> None:
        """Put a caller that has a step waiting into the line."""
        self.is_free = False
        self._have_next()
        if not caller.is_in_line:
            used_s = caller.used_s if caller.epoch == self.epoch else 0.0
            caller.epoch, caller.used_s = self.epoch, max(used_s, self._level_s - self.share_s)
            self._put(caller)

    def _put(self, caller: Caller) -> None:
        caller.is_in_line = True
        self._number += 1
        heappush(self._line, (caller.used_s, self._number, caller))

    def _have_next(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin a turn: serve who has used least until its time is over."""
        self._is_due = False
        self._turn += 1
        self.left_s = self.share_s
        self._cpu_s = self.cpu_clock()
        self._end_s = self.clock() + self.share_s
        resting: list[Caller] = []
        try:
            while self._line and self.clock() < self._end_s:
                self._serve_first(resting)
        finally:
            self._serving = None
            for caller in resting:
                self._put(caller)
            if not self._line:
                self.epoch += 1
                self._level_s = 0.0
            self.is_free = not self._line and self.left_s > 0
            if not self.is_free:
                self._have_next()

    def _serve_first(self, resting: list[Caller]) -> None:
        level_s, _, caller = heappop(self._line)
        if caller.rests_until > self._turn:
            resting.append(caller)
        elif caller.used_s > level_s:
            self._put(caller)  # it has used more since it was put there
        else:
            caller.is_in_line = False
            self._level_s = max(self._level_s, level_s)
            self._serving, self._is_first = caller, True
            began_s = self.clock()
            try:
                caller.waiting.popleft()()
            finally:
                if caller is self.newcomers:
                    caller.used_s += (self.clock() - began_s) / _NEW_WEIGHT  # each of them is charged with it too
                if caller.waiting and not caller.is_in_line:
                    self._put(caller)


async def in_turn(caller: Caller | None, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, or raise its error: it is done at once, or in a later turn of its caller.

    ``caller`` is None where nobody shares the loop with it.
    """
    return work() if caller is None else await caller.do(work)
