"""Install hints for the optional parts of Tenure.

A message must be right for a package that was installed from an index and for a clone that was never published, so it
gives both commands.
"""

from __future__ import annotations

from tenure.errors import Invalid

__all__ = ["install_hint", "needs_extra"]


def install_hint(extra: str) -> str:
    """Return the commands that install an extra: the package's, and the one for a clone."""
    return f"pip install 'tenure[{extra}]' (in a clone: pip install '.[{extra}]')"


def needs_extra(problem: str, extra: str, *, code: str | None = None) -> Invalid:
    """Make the error for a package that is missing: the problem, then how to install the extra that brings it."""
    return Invalid(f"{problem}: {install_hint(extra)}", code=code)
