"""The interface of an object store, and its errors.

    ObjectExists     a Conflict: the key is taken, or another create of it is under way. Read it: it may be ours
    ObjectMissing    a NotFound: no such key
    OutcomeUnknown   an Indeterminate: it may have happened, or happen yet. Read, or repeat what may be repeated
    StoreFull        an Overloaded: there is no room, and nothing was written. Repeat it once there is
    StoreRefused     a Denied: keys, permissions, names. Repeating cannot help

Reading, heading, listing and deleting may always be repeated, ``put_new`` of the same bytes too. ``ObjectExists`` alone
proves nothing about what is stored: ``RetryingStore.create`` reads the key. A store does not retry by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tenure.errors import Conflict, Denied, Indeterminate, Invalid, NotFound, Overloaded
from tenure.objects.request_limits import REQUEST_BYTES_PER_S_MIN, REQUEST_TIMEOUT_MS, RequestLimits

__all__ = [
    "Bytes",
    "ObjectExists",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectStore",
    "OutcomeUnknown",
    "StoreFull",
    "StoreRefused",
    "is_key",
    "open_store",
]


Bytes = bytes | memoryview
"""The data of a write: a batch comes as a view of where it was encoded, so that it is not copied."""


def is_key(key: str) -> bool:
    """Return whether this names an object below the root of a store, and below nothing else."""
    return bool(key) and not any(part in {"", ".", ".."} or "\0" in part for part in key.split("/"))


class ObjectExists(Conflict):
    """The key is taken: read it, it may be your own, or not there yet."""

    default_code = "object_exists"


class ObjectMissing(NotFound):
    """There is no such object."""

    default_code = "object_missing"


class OutcomeUnknown(Indeterminate):
    """The call failed on the way: it may have happened, or may happen yet."""

    default_code = "store_unknown"


class StoreFull(Overloaded):
    """The store has no room: nothing was written. Free some space, then repeat the call."""

    default_code = "disk_full"


class StoreRefused(Denied):
    """The store does not allow this: check keys, permissions and the URL."""

    default_code = "store_refused"


class ObjectInfo(msgspec.Struct, frozen=True):
    """An object's key, size and time, without its content."""

    key: str
    bytes: int
    modified_ms: int


@runtime_checkable
class ObjectStore(Protocol):
    """Objects by key under one prefix; keys are relative to it, with ``/`` between their parts."""

    @property
    def url(self) -> str:
        """Return the address, without any secret: ``open_store`` of it gives the same store."""
        ...

    async def put_new(self, key: str, data: Bytes) -> None:
        """Create the object whole and durably, only if the key is free."""
        ...

    async def put(self, key: str, data: Bytes) -> None:
        """Write the object whole and durably, over any object at the key."""
        ...

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        """Return the object's bytes, or a part. Raises Invalid for more than ``limit_bytes``, before reading."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object."""
        ...

    def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix`` and is above ``start_after``, ascending by key."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy the object whole and durably to another key, over any object there; it may be repeated.

        Its bytes stay where they are. It also copies an object that was not written through this store.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects; a missing one is no error."""
        ...

    async def now_ms(self) -> int:
        """Return the time by the store's own clock, in milliseconds."""
        ...


def open_store(
    url: str,
    *,
    request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    request_bytes_per_s_min: int = REQUEST_BYTES_PER_S_MIN,
) -> ObjectStore:
    """Return the store that a URL names; it connects with its first call.

    A request over a network is given up after ``request_timeout_ms``, and one that moves bytes after the time that
    these take at ``request_bytes_per_s_min`` more. Raises Invalid for a URL it does not know.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.username or parts.password:
        raise Invalid("a store's URL carries no secret: set the provider's usual environment variables")
    match parts.scheme:
        case "file":
            from tenure.objects.file_store import FileStore

            if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/") or options:
                raise Invalid("a file store's URL is file:///an/absolute/path", url=url)
            return FileStore(Path(unquote(parts.path)))
        case "s3" | "gs" | "az" | "memory":
            from tenure.objects.cloud_store import CloudStore

            limits = RequestLimits(request_timeout_ms, request_bytes_per_s_min)
            return CloudStore(parts.scheme, parts.netloc, unquote(parts.path).strip("/"), options, limits)
        case _:
            raise Invalid(f"no store for {url!r}: use file://, s3://, gs://, az:// or memory://", url=url)
