"""S3, Google, Azure and memory stores through obstore, with workarounds for forks, retries and multipart.

The client is made with the first call of each process, never before. obstore's threads do not survive a fork, and its
calls hang in the child of a process that made one: such a child gets an error at once. The client does not retry, as a
retried create would report its own first copy as another writer's. Uploads are one request each, so that no half of a
multipart is ever visible. The client's own time limit is one for all requests; here each gets one by its bytes, and a
request that is cut off is cancelled, which closes its connection. A pickled store is its URL and its limits: keys come
from the environment of the process that loads it.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from tenure.errors import Closed, Invalid
from tenure.objects.request_limits import RequestLimits
from tenure.objects.store import Bytes, ObjectExists, ObjectInfo, ObjectMissing, OutcomeUnknown, StoreRefused

__all__ = ["CloudStore", "finish_at_exit", "wait_for_foreign_threads"]

T = TypeVar("T")
_NO_LIMIT: Final = "86400s"
"""The client's own limit of a request, which those of `RequestLimits` come before."""
_WAIT_S_MAX: Final = 5.0
_POLL_S: Final = 0.001


@cache
def finish_at_exit() -> None:
    """Make the interpreter wait at its exit, before it is torn down, for threads that are handing a result over."""
    atexit.register(wait_for_foreign_threads, _WAIT_S_MAX)


def wait_for_foreign_threads(seconds_max: float) -> bool:
    """Wait until no thread that Python did not start hands a result over; return whether that came within the limit.

    A thread shows up from when it asks for the interpreter's lock until it has given it back. Without a Python frame it
    is about to enter, or to leave.
    """
    until = time.monotonic() + seconds_max
    while _is_handing_over():
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)  # releases the interpreter's lock, which the thread waits for
    return True


def _is_handing_over() -> bool:
    known = {thread.ident for thread in threading.enumerate()}
    foreign, frames = sys._current_exceptions().keys() - known, sys._current_frames()
    return any(number not in frames or _is_of_asyncio(frames[number]) for number in foreign)


def _is_of_asyncio(frame: FrameType) -> bool:
    """Return whether the thread entered Python by a call of the event loop; other unknown threads do other things."""
    while frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("asyncio.")


# The options that a URL may have beside the bucket: nothing that is secret.
_OPTIONS = {
    "s3": {"endpoint", "region", "virtual_hosted_style_request", "skip_signature"},
    "gs": set[str](),
    "az": {"endpoint", "account_name"},
    "memory": set[str](),
}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_MEMORY: dict[str, MemoryStore] = {}
_unnamed = itertools.count(1)
_threads = {"started": False, "lost": False}
_PAGE = 1_000
_DELETE_PAGE = 1_000


def _note_lost_threads() -> None:
    """Note the loss: the child has obstore's runtime, if there was one, but none of its threads."""
    _threads["lost"] = _threads["started"]


os.register_at_fork(after_in_child=_note_lost_threads)


