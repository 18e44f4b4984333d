"""The optional parts of Tenure: which extra brings a package, and the error where it is missing.

A message must be right for a package that was installed from an index and for a clone that was never published, so it
gives both commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tenure.errors import Invalid

__all__ = ["extra_of", "importing", "install_hint", "needs_extra"]

_EXTRAS: Final = {
    **dict.fromkeys(("pyarrow", "obstore"), "buffer"),
    **dict.fromkeys(("pyspark", "pandas", "py4j"), "spark"),
    **{"grpc": "connect", "psycopg": "postgres", "deltalake": "delta", "pyiceberg": "iceberg"},
}


def install_hint(extra: str) -> str:
    """Return the commands that install an extra: the package's, and the one for a clone."""
    return f"pip install 'tenure[{extra}]' (in a clone: pip install '.[{extra}]')"


def needs_extra(problem: str, extra: str, *, code: str | None = None) -> Invalid:
    """Make the error for a package that is missing: the problem, then how to install the extra that brings it."""
    return Invalid(f"{problem}: {install_hint(extra)}", code=code)


def extra_of(error: ImportError) -> str | None:
    """Return the extra that brings the package of an import that failed; None where no extra does."""
    return _EXTRAS.get(_package_of(error))


@contextmanager
def importing(problem: str, extra: str, *, code: str | None = None) -> Iterator[None]:
    """Raise Invalid with the problem and how to install the extra, where an import within the block fails.

    A module of Tenure itself that is missing is a fault of ours, and raised as it is.
    """
    try:
        yield
    except ImportError as error:
        if _package_of(error) == "tenure":
            raise
        raise needs_extra(problem, extra, code=code) from error


def _package_of(error: ImportError) -> str:
    return (error.name or "").partition(".")[0]
