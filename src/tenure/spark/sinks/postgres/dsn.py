"""The address of a PostgreSQL for its two clients: psycopg on the driver, JDBC in Spark's tasks.

The password never leaves it in a text: not in an error, a log or a repr.
"""

from __future__ import annotations

import os

from tenure.errors import Invalid
from tenure.extras import importing

__all__ = ["Address"]

# libpq's name, and pgjdbc's for the same.
_SHARED = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "application_name": "ApplicationName",
    "connect_timeout": "connectTimeout",
    "options": "options",
}
_OWN = {"host", "port", "dbname", "user", "password"}
_HIDDEN = "***"
_NO_ADDRESS = (
    "not the address of a PostgreSQL: postgresql://user@host:port/database, with special characters of a password "
    "written as %XX"
)


class Address:
    """An address: ``postgresql://user@host:port/database`` or libpq's ``host=… user=…``.

    The password is best left in the environment (``PGPASSWORD``). Raises Invalid for a malformed address, or one that
    only one of the two clients understands.
    """

    def __init__(self, text: str) -> None:
        self._parts = _parse(text)
        if not self._parts.get("port", "0").isdecimal():
            raise Invalid(_NO_ADDRESS)
        if unknown := set(self._parts) - _OWN - set(_SHARED):
            raise Invalid(f"not known to both clients of PostgreSQL: {sorted(unknown)}; use {sorted(_SHARED)}")
        host = self._parts.get("host", "")
        if not host or host.startswith("/") or "," in host or "," in self._parts.get("port", ""):
            raise Invalid("Spark's tasks reach PostgreSQL by TCP: name one host")
        for needed in ("dbname", "user"):
            if needed not in self._parts:
                raise Invalid(f"a PostgreSQL's address names a {needed}: postgresql://user@host/database")

    def __repr__(self) -> str:
        parts = self._parts
        return f"postgresql://{parts['user']}@{parts['host']}:{parts.get('port', '5432')}/{parts['dbname']}"

    @property
    def _password(self) -> str | None:
        return self._parts.get("password") or os.environ.get("PGPASSWORD")

    def psycopg(self) -> dict[str, str]:
        """Return the arguments of ``psycopg.connect``."""
        return self._parts | {"application_name": self._parts.get("application_name", "tenure")}

    def jdbc(self) -> dict[str, str]:
        """Return the options of Spark's JDBC writer. Spark hides the value of ``password`` in what it prints."""
        parts = self._parts
        host = f"[{parts['host']}]" if ":" in parts["host"] else parts["host"]
        options = {
            "url": f"jdbc:postgresql://{host}:{parts.get('port', '5432')}/{parts['dbname']}",
            "driver": "org.postgresql.Driver",
            "user": parts["user"],
        }
        options |= {_SHARED[name]: value for name, value in parts.items() if name in _SHARED}
        return options | ({"password": self._password} if self._password else {})

    def scrub(self, text: str) -> str:
        """Return the text without the password, in case it contains it."""
        return text.replace(self._password, _HIDDEN) if self._password else text


def _parse(text: str) -> dict[str, str]:
    with importing("psycopg is not installed", "postgres", code="no_psycopg"):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except psycopg.Error:
        # Its message repeats a part of the address, and that may be a password with an @ in it.
        raise Invalid(_NO_ADDRESS) from None
