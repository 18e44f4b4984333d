"""The budget of one step of mass expiry: jobs that end, and entries of an index that are looked at."""

from __future__ import annotations

__all__ = ["StepBudget"]


class StepBudget:
    """How many jobs and entries one step may still touch; the step ends when ``left`` is 0 or below."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left
