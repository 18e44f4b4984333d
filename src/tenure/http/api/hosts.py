"""Checks of Host and Origin, against DNS rebinding and requests of foreign pages.

Without keys the loopback address is all that protects a server, and a browser on the same machine is a way in: a page
whose name is made to resolve to 127.0.0.1 would have the same origin as the server (DNS rebinding). So without keys the
Host must be a loopback name. With or without keys, what a browser sends on behalf of another site is refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from tenure.errors import Denied

__all__ = ["HostCheck", "host_of", "is_loopback"]

_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^][/@?#,\s\\:]+)(?::[0-9]*)?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Return whether a bare host name or address (an IPv6 one without brackets) is this machine's loopback."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_of(authority: str) -> str | None:
    """Return the host of ``host[:port]``, lower case, without brackets; None where the text is malformed."""
    if _AUTHORITY.fullmatch(authority) is None:
        return None
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port  # raises for what is no port
    except ValueError:
        return None
    return parts.hostname or None


class HostCheck:
    """The check that refuses requests of foreign pages.

    ``allowed`` are further names that ``Host`` and ``Origin`` may have, such as the name a proxy is reached by.
    ``loopback_only`` is for a server without keys; ``addresses`` lets it be asked by any address as well, for one that
    listens beyond loopback on purpose (only a name can be made to resolve to this server).
    """

    def __init__(self, allowed: Iterable[str] = (), *, loopback_only: bool, addresses: bool = False) -> None:
        self.loopback_only = loopback_only
        self._addresses = addresses
        self._allowed = frozenset(name.lower() for name in allowed)
        self._seen: dict[str, bool] = {}

    def check(self, headers: Mapping[str, str], *, navigable: bool) -> None:
        """Raise Denied where the headers name another site. ``navigable``: a link on another site may lead here."""
        if "origin" not in headers and "sec-fetch-site" not in headers:  # no browser asks
            if self.loopback_only:
                self._check_host(headers.get("host", ""))
            return
        if self.loopback_only:
            self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not self._same(origin, headers.get("host", "")):
            raise Denied("this request comes from a page of another origin", header="origin")
        site = headers.get("sec-fetch-site")
        if site in ("cross-site", "same-site") and origin is None:
            # Images, no-cors fetches and the like carry no Origin; a click on a link may lead to a page of ours.
            if navigable and headers.get("sec-fetch-mode") == "navigate":
                return
            raise Denied("this request comes from a page of another site", header="sec-fetch-site")

    def _check_host(self, authority: str) -> None:
        known = self._seen.get(authority)
        if known is None:
            host = host_of(authority)
            known = host is not None and self._good(host)
            if len(self._seen) < 64 and len(authority) < 256:
                self._seen[authority] = known
        if not known:
            raise Denied(
                "without keys this server answers to loopback names only: use localhost, or start it with --host-name",
                header="host",
            )

    def _good(self, host: str) -> bool:
        return host in self._allowed or is_loopback(host) or (self._addresses and _is_address(host))

    def _same(self, origin: str, authority: str) -> bool:
        """Return whether an origin is that of the request, by host and port, or has an allowed name."""
        try:
            parts = urlsplit(origin)
            port, host = parts.port, parts.hostname
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not host or parts.path or parts.query:
            return False
        if host in self._allowed:
            return True
        own = host_of(authority)
        own_port = urlsplit(f"//{authority}").port if own is not None else None
        default = _DEFAULT_PORTS[parts.scheme]
        return host == own and (port or default) == (own_port or default)
