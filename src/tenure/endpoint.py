"""Which servers, and with which key: what the caller says, else TENURE_URL and TENURE_KEY, else loopback without a key.

`Client`, `App` and every command resolve their address here, so that one environment leads all of them to the same
servers: one, or several that share a log's home, separated by commas.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from tenure.address import parse_addresses
from tenure.errors import Invalid

__all__ = ["KEY_VARIABLE", "URL_DEFAULT", "URL_VARIABLE", "Endpoint", "endpoint_of"]

URL_DEFAULT: Final = "http://127.0.0.1:4000"
URL_VARIABLE: Final = "TENURE_URL"
KEY_VARIABLE: Final = "TENURE_KEY"


class Endpoint(msgspec.Struct, frozen=True):
    """A server's URL, or those of several separated by commas, and the key that is sent to them."""

    url: str
    key: str | None

    def __repr__(self) -> str:
        """Without the key, which has no business in logs."""
        return f"Endpoint({self.url!r}, key={'…' if self.key else None})"


def endpoint_of(
    url: str | None = None, key: str | None = None, *, environment: Mapping[str, str] | None = None
) -> Endpoint:
    """Return the endpoint that ``url`` and ``key`` name, each completed from the environment; an empty variable is
    none. Raises Invalid, naming the variable, where TENURE_URL is no URL of a server and no list of them.
    """
    variables = os.environ if environment is None else environment
    if url is None:
        url = _url_of(variables)
    return Endpoint(url, variables.get(KEY_VARIABLE) or None if key is None else key)


def _url_of(variables: Mapping[str, str]) -> str:
    url = variables.get(URL_VARIABLE)
    if not url:
        return URL_DEFAULT
    try:
        parse_addresses(url)
    except Invalid as error:
        raise Invalid(f"{URL_VARIABLE}: {error.message}", field=URL_VARIABLE) from None
    return url
