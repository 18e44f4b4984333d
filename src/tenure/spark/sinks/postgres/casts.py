"""Casts from a staging table to a table that others made: which type a value goes through, and where it could change.

PostgreSQL converts without a word: an explicit cast cuts a text to ``varchar(5)``, and even an assignment rounds 2.7 to
an integer, and takes the time off a timestamp for a date. So a value is cast only as far as the type without its limit,
and the insertion refuses what is too long. Where a value could become another one, it is compared with what it would
become, in a type that shows the difference.

A text is read as PostgreSQL reads a literal, which refuses what is none; what it would round or cut is compared too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["Cast", "cast_of"]

_LIMITED: Final = re.compile(r"(character varying|character|bit varying|bit)\(\d+\)((?:\[\])*)")
_UNLIMITED: Final = {
    "character varying": "character varying",
    "character": "bpchar",
    "bit varying": "bit varying",
    "bit": "bit varying",
}
# Trailing spaces, which the standard lets a limit cut, make no difference to bpchar.
_SEEN_IN: Final = {name: "bit varying" if "bit" in name else "bpchar" for name in _UNLIMITED}
_LIMIT: Final = re.compile(r"\(\d+(?:,-?\d+)?\)")
_WHOLE: Final = ("smallint", "integer", "bigint")
_FLOATING: Final = ("real", "double precision")
_NUMBERS: Final = (*_WHOLE, *_FLOATING, "numeric", "money")
_MOMENTS: Final = ("date", "timestamp without time zone", "timestamp with time zone")
_TIMES: Final = ("time without time zone", "time with time zone")
_LONG_NAMES: Final = {"timestamptz": "timestamp with time zone", "timestamp": "timestamp without time zone"}


class Cast(NamedTuple):
    """The type that a value is cast to before it is inserted, and the type that shows a change, if there can be one."""

    kind: str
    seen_in: str | None = None
    is_lossy: bool = False
    """True where every value would change."""


def cast_of(staged: str, target: str) -> Cast:
    """Return the cast for a column of the staging table's type ``staged`` and the table's ``target``."""
    limited = _LIMITED.fullmatch(target)
    if limited is not None:
        base, arrays = limited.groups()
        return Cast(_UNLIMITED[base] + arrays, None if arrays else _SEEN_IN[base])
    source, goal = _LONG_NAMES.get(staged, staged), _LIMIT.sub("", target)
    if source == target:
        return Cast(target)
    if source == "text":
        return Cast(target, "timestamp" if goal == "date" else goal if goal != target else None)
    source = _LIMIT.sub("", source)
    if source in _MOMENTS and goal in _TIMES:
        return Cast(target, is_lossy=True)
    return Cast(target, _seen_in(source, goal, is_limited=goal != target))


def _seen_in(source: str, goal: str, *, is_limited: bool) -> str | None:
    """Return the type in which a value of ``source`` and what becomes of it in ``goal`` differ, if they can."""
    if source in _MOMENTS and goal in _MOMENTS:
        return source if source != "date" or is_limited else None
    if source in _WHOLE:
        return source if goal in (*_FLOATING, "boolean") else None
    if source in _FLOATING:
        return "double precision" if goal in _WHOLE else "numeric" if goal in ("numeric", "money") else None
    return "numeric" if source == "numeric" and goal in _NUMBERS else None
