"""Answers: what a caller holds of a command, whatever it waits for: its turn, a job, or the disk.

A command that is decided when it is called has an `Answer`, which waits for its batch alone. One that has to wait for
more has an `OpenAnswer`; the broker keeps the other end of it, a `Promise`. A caller uses both alike: it awaits them,
has itself called when they are done, or cancels them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from tenure.core.level import Level
from tenure.errors import TenureError

__all__ = ["STEPS", "Answer", "Done", "Durability", "OpenAnswer", "Promise", "PromiseEvent", "PromiseState"]

T = TypeVar("T")
Done = Callable[[TenureError | None], None]
"""Called once: with None when the reply may be used, with the error that comes in its place where it never will be."""


class Durability(Protocol):
    """The durability of batches, as an answer sees it: which are written, which are synced."""

    def reached(self, batch: int, level: int) -> bool:
        """Return whether a batch has reached a level. Raises the error of the disk where it never will."""

    def abandon(self, reply: object) -> None:
        """Take back a reply whose caller went away while it awaited it."""

    def plan(self) -> None:
        """Plan the write of what was appended."""

    def when_reached(self, batch: int, level: int, call: Done) -> None:
        """Have ``call`` called when a batch reaches a level, in the turn in which it does."""


class Answer(msgspec.Struct, Generic[T], frozen=True, eq=False, gc=False):
    """A reply that may be given once ``batch`` has reached ``level``.

    ``await`` it for the reply. A thousand answers can be collected first; they cost one write together. An engine
    without a broker around it has no durability: there the reply is simply read.
    """

    reply: T
    batch: int
    level: int
    durability: Durability | None = None

    def is_done(self) -> bool:
        """Return whether the reply may be used now. Raises the error that comes in its place."""
        return not self.level or self.durability is None or self.durability.reached(self.batch, self.level)

    def when_done(self, call: Done) -> None:
        """Have ``call`` called in the turn in which the reply may be used; not for an answer that is done."""
        assert self.durability is not None
        self.durability.when_reached(self.batch, self.level, call)

    def cancel(self) -> None:
        """Take back what the reply holds: its caller went away before it was done."""
        if self.durability is not None:
            self.durability.abandon(self.reply)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_done():
            yield from _until_done(self)
        return self.reply


class PromiseState(IntEnum):
    """How far an open answer has come: ``DECIDED`` waits for the disk, ``GIVEN`` for its caller to look."""

    OPEN = 0
    DECIDED = 1
    GIVEN = 2
    TAKEN = 3
    REFUSED = 4
    GONE = 5


class PromiseEvent(IntEnum):
    """What happens to an open answer. A caller that cancels, drops it, or loses its connection or its key, is gone."""

    DECIDE = 0
    GIVE = 1
    REFUSE = 2
    TAKE = 3
    CANCEL = 4


_OPEN, _DECIDED, _GIVEN, _TAKEN, _REFUSED, _GONE = PromiseState
_DECIDE, _GIVE, _REFUSE, _TAKE, _CANCEL = PromiseEvent
TELL, WITHDRAW, TAKE_BACK = "tell", "withdraw", "take back"

STEPS: Final[dict[tuple[PromiseState, PromiseEvent], tuple[PromiseState, tuple[str, ...]]]] = {
    (_OPEN, _DECIDE): (_DECIDED, (WITHDRAW,)),
    (_OPEN, _GIVE): (_GIVEN, (WITHDRAW, TELL)),
    (_OPEN, _REFUSE): (_REFUSED, (WITHDRAW, TELL)),
    (_OPEN, _CANCEL): (_GONE, (WITHDRAW,)),
    (_DECIDED, _GIVE): (_GIVEN, (TELL,)),
    (_DECIDED, _REFUSE): (_REFUSED, (WITHDRAW, TAKE_BACK, TELL)),
    (_DECIDED, _CANCEL): (_GONE, (WITHDRAW, TAKE_BACK)),
    (_GIVEN, _TAKE): (_TAKEN, ()),
    (_GIVEN, _CANCEL): (_GONE, (TAKE_BACK,)),
    (_GONE, _DECIDE): (_GONE, (TAKE_BACK,)),
}
"""The state after each event, and what is done by it. What is not here changes nothing: it came too late.

