"""What an error of PostgreSQL means to the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tenure.errors import Denied, Indeterminate, Invalid, Overloaded, TenureError

if TYPE_CHECKING:
    import psycopg

    from tenure.spark.sinks.postgres.dsn import Address

__all__ = ["from_a_task", "translated"]

# By the first two characters of SQLSTATE.
_DENIED = {"28"}
_INVALID = {"22", "23", "42", "3D", "3F", "0A"}
_LATER = {"08", "40", "53", "55", "57", "25"}
# A task's error comes as text: JDBC's exception, and a message that no SQLSTATE stands beside.
_FROM_JDBC = re.compile(r"PSQLException: (?:ERROR|FATAL)?:? ?([^\n]+)")
_AWAY = ("onnection", "the database system is", "terminating", "slots", "I/O error", "deadlock", "No space left")


def translated(error: psycopg.Error, address: Address) -> TenureError:
    """Tenure's error for one of the database, outside of the commit itself: there nothing was changed."""
    text = f"{address}: {address.scrubbed(str(error)).strip()}"
    state = error.sqlstate or ""
    if state[:2] in _DENIED or state == "42501" or "authentication failed" in text:
        return Denied(text, code="postgres_denied")
    if state[:2] in _INVALID:
        return Invalid(text, code="sink_rejected")
    if not state or state[:2] in _LATER:
        return Overloaded(text, code="postgres_unavailable")
    return Indeterminate(text)


def from_a_task(error: Exception, address: Address) -> TenureError | None:
    """Tenure's error for what the database told a task of Spark's; None where it was not the database's."""
    found = _FROM_JDBC.search(str(error))
    if found is None and "FAILED_JDBC.CONNECTION" in str(error):
        return Overloaded(f"{address}: Spark cannot connect", code="postgres_unavailable")
    if found is None:
        return None
    text = f"{address}: {address.scrubbed(found[1])}"
    if "0x00" in text:
        return Invalid(f"a text holds a NUL, which PostgreSQL cannot store: replace it ({text})", code="sink_rejected")
    if "authentication failed" in text or "permission denied" in text:
        return Denied(text, code="postgres_denied")
    if any(sign in text for sign in _AWAY):
        return Overloaded(text, code="postgres_unavailable")
    return Invalid(text, code="sink_rejected")
