"""Decisions only read: on a state whose fold methods raise, every command is decided as on any other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenure.core.decide.table import DECIDES
from tenure.core.state.queue import Queue
from tenure.core.state.state import State
from tests.core.test_fold import Story

FOLDING = [(State, name) for name in ("advance", "step_time", "pass_time", "expire_keys", "expire_keys_of")]
"""What lets time pass: a fold does, and the engine before a command is decided."""


class Deciding:
    """Whether a decision is being made, and how many were."""

    def __init__(self) -> None:
        self.is_on = False
        self.made = 0

    @contextmanager
    def now(self) -> Iterator[None]:
        self.is_on = True
        self.made += 1
        try:
            yield
        finally:
            self.is_on = False

    def watch(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **more: Any) -> Any:
            assert not self.is_on, f"a decision called {method.__name__}"
            return method(*arguments, **more)

        return called

    def wrap(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        def decided(*arguments: Any) -> Any:
            with self.now():
                outcome = decide(*arguments)
            return self._steps(outcome) if hasattr(outcome, "send") else outcome

        return decided

    def _steps(self, steps: Any) -> Generator[Any, Any, Any]:
        given: Any = None
        while True:
            try:
                with self.now():
                    step = steps.send(given)
            except StopIteration as done:
                return done.value
            given = yield step


@pytest.mark.parametrize("seed", range(4))
def test_no_decision_folds_or_lets_time_pass(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    deciding = Deciding()
    for owner, name in [*FOLDING, (Queue, "pass_time")]:
        monkeypatch.setattr(owner, name, deciding.watch(getattr(owner, name)))
    for command, decide in list(DECIDES.items()):
        monkeypatch.setitem(DECIDES, command, deciding.wrap(decide))
    Story(seed).run(400)
    assert deciding.made > 400
