"""Lease ids: the number of a lease as callers see it."""

from __future__ import annotations

from typing import Final

from tenure.errors import Invalid

__all__ = ["lease_id", "parse_lease_id"]

_PREFIX: Final = "lease_"


def lease_id(number: int) -> str:
    """Return a lease number as callers see it."""
    return f"{_PREFIX}{number:x}"


def parse_lease_id(value: str) -> int:
    """Return the number in a lease id, or 0 for a text that never was one (so it matches nothing)."""
    if not isinstance(value, str):
        raise Invalid("a lease id is a string, as a claim answered it")
    try:
        return int(value[len(_PREFIX) :], 16) if value.startswith(_PREFIX) and len(value) < 40 else 0
    except ValueError:
        return 0