class CloudStore:
    """A store in one bucket, container or memory, below a prefix."""

    def __init__(
        self, scheme: str, bucket: str, prefix: str, options: dict[str, str], limits: RequestLimits | None = None
    ) -> None:
        if unknown := set(options) - _OPTIONS[scheme]:
            raise Invalid(f"a {scheme}:// store has no option {sorted(unknown)}; secrets belong in the environment")
        if scheme == "memory":
            bucket = bucket or f"unnamed-{next(_unnamed)}"
        elif not bucket:
            raise Invalid(f"{scheme}://bucket/prefix: the bucket is missing")
        self._scheme, self._bucket, self._prefix, self._options = scheme, bucket, prefix, options
        self._limits = RequestLimits() if limits is None else limits
        self._client: tuple[int, Any] | None = None

    @property
    def url(self) -> str:
        path = f"/{quote(self._prefix)}" if self._prefix else ""
        query = f"?{urlencode(self._options)}" if self._options else ""
        return f"{self._scheme}://{self._bucket}{path}{query}"

    def __reduce__(self) -> tuple[type[CloudStore], tuple[str, str, str, dict[str, str], RequestLimits]]:
        if self._scheme == "memory":
            raise Invalid("a memory store lives in one process: it cannot be pickled")
        return CloudStore, (self._scheme, self._bucket, self._prefix, self._options, self._limits)

    async def put_new(self, key: str, data: Bytes) -> None:
        await self._put(key, data, "create")

    async def put(self, key: str, data: Bytes) -> None:
        await self._put(key, data, "overwrite")

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        with _translated(key):
            if start or length is not None:
                wanted = limit_bytes + 1 if length is None else length
                _check(key, wanted if length is not None else 0, limit_bytes)
                reading = obstore.get_range_async(self._store(), self._key(key), start=start, length=wanted)
                part = await self._within(reading, wanted)
                _check(key, len(part), limit_bytes)
                return bytes(part)
            answer = await self._within(obstore.get_async(self._store(), self._key(key)))
            _check(key, answer.meta["size"], limit_bytes)
            return bytes(await self._within(answer.bytes_async(), answer.meta["size"]))

    async def head(self, key: str) -> ObjectInfo:
        with _translated(key):
            return self._info(await self._within(obstore.head_async(self._store(), self._key(key))))

    async def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        # obstore's prefix ends at a slash: what follows the last one is compared here.
        folder, _, rest = prefix.rpartition("/")
        offset = self._key(max(start_after or "", prefix[:-1] if rest else "")) if (start_after or rest) else None
        with _translated(prefix):
            pages = aiter(obstore.list(self._store(), self._key(folder), offset=offset, chunk_size=_PAGE))
            while (page := await self._within(anext(pages, None))) is not None:
                for meta in sorted(page, key=lambda meta: meta["path"]):
                    info = self._info(meta)
                    if info.key > prefix and not info.key.startswith(prefix):
                        return
                    if info.key.startswith(prefix) and info.key > (start_after or ""):
                        yield info

    async def copy(self, source: str, target: str) -> None:
        """Copy on the server, in one request: S3 allows it up to 5 GB."""
        with _translated(source):
            copying = obstore.copy_async(self._store(), self._key(source), self._key(target), overwrite=True)
            await self._within(copying)

    async def delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), _DELETE_PAGE):
            page = [self._key(key) for key in keys[first : first + _DELETE_PAGE]]
            if not await self._delete(*page):  # a store without bulk deletes stops at a key that is not there
                for key in page:
                    await self._delete(key)

    async def _delete(self, *keys: str) -> bool:
        """Delete in one call; return False where a key was not there, so that the rest of the keys may be left."""
        try:
            await self._within(obstore.delete_async(self._store(), keys))
        except (exceptions.NotFoundError, FileNotFoundError):
            return False
        except (exceptions.BaseError, OSError) as error:
            raise _translate(error, keys[0]) from None
        return True

    async def now_ms(self) -> int:
        """Return the time that the store stamps on an object written now."""
        key = f"probe/clock-{secrets.token_hex(8)}"
        await self.put(key, b"")
        try:
            return (await self.head(key)).modified_ms
        finally:
            await self.delete([key])

    async def _put(self, key: str, data: Bytes, mode: Any) -> None:
        try:
            putting = obstore.put_async(self._store(), self._key(key), data, mode=mode, use_multipart=False)
            await self._within(putting, len(data))
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            raise StoreRefused(f"{self._scheme}://{self._bucket} is not there: {_brief(error)}") from None
        except (exceptions.BaseError, OSError) as error:
            translated = _translate(error, key)
            if mode == "overwrite" and isinstance(translated, ObjectExists):  # S3's 409: another write is under way
                translated = OutcomeUnknown(f"another write of {key} is under way: {_brief(error)}")
            raise translated from None

    async def _within(self, request: Awaitable[T], size_bytes: int = 0) -> T:
        """Return the answer to a request that moves so many bytes. Raises TimeoutError, an OSError, without one."""
        limit_s = self._limits.seconds(size_bytes)
        try:
            async with asyncio.timeout(limit_s):
                return await request
        except TimeoutError:
            raise TimeoutError(f"no answer within {limit_s:.0f} s") from None

    def _store(self) -> Any:
        if _threads["lost"]:
            raise Closed(
                "the object store was used before this process was forked, and would hang: "
                "start workers with spawn or forkserver, or fork before the first call",
                code="forked",
            )
        _threads["started"] = True
        finish_at_exit()
        if self._client is None or self._client[0] != os.getpid():
            self._client = (os.getpid(), self._connect())
        return self._client[1]

    def _connect(self) -> Any:
        if self._scheme == "memory":
            return _MEMORY.setdefault(self._bucket, MemoryStore())
        named = [os.environ.get(name, "") for name in _ENDPOINTS] if self._scheme == "s3" else []
        plain = any(url.startswith("http://") for url in [self._options.get("endpoint", ""), *named])
        client: Any = {"timeout": _NO_LIMIT, "connect_timeout": "10s", "allow_http": plain}
        retry: Any = {"max_retries": 0}
        options: Any = dict(self._options)
        try:
            match self._scheme:
                case "s3":
                    return S3Store(self._bucket, config=options, client_options=client, retry_config=retry)
                case "gs":
                    return GCSStore(self._bucket, config=options, client_options=client, retry_config=retry)
                case _:
                    return AzureStore(self._bucket, config=options, client_options=client, retry_config=retry)
        except exceptions.BaseError as error:
            raise StoreRefused(f"cannot open {self.url}: {_brief(error)}") from None

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}".strip("/") if self._prefix else key

    def _info(self, meta: Any) -> ObjectInfo:
        key = meta["path"][len(self._prefix) + 1 :] if self._prefix else meta["path"]
        return ObjectInfo(key, meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _check(key: str, size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise Invalid(f"{key} has {size:,} bytes, the limit is {limit_bytes:,}", code="object_too_large")


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Raise the store's errors for the client's."""
    try:
        yield
    except (exceptions.BaseError, OSError) as error:
        raise _translate(error, key) from None


def _translate(error: Exception, key: str) -> Exception:
    """Return the store's error for one of obstore's; any that is not known to be harmless is OutcomeUnknown."""
    match error:
        case exceptions.AlreadyExistsError() | exceptions.PreconditionError() | FileExistsError():  # Azure: 409 or 412
            return ObjectExists(f"the object is there already: {key}")
        case exceptions.NotFoundError() | FileNotFoundError():
            return ObjectMissing(f"no such object: {key}")
        case exceptions.PermissionDeniedError() | exceptions.UnauthenticatedError() | PermissionError():
            return StoreRefused(f"the store does not allow it: {key}: {_brief(error)}")
        case exceptions.NotSupportedError() | exceptions.InvalidPathError() | NotImplementedError():
            return StoreRefused(f"the store cannot do it: {key}: {_brief(error)}")
        case _ if "NoSuchBucket" in str(error):
            return StoreRefused(f"there is no such bucket: {_brief(error)}")
        case _:
            return OutcomeUnknown(f"the store failed: {key}: {_brief(error)}")


def _brief(error: Exception) -> str:
    """Return the error's message without the dump of the client's internals that follows it."""
    return str(error).partition("\n\nDebug source")[0].strip()
