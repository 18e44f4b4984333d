"""Breadth-first search of every state that a protocol can reach, with the shortest way to a violation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

__all__ = ["Explored", "Violation", "explore"]

State = TypeVar("State", bound=Hashable)


class Violation(Exception):
    """A property does not hold. The first argument names the property in one word."""

    @property
    def kind(self) -> str:
        return str(self.args[0])


class Explored(NamedTuple):
    """What a search saw: all states within the bounds, or the first violation and the steps that lead to it."""

    states: int
    transitions: int
    violation: Violation | None
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = "".join(f"\n  {step}" for step in self.trace)
        return f"{self.states:,} states, {self.transitions:,} transitions, {self.violation or 'no violation'}{steps}"


def explore(
    first: State,
    steps: Callable[[State], Iterable[tuple[str, Callable[[], State]]]],
    *,
    check: Callable[[State], None],
    states_max: int,
) -> Explored:
    """Visit every reachable state once. A step or the check raises `Violation`; more than `states_max` is an error.

    A step is returned as its name and a function, so that the step that raises can be named in the trace.
    """
    came: dict[State, tuple[State, str] | None] = {first: None}
    level, transitions = [first], 0
    while level:
        following: list[State] = []
        for state in level:
            name = ""
            try:
                check(state)
                for name, act in steps(state):
                    transitions += 1
                    reached = act()
                    if reached not in came:
                        came[reached] = (state, name)
                        following.append(reached)
            except Violation as violation:
                return Explored(len(came), transitions, violation, (*_way(came, state), name))
        if len(came) > states_max:
            raise RuntimeError(f"more than {states_max:,} states: choose smaller bounds")
        level = following
    return Explored(len(came), transitions, None, ())


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (step := came[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(names[::-1])
