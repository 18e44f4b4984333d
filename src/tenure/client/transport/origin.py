"""`Origin`: the server that a wire sends its requests to."""

from __future__ import annotations

import ssl

from tenure.address import parse_address
from tenure.client.transport.http1 import RequestEncoder
from tenure.client.transport.wire import WireError, client_closed
from tenure.server_guard import check_server

__all__ = ["Origin"]


class Origin:
    """The address of a server, the encoder of its requests, and for https its TLS context.

    Proxies are not used, whatever the environment says. Raises Invalid for a bad URL or key.
    """

    def __init__(self, url: str, *, key: str | None, tls: ssl.SSLContext | None) -> None:
        address = parse_address(url)
        self.host, self.port = address.host, address.port
        self.tls: ssl.SSLContext | None = None
        if address.scheme == "https":
            self.tls = tls if tls is not None else ssl.create_default_context()
        self.encode = RequestEncoder(address, key=key).encode
        self._base = address.base

    def check(self, *, closed: bool) -> None:
        """Raise WireError where the client is closed, and an error where a test may not reach this server."""
        if closed:
            raise client_closed()
        check_server(self._base)

    def unreached(self, error: OSError) -> WireError:
        """Return the error of a request for which there is no connection: nothing was sent."""
        reason = str(error) or "no connection was made in time"
        return WireError(f"{self.host}:{self.port}: {reason}", sent=False)
