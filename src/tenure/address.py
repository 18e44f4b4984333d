"""Where servers are, and the headers that go with every request."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from tenure.contract.names import describe_value
from tenure.errors import Invalid

__all__ = ["ENDPOINTS_MAX", "Address", "headers_of", "parse_address", "parse_addresses"]

ENDPOINTS_MAX: Final = 16
"""The servers that one client knows, those included that another server named to it."""


class Address(msgspec.Struct, frozen=True):
    """A server's URL in parts; ``prefix`` is a path in front of /v0, without a slash at its end."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def base(self) -> str:
        """The URL that paths are added to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def parse_address(url: str) -> Address:
    """A URL in parts. Raises Invalid for what is none, and for one with a key in it: those end up in logs."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except (ValueError, AttributeError, TypeError) as error:
        raise Invalid(f"url must be like http://127.0.0.1:4000; got {describe_value(url)}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Invalid(f"url must be like http://127.0.0.1:4000; got {describe_value(url)}", field="url")
    if parts.username is not None or parts.password is not None:
        raise Invalid("url must hold no user and no password: give the key as key=", field="url")
    prefix = parts.path.rstrip("/")
    if prefix.endswith("/v0"):
        raise Invalid(f"url must end before /v0, which the client adds itself; got {describe_value(url)}", field="url")
    if port == 0:
        raise Invalid(f"url must name the port that the server listens on; got {describe_value(url)}", field="url")
    default = 443 if parts.scheme == "https" else 80
    return Address(parts.scheme, parts.hostname, port or default, prefix)


def parse_addresses(urls: str) -> tuple[Address, ...]:
    """Return one URL, or several separated by commas, in parts and in their order. Raises Invalid as `parse_address`,
    for an empty place in the list, a server that is named twice, a mix of http and https, and a list that is too long.
    """
    try:
        listed = [url.strip() for url in urls.split(",")]
    except (AttributeError, TypeError):
        listed = [urls]
    if len(listed) == 1:
        return (parse_address(urls),)
    if len(listed) > ENDPOINTS_MAX:
        raise Invalid(f"url must name at most {ENDPOINTS_MAX} servers; got {len(listed)}", field="url")
    if "" in listed:
        message = "url must be URLs with one comma between two of them, like http://a:4000,http://b:4000"
        raise Invalid(f"{message}; got {describe_value(urls)}", field="url")
    found = tuple(parse_address(url) for url in listed)
    twice = next((address.base for address in found if found.count(address) > 1), None)
    if twice is not None:
        raise Invalid(f"url must name each server once; got {twice} twice", field="url")
    if len({address.scheme for address in found}) > 1:
        raise Invalid("url must name servers of one scheme: http for all, or https for all", field="url")
    return found


def headers_of(key: str | None) -> dict[str, str]:
    """What goes with every request. Raises Invalid for a key that cannot stand in a header."""
    headers = {"accept-encoding": "identity", "user-agent": "tenure"}
    if key is not None:
        if not key or not key.isascii() or not key.isprintable():
            raise Invalid("key must be printable ASCII", field="key")
        headers["authorization"] = f"Bearer {key}"
    return headers
