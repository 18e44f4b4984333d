"""EarlyConflict: a refusal that rests on records which are not durable yet."""

from __future__ import annotations

from typing import Any

from tenure.errors import Conflict

__all__ = ["EarlyConflict"]


class EarlyConflict(Conflict):
    """The request was made before, and that first copy has not reached the ``level`` that its own answer waits for.

    The broker raises it after the copy has: a caller takes "appended before" for success, and until then a crash or a
    lost lead may still take the copy back.
    """

    def __init__(self, message: str, *, level: int, code: str, **detail: Any) -> None:
        super().__init__(message, code=code, **detail)
        self.level = level

    def conflict(self) -> Conflict:
        """Return the same refusal for when the copy is durable."""
        return Conflict(self.message, code=self.code, **self.detail)
