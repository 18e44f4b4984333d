"""Checks of values that callers pass: flags, whole numbers and seqs.

To Python True is 1 and "no" is true; to the contract neither is. An event with such a value in it would be logged and
could not be read back, so every command checks with these.
"""

from __future__ import annotations

from typing import Final

from tenure.contract.names import describe_value
from tenure.errors import Invalid

__all__ = ["SEQ_MAX", "check_flag", "check_reaches", "check_seqs", "check_whole", "check_within"]

SEQ_MAX: Final = 2**64 - 1


def check_flag(value: object, field: str) -> bool:
    """Return a bool unchanged, or raise Invalid."""
    if value is True or value is False:
        return value
    raise Invalid(f"{field} must be true or false; got {describe_value(value)}", field=field)


def check_whole(value: object, field: str, *, least: int = 0) -> int:
    """Return a whole number of at least ``least`` unchanged, or raise Invalid; the caller bounds it from above."""
    if type(value) is int and value >= least:
        return value
    raise Invalid(f"{field} must be a whole number, {least} or more; got {describe_value(value)}", field=field)


def check_within(value: object, field: str, *, least: int, most: int) -> int:
    """Return a whole number between two bounds unchanged, or raise Invalid."""
    if type(value) is int and least <= value <= most:
        return value
    raise Invalid(f"{field} must be a whole number from {least} to {most}; got {describe_value(value)}", field=field)


def check_reaches(reaches: object) -> None:
    """Raise Invalid unless this is None or a function that returns whether a caller reaches a name."""
    if reaches is not None and not callable(reaches):
        raise Invalid(f"reaches must be a function of a name; got {describe_value(reaches)}")


def check_seqs(seqs: object, *, count_max: int, limit: str) -> None:
    """Raise Invalid unless these are 1 to ``count_max`` seqs in a list, a tuple or a range.

    ``limit`` is the name of the setting that has that number.
    """
    if seqs.__class__ is list and len(seqs) == 1 and seqs[0].__class__ is int and 0 <= seqs[0] <= SEQ_MAX:
        return
    if not isinstance(seqs, (list, tuple, range)) or not seqs:
        raise Invalid(f"seqs must be a list of 1 to {count_max} whole numbers; got {describe_value(seqs)}")
    if seqs[count_max : count_max + 1]:  # a slice, because len() of a long range overflows
        raise Invalid(f"more than {count_max} seqs in one call", code="batch_too_large", limit=limit, max=count_max)
    if set(map(type, seqs)) != {int} or min(seqs) < 0 or max(seqs) > SEQ_MAX:
        raise Invalid("seqs must be whole numbers from 0 to 2**64 - 1")
