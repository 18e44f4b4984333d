"""The header list of an HTTP/2 request, checked by the rules of RFC 9113, 8.2 and 8.3.

A reference of one byte to the peer's table stands for kilobytes of header. So the check runs over whole values at the
speed of C, and not over their characters one by one as the protocol library would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["BadHead", "check_head", "check_trailers"]

Pairs = Iterable[tuple[bytes, bytes]]

_NAME: Final = re.compile(rb"[!-9;-@\[-~]+")
"""Visible characters without capitals and colons."""
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_BLANKS: Final = (b" ", b"\t")


class BadHead(Exception):
    """The headers are no HTTP/2: the connection ends."""


def check_head(pairs: Pairs) -> None:
    """Raise BadHead unless these are the headers of a request."""
    pseudo: dict[bytes, bytes] = {}
    hosts: set[bytes] = set()
    begun = False
    for name, value in pairs:
        if name.startswith(b":"):
            if begun or name in pseudo or name not in _PSEUDO:
                raise BadHead("a pseudo-header is late, double or unknown")
            _check_value(value)
            pseudo[name] = value
        else:
            begun = True
            _check_field(name, value)
            if name == b"host":
                hosts.add(value)
    if b":authority" in pseudo:
        hosts.add(pseudo[b":authority"])
    if len(hosts) != 1:
        raise BadHead("there must be one authority or host")
    if pseudo.get(b":method") != b"CONNECT" and not (b":scheme" in pseudo and pseudo.get(b":path")):
        raise BadHead("a pseudo-header is missing")
    if not pseudo.get(b":method"):
        raise BadHead("the method is missing")


def check_trailers(pairs: Pairs) -> None:
    """Raise BadHead unless these are trailers."""
    for name, value in pairs:
        _check_field(name, value)


def _check_field(name: bytes, value: bytes) -> None:
    if _NAME.fullmatch(name) is None:
        raise BadHead("a header has no name, or one with characters that it may not have")
    if name in _OF_THE_CONNECTION or (name == b"te" and value.lower() != b"trailers"):
        raise BadHead("a header belongs to another protocol")
    _check_value(value)


def _check_value(value: bytes) -> None:
    if b"\0" in value or b"\n" in value or b"\r" in value or value.startswith(_BLANKS) or value.endswith(_BLANKS):
        raise BadHead("a header has a value with characters that it may not have")
