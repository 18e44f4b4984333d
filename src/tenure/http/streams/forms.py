"""The forms in which several readers get the same thing, a bounded number of them at a time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["Forms"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_FORMS_MAX: Final = 32
"""Each may be as large as a batch, and readers that all want another form share nothing by keeping it."""


class Forms(Generic[K, V]):
    """A cache that is emptied when it is full."""

    __slots__ = ("_kept", "get")

    def __init__(self) -> None:
        self._kept: dict[K, V] = {}
        self.get = self._kept.get

    def keep(self, key: K, value: V) -> V:
        """Keep a value; return it."""
        if len(self._kept) >= _FORMS_MAX:
            self._kept.clear()
        self._kept[key] = value
        return value
