"""Stepping: a decision that is carried out batch by batch, in one go or over several turns of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tenure.core.decide.decision import Behind, Refused, Step, Steps
from tenure.errors import TenureError

__all__ = ["Stepping"]

T = TypeVar("T")


class Stepping(Generic[T]):
    """A decision in steps. ``outcome`` is what it comes to, and ``batch`` the last one that it joined, after the last.

    ``carry`` does a step and returns the batch that it joined, or 0; ``now`` is the time with which the next begins.
    What a step has logged stays logged, whether or not another one follows.
    """

    def __init__(
        self, steps: Steps[tuple[T, int] | Behind | Refused], *, carry: Callable[[Step], int], now: Callable[[], int]
    ) -> None:
        self.outcome: tuple[T, int] | Behind | Refused | None = None
        self.batch = 0
        self._steps = steps
        self._carry = carry
        self._now = now
        self._is_begun = False
        self._refused: TenureError | None = None

    def step(self) -> bool:
        """Carry out the next step; return True after the last one. Raises the error of the decision."""
        try:
            step = self._resume()
        except StopIteration as done:
            self.outcome = done.value
            return True
        try:
            self.batch = self._carry(step) or self.batch
        except TenureError as error:
            self._refused = error
        return False

    def _resume(self) -> Step:
        refused, self._refused = self._refused, None
        if refused is not None:
            return self._steps.throw(refused)
        if self._is_begun:
            return self._steps.send(self._now())
        self._is_begun = True
        return next(self._steps)

    def close(self) -> None:
        """Take no other step."""
        self._steps.close()
