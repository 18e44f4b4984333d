"""Commands that take more than one turn of the loop: they run in steps, or wait for their topic or for a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tenure.broker.answer import Answer, OpenAnswer, Promise
from tenure.broker.engine import Engine, Outcome
from tenure.broker.serving.catch_up import CatchUp
from tenure.broker.stepping import Stepping
from tenure.contract.bounds import Bounds
from tenure.contract.commands import Command
from tenure.core.decide.decision import Behind, Refused
from tenure.core.state.topic import Topic
from tenure.errors import TenureError
from tenure.turns import Turns

__all__ = ["LongCommands"]

T = TypeVar("T")
Run = Callable[[int], Outcome[Any] | Stepping[Any]]
"""Run a command again, as of the time at which it came, or begin it if it runs in steps."""


class LongCommands:
    """The commands that are not answered yet; its length is how many there are.

    ``check_waiters`` raises Overloaded where as many callers wait as may.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        *,
        turns: Turns,
        catch_up: CatchUp,
        check_waiters: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._turns = turns
        self._catch_up = catch_up
        self._check_waiters = check_waiters
        self._waiting: set[Promise[Any]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def refuse_all(self, error: TenureError) -> None:
        """Raise this error wherever an answer is awaited; no other step is taken."""
        for promise in list(self._waiting):
            self._refuse(promise, error)

    def step_through(self, command: Command[T], bounds: Bounds | None) -> OpenAnswer[T] | Outcome[T]:
        """Run a command in steps, as many in this turn as it allows; the answer comes after the last one.

        Raises the error of the first turn's steps; a later one is raised where the answer is awaited. What the steps
        before it did stays done.
        """
        stepping = self._engine.begin(command, bounds)
        if not isinstance(stepping, Stepping):
            return stepping
        if self._turns.run(stepping.step):
            return self._engine.outcome_of(stepping)
        promise: Promise[T] = self._promise()
        self._turns.add(partial(self._step, stepping, promise))
        return OpenAnswer(promise, self._loop)

    def _step(self, stepping: Stepping[T], promise: Promise[T]) -> bool:
        """Take one step of a command that runs in steps, or none where its caller is gone."""
        if not promise.is_open:
            stepping.close()
            self._waiting.discard(promise)
            return True
        try:
            if not stepping.step():
                return False
            self._give(promise, self._engine.outcome_of(stepping))
        except TenureError as error:
            self._refuse(promise, error)
        return True

    def later(self, outcome: Behind | Refused, run: Run) -> OpenAnswer[Any]:
        """Return the answer of a command that has none yet: it is ``run`` when its topic has caught up, or refused once
        the refusal is durable.

        Raises Overloaded where as many callers wait as may, and a refusal that is durable now.
        """
        if isinstance(outcome, Refused):
            durability, batch = self._engine.durability, self._engine.write()
            if durability is None or durability.reached(batch, outcome.level):
                raise outcome.error
            refused: Promise[Any] = Promise()
            self._refuse_later(refused, outcome, batch)
            return OpenAnswer(refused, self._loop)
        self._check_waiters()
        promise: Promise[Any] = self._promise()
        self._wait(promise, outcome.topic, run)
        return OpenAnswer(promise, self._loop)

    def _refuse_later(self, promise: Promise[Any], refused: Refused, batch: int) -> None:
        """Refuse after what the refusal rests on is durable. Where that never will be, with the error of the log."""
        durability = self._engine.durability
        assert durability is not None
        durability.when_reached(batch, refused.level, lambda error: promise.refuse(error or refused.error))

    def _wait(self, promise: Promise[Any], topic: Topic, run: Run) -> None:
        self._catch_up.then(topic, partial(self._run, promise, run))

    def _run(self, promise: Promise[Any], run: Run, came_ms: int) -> None:
        if not promise.is_open:
            self._waiting.discard(promise)
            return
        try:
            outcome = run(came_ms)
            if isinstance(outcome, Stepping):
                if not self._turns.run(outcome.step):
                    self._turns.add(partial(self._step, outcome, promise))
                    return
                outcome = self._engine.outcome_of(outcome)
        except TenureError as error:
            self._refuse(promise, error)
        else:
            self._give_or_wait(promise, outcome, run)

    def _give_or_wait(self, promise: Promise[Any], outcome: Outcome[Any], run: Run) -> None:
        if isinstance(outcome, Behind):
            self._wait(promise, outcome.topic, run)
        elif isinstance(outcome, Refused):
            self._waiting.discard(promise)
            self._refuse_later(promise, outcome, self._engine.write())
        else:
            self._give(promise, outcome)

    def _promise(self) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        self._waiting.add(promise)
        return promise

    def _give(self, promise: Promise[Any], outcome: Outcome[Any]) -> None:
        assert isinstance(outcome, Answer), "these let time pass by themselves"
        self._waiting.discard(promise)
        promise.give(outcome)

    def _refuse(self, promise: Promise[Any], error: TenureError) -> None:
        self._waiting.discard(promise)
        promise.refuse(error)
