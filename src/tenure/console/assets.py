"""Load the console's files from the package into memory, with the headers to serve them with.

The set is fixed when it is read: a name that is not in it does not exist, so no path of a request touches a disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

__all__ = ["HEADERS", "INDEX", "Asset", "load"]

INDEX: Final = "index.html"
HEADERS: Final[Mapping[bytes, bytes]] = {
    b"content-security-policy": b"; ".join(
        [
            b"default-src 'none'",
            b"script-src 'self'",
            b"style-src 'self'",
            b"connect-src 'self'",
            b"img-src 'self' data:",
            b"base-uri 'none'",
            b"frame-ancestors 'none'",
            b"form-action 'none'",
        ]
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-cache",  # cache it, but revalidate: an upgrade shows at once
}
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class Asset(msgspec.Struct, frozen=True):
    """One file, with its content type and its etag."""

    body: bytes
    content_type: bytes
    etag: bytes


@cache
def load() -> dict[str, Asset]:
    """Return every file of the page by its path, such as ``views/queue.js``."""
    return dict(_walk(files("tenure.console") / "page", ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
            continue
        kind = _TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            yield prefix + entry.name, Asset(body, kind, b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode())
