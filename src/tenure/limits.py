"""Sizes in bytes, and the check that every settings Struct makes of its numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from tenure.errors import Invalid

__all__ = ["KIB", "MIB", "check_limits"]

KIB: Final = 1024
MIB: Final = 1024 * KIB

_NOTHING: Final[Mapping[str, int]] = {}
_SHOWN_CHARS_MAX: Final = 100


def check_limits(settings: Any, *, zero: Collection[str] = (), most: Mapping[str, int] = _NOTHING) -> None:
    """Raise Invalid where a whole number of a settings Struct is none, below 1, or above its bound in ``most``.

    The fields in ``zero`` may be 0. Fields of other types are the Struct's own to check.
    """
    kind: Any = type(settings)
    for name in _numbers(kind):
        value, least = getattr(settings, name), 0 if name in zero else 1
        if type(value) is not int or value < least:
            raise Invalid(f"{name} must be a whole number, {least} or more; got {_shown(value)}", field=name)
        if value > most.get(name, value):
            raise Invalid(f"{name} must be at most {most[name]:,}; got {value:,}", field=name)


@cache
def _numbers(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.type is int)


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARS_MAX]
