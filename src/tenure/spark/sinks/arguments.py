"""Checks of the arguments that sinks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure.errors import Invalid

__all__ = ["column_names", "connector_of", "quote_name"]


def column_names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of ``partition_by``. Raises Invalid for a string, which would pass for a list of letters."""
    if isinstance(given, str):
        raise Invalid("partition_by is a list of columns")
    return tuple(given)


def connector_of(
    format_name: str, packages: Mapping[tuple[int, int], str], spark_version: tuple[int, int], *, small: str
) -> str:
    """Return the package of a table format's connector.

    Raises Invalid (``no_connector``) where there is none for that Spark; ``small`` names the sink that does without.
    """
    if spark_version in packages:
        return packages[spark_version]
    known = ", ".join(f"{major}.{minor}" for major, minor in packages)
    newest = ".".join(map(str, max(packages)))
    raise Invalid(
        f"{format_name} has no connector for Spark {spark_version[0]}.{spark_version[1]}, only for {known}: "
        f"pip install 'pyspark=={newest}.*'. Small tables can do without a connector: {small}",
        code="no_connector",
    )


def quote_name(name: str) -> str:
    """Return any name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