``withdraw`` ends what waits within the broker: for a turn, then for the disk; ``take back`` undoes what the reply
holds; ``tell`` calls who waits for this.
"""


class Promise(Generic[T]):
    """The broker's end of an open answer: it gives a reply once, or refuses once, unless the caller goes first.

    A subclass says what a caller that goes leaves behind, by `withdraw` and `take_back`.
    """

    __slots__ = ("_calls", "_is_handed_over", "error", "reply", "state")
    ends_with_caller = False
    """Whether it ends where its answer is dropped without being awaited; a command that changes something goes on."""

    def __init__(self) -> None:
        self.state = _OPEN
        self.reply: T
        self.error: TenureError | None = None
        self._calls: list[Done] = []
        self._is_handed_over = False

    @property
    def is_open(self) -> bool:
        """Whether nothing was decided yet and its caller still waits."""
        return self.state is _OPEN

    def give(self, answer: Answer[T]) -> None:
        """Reply as ``answer`` does, after that is as durable as it asks for."""
        if not self.decide(answer.reply):
            return
        try:
            done = answer.is_done()
        except TenureError as error:
            self.refuse(error)
            return
        if done:
            self.finish(answer.reply)
        else:
            answer.when_done(self._reached)

    def _reached(self, error: TenureError | None) -> None:
        if error is None:
            self.finish(self.reply)
        else:
            self.refuse(error)

    def decide(self, reply: T) -> bool:
        """Note the reply, which may not be used yet. Return False where nobody waits for it: then it is taken back."""
        if self.state is _OPEN or self.state is _GONE:
            self.reply = reply
        self._step(_DECIDE)
        return self.state is _DECIDED

    def finish(self, reply: T) -> None:
        """Give the reply."""
        if self.state is _OPEN or self.state is _DECIDED:
            self.reply = reply
            self._step(_GIVE)

    def refuse(self, error: TenureError) -> None:
        """Give an error in place of a reply."""
        if self.state is _OPEN or self.state is _DECIDED:
            self.error = error
            self._step(_REFUSE)

    def cancel(self) -> None:
        """Note that the caller is gone."""
        self._calls.clear()
        self._step(_CANCEL)

    def take(self) -> T:
        """Return the reply, which is the caller's from now on, or raise the error."""
        if self.error is not None:
            raise self.error
        self._step(_TAKE)
        return self.reply

    def when_done(self, call: Done, *, takes: bool) -> None:
        """Have ``call`` called when this is given or refused; one that ``takes`` has the reply by that."""
        self._is_handed_over = takes
        self._calls.append(call)

    def _step(self, event: PromiseEvent) -> None:
        after, effects = STEPS.get((self.state, event), (self.state, ()))
        self.state = after
        for effect in effects:
            if effect is WITHDRAW:
                self.withdraw()
            elif effect is TAKE_BACK:
                self.take_back(self.reply)
            else:
                self._tell()

    def _tell(self) -> None:
        calls, self._calls = self._calls, []
        if self._is_handed_over:
            self._step(_TAKE)
        for call in calls:
            call(self.error)

    def withdraw(self) -> None:
        """End what waits within the broker for this answer. Called more than once."""

    def take_back(self, reply: T) -> None:
        """Undo what a reply holds that nobody got."""


class OpenAnswer(Generic[T]):
    """The answer of a command that waits: for its turn, for a job or a record, or to catch up.

    A caller that goes away is noticed however it does: it cancels the task that awaits this, calls `cancel`, or drops
    this without ever awaiting it. What the broker keeps must not refer to it, or it would never be dropped.

    A task may run it as it is (``send``, ``throw``, ``close``): a task that is cancelled before its first step throws
    into what it runs and calls no ``__await__``, and then keeps it for as long as somebody keeps the task.
    """

    __slots__ = ("_loop", "_promise", "_steps")
    level: Final = Level.NOW

    def __init__(self, promise: Promise[T], loop: asyncio.AbstractEventLoop) -> None:
        self._promise = promise
        self._loop = loop
        self._steps: Generator[Any, None, T] | None = None

    @property
    def reply(self) -> T:
        """The reply of an answer that is done; it is the caller's from now on. Raises the error in its place."""
        return self._promise.take()

    def is_done(self) -> bool:
        """Return whether the reply may be used now. Raises the error that comes in its place."""
        if self._promise.error is not None:
            raise self._promise.error
        return self._promise.state in (_GIVEN, _TAKEN)

    def when_done(self, call: Done) -> None:
        """Have ``call`` called, in the turn in which it is done: the reply is the caller's by that."""
        self._promise.when_done(call, takes=True)

    def cancel(self, error: TenureError | None = None) -> None:
        """Stop waiting, because the caller is gone, and take back what it got and never saw; with ``error``, because it
        may not have the answer: whoever waits for it gets that.
        """
        if error is None:
            self._promise.cancel()
        else:
            self._promise.refuse(error)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_done():
            yield from _until_done(self, partial(self._promise.when_done, takes=False))
        return self._promise.take()

    def send(self, value: Any) -> Any:
        """Continue, as a task does with what it runs."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise where it waits; before the first step it does not wait yet, and the caller is gone."""
        if self._steps is None:
            self.cancel()
            raise error[0]
        return self._steps.throw(*error)

    def close(self) -> None:
        """Stop, because the caller is gone."""
        if self._steps is None:
            self.cancel()
        else:
            self._steps.close()

    def __del__(self) -> None:
        # Any thread may drop it, in the middle of anything: the broker takes back in a turn of its own.
        if self._promise.state <= _GIVEN and self._promise.ends_with_caller:
            with suppress(RuntimeError):  # the loop is closed, and with it the broker
                self._loop.call_soon_threadsafe(self._promise.cancel)


def _until_done(
    answer: Answer[Any] | OpenAnswer[Any], when_done: Callable[[Done], None] | None = None
) -> Generator[Any, None, None]:
    """Wait for an answer; it is cancelled where the caller is."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(error: TenureError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    (when_done or answer.when_done)(end)
    try:
        yield from future
    except (asyncio.CancelledError, GeneratorExit):
        answer.cancel()
        raise
