"""Stepping: a decision that is carried out batch by batch, in one go or over several turns of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tenure.broker.answer import Answer
from tenure.core.decide.decision import Steps
from tenure.core.events import Event
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.broker.engine import Engine

__all__ = ["Stepping"]

T = TypeVar("T")


class Stepping(Generic[T]):
    """A decision in steps. ``answer`` is its answer after the last one, None before.

    What a step has logged stays logged, whether or not another one follows.
    """

    def __init__(self, engine: Engine, steps: Steps[tuple[T, int]]) -> None:
        self.answer: Answer[T] | None = None
        self._engine = engine
        self._steps = steps
        self._is_begun = False
        self._batch = 0
        self._refused: TenureError | None = None

    def step(self) -> bool:
        """Log and fold the next batch; return True after the last one. Raises the error of the decision."""
        try:
            events = self._resume()
        except StopIteration as done:
            reply, level = done.value
            self.answer = self._engine.answer(reply, self._batch, level)
            return True
        if events:
            try:
                self._batch = self._engine.commit_all(events)
            except TenureError as error:
                self._refused = error
        return False

    def _resume(self) -> list[Event]:
        refused, self._refused = self._refused, None
        if refused is not None:
            return self._steps.throw(refused)
        if self._is_begun:
            return self._steps.send(self._engine.now())
        self._is_begun = True
        return next(self._steps)

    def close(self) -> None:
        """Take no other step."""
        self._steps.close()
