"""Names of columns and tables as Spark's SQL spells them."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
