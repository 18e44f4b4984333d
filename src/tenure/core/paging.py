"""Pages of a listing: their limit, and the opaque cursor that continues after one."""

from __future__ import annotations

import base64
from typing import Final

from tenure.contract.names import describe_value
from tenure.contract.values import check_whole
from tenure.errors import Invalid
from tenure.settings import Settings

__all__ = ["after_name", "after_number", "check_prefix", "clamp_limit", "cursor_of"]

_MARK: Final = b"t1:"
_NUMBER_MAX: Final = 2**63


def clamp_limit(limit: object, settings: Settings) -> int:
    """Return how many entries a page may have: 0 acts as 1, more than the limit is the limit."""
    return min(check_whole(limit, "limit"), settings.page_max) or 1


def check_prefix(prefix: object, field: str = "prefix") -> str:
    """Return the text that names must start with (or equal) unchanged, or raise Invalid; any string will do."""
    if isinstance(prefix, str):
        return prefix
    raise Invalid(f"{field} must be a string; got {describe_value(prefix)}", field=field)


def cursor_of(last: str | int) -> str:
    """Return the opaque cursor that continues after this entry."""
    return base64.urlsafe_b64encode(_MARK + str(last).encode()).decode().rstrip("=")


def after_name(cursor: str | None) -> str:
    """Return the name that a page continues after; raises Invalid for a cursor that no listing gave out."""
    if cursor is None:
        return ""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        name = raw.removeprefix(_MARK).decode("ascii")
    except (TypeError, ValueError):
        raise _refusal() from None
    if not name or not raw.startswith(_MARK) or cursor_of(name) != cursor:
        raise _refusal()
    return name


def after_number(cursor: str | None) -> int:
    """Return the number that a page continues after; raises Invalid for a cursor that no listing gave out."""
    if cursor is None:
        return 0
    text = after_name(cursor)
    if not text.isdecimal() or len(text) > 20 or int(text) >= _NUMBER_MAX:
        raise _refusal()
    return int(text)


def _refusal() -> Invalid:
    return Invalid("this cursor was not given out by a listing: start again without it", field="cursor")
