"""Durations as people write them: ``"30s"``, ``timedelta(minutes=1)``, ``30_000``; milliseconds everywhere inside."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import msgspec

from tenure.contract.config import DURATION_MS_MAX
from tenure.contract.names import describe_value
from tenure.errors import Invalid

__all__ = ["Duration", "Rate", "ms_of", "rate_of"]

Duration = str | int | timedelta
"""``"1h30m"`` (d, h, m, s, ms), a timedelta, or a whole number of milliseconds."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_RATE: Final = re.compile(r"(\d{1,9})/(\w+)", re.ASCII)


class Rate(msgspec.Struct, frozen=True, gc=False):
    """At most ``count`` starts in every ``per_ms``."""

    count: int
    per_ms: int


def ms_of(given: object, *, field: str, min_ms: int = 0, max_ms: int = DURATION_MS_MAX) -> int:
    """Return a duration in milliseconds, or raise Invalid where it is none or lies outside ``min_ms..max_ms``."""
    ms = _ms(given)
    if ms is None:
        wanted = 'a duration like "30s" or "1h30m", a timedelta, or a whole number of milliseconds'
        raise Invalid(f"{field} must be {wanted}; got {describe_value(given)}", field=field)
    if not min_ms <= ms <= max_ms:
        raise Invalid(f"{field} must be from {min_ms} to {max_ms} ms; got {describe_value(given)}", field=field)
    return ms


def _ms(given: object) -> int | None:
    if type(given) is int:
        return given
    if isinstance(given, timedelta):
        return given // timedelta(milliseconds=1)
    if isinstance(given, str) and len(given) <= 64 and _WHOLE.fullmatch(given):
        return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(given)))
    return None


def rate_of(given: object, *, field: str = "rate") -> Rate:
    """Return ``"100/s"``, ``"5/m"`` or ``"10/30s"`` as a Rate, or raise Invalid."""
    found = _RATE.fullmatch(given) if isinstance(given, str) else None
    if found is None or int(found[1]) < 1:
        raise Invalid(f'{field} must be like "100/s", "5/m" or "10/30s"; got {describe_value(given)}', field=field)
    per = found[2] if found[2][0].isdigit() else f"1{found[2]}"
    return Rate(int(found[1]), ms_of(per, field=field, min_ms=1))
