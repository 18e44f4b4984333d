"""Commands that take more than one turn of the loop: they run in steps, or wait for their topic or for a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tenure.broker.answer import Answer
from tenure.broker.engine import Engine
from tenure.broker.serving.catch_up import CatchUp
from tenure.broker.serving.long_work import LongWork
from tenure.broker.serving.postponed import Postponed
from tenure.broker.stepping import Stepping
from tenure.contract.commands import Command
from tenure.core.catching_up import CatchingUp
from tenure.core.decide.table import DECIDES
from tenure.core.early_conflict import EarlyConflict
from tenure.errors import TenureError

__all__ = ["LongCommands"]

T = TypeVar("T")


class LongCommands:
    """The commands that are not answered yet; its length is how many there are.

    ``check_waiters`` raises Overloaded where as many callers wait as may.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        *,
        work: LongWork,
        catch_up: CatchUp,
        check_waiters: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._work = work
        self._catch_up = catch_up
        self._check_waiters = check_waiters
        self._waiting: set[Postponed[Any]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def refuse_all(self, error: TenureError) -> None:
        """Raise this error wherever an answer is awaited; no other step is taken."""
        for postponed in list(self._waiting):
            self._refuse(postponed, error)

    def step_through(self, command: Command[T]) -> Answer[T]:
        """Run a command in steps, as many in this turn as it allows; the answer comes after the last one.

        Raises the error of the first turn's steps; a later one is raised where the answer is awaited. What the steps
        before it did stays done.
        """
        engine = self._engine
        decided = DECIDES[command.__class__](engine.state, command, engine.now(), engine.reader)
        if isinstance(decided, tuple):
            return engine.carry_out(decided)
        stepping: Stepping[T] = Stepping(engine, decided)
        if self._work.run(stepping.step):
            assert stepping.answer is not None, "the last step gives the answer"
            return stepping.answer
        postponed: Postponed[T] = self._postpone()
        self._work.add(lambda: self._step(stepping, postponed))
        return postponed.answer

    def _step(self, stepping: Stepping[T], postponed: Postponed[T]) -> bool:
        """Take one step of a command that runs in steps, or none where its caller is gone."""
        if postponed.is_abandoned or postponed not in self._waiting:
            stepping.close()
            self._waiting.discard(postponed)
            return True
        try:
            done = stepping.step()
            if stepping.answer is not None:
                self._give(postponed, stepping.answer)
        except TenureError as error:
            self._refuse(postponed, error)
            return True
        return done

    def run_later(self, behind: CatchingUp, run: Callable[[int], Answer[T]]) -> Answer[T]:
        """Run a command, as of now, when its topic has caught up: ``run`` gets the time that it is now.

        Raises Overloaded where as many callers wait as may.
        """
        topic = self._engine.state.find(behind.topic)
        if topic is None:
            raise behind
        self._check_waiters()
        postponed: Postponed[T] = self._postpone()
        self._catch_up.then(topic, lambda came_ms: self._run(postponed, run, came_ms))
        return postponed.answer

    def refuse_later(self, refusal: EarlyConflict) -> Answer[Any]:
        """Raise a refusal where its answer is awaited, after what it rests on is durable.

        Where that never will be, the error of the log is raised instead. Raises the refusal where it is durable now.
        """
        durability, batch, conflict = self._engine.durability, self._engine.write(), refusal.conflict()
        if durability is None or durability.reached(batch, refusal.level):
            raise conflict from None
        postponed: Postponed[Any] = Postponed(self._loop)
        durability.when_reached(batch, refusal.level, lambda error: postponed.refuse(error or conflict))
        return postponed.answer

    def _run(self, postponed: Postponed[T], run: Callable[[int], Answer[T]], came_ms: int) -> None:
        if postponed.is_abandoned or postponed not in self._waiting:
            self._waiting.discard(postponed)
            return
        try:
            self._give(postponed, run(came_ms))
        except TenureError as error:
            self._refuse(postponed, error)

    def _postpone(self) -> Postponed[Any]:
        postponed: Postponed[Any] = Postponed(self._loop)
        self._waiting.add(postponed)
        return postponed

    def _give(self, postponed: Postponed[T], answer: Answer[T]) -> None:
        self._waiting.discard(postponed)
        postponed.give(answer)

    def _refuse(self, postponed: Postponed[Any], error: TenureError) -> None:
        self._waiting.discard(postponed)
        postponed.refuse(error)
