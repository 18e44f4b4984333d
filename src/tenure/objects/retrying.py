"""Retries of store calls: bounded by a number or by time, with full jitter, and only for calls that may be repeated.

A create has three outcomes. It is mine if the store accepted it, or if the key is taken and the bytes read there are
equal. It is another's if the key is taken and other bytes were read there. All else is unknown: a timeout, "exists"
without an object to read (S3's 409), a refusal after an attempt that may have arrived. An unknown create is repeated
with the same bytes at the same key, until the key is taken by either copy of ours or by another writer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

from tenure.backoff import backoff_ms
from tenure.errors import Conflict, Invalid, TenureError
from tenure.objects.metered import Metered
from tenure.objects.patience import Patience
from tenure.objects.request_limits import REQUEST_BYTES_PER_S_MIN, RequestLimits
from tenure.objects.retry_time import RetryTime
from tenure.objects.store import (
    Bytes,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    StoreFull,
    StoreRefused,
)

__all__ = ["Created", "RetrySettings", "RetryingStore"]

T = TypeVar("T")
_QUICK_REPEATS: Final = 3
"""Repeats of one create that follow each other by the back-off alone."""
_HEDGES_MAX: Final = 3
"""Requests of one read that are under way at once."""
_READ_BYTES_PER_S: Final = 512 * 1024
"""A read of an object of known size that comes slower than this is taken for one that hangs, at first."""
_SMALL_BYTES: Final = 64 * 1024
"""What moves more than this says how long its bytes take, and not how soon the store answers."""


class _TooSlow(OutcomeUnknown):
    """An attempt took longer than it was given."""


async def _started(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


class Created(NamedTuple):
    """The known outcome of a create: the object at the key is mine, or another writer's, which was read."""

    is_mine: bool
    theirs: bytes | None = None
    """The other writer's bytes; None if it is mine, or if theirs are more than the caller's limit."""


class RetrySettings(Protocol):
    """How often and how soon a call is repeated."""

    @property
    def call_attempts_max(self) -> int:
        """Return the attempts of one call whose outcome is unknown, before it counts as failed."""

    @property
    def backoff_ms(self) -> int:
        """Return the first wait after a failure; it doubles, with full jitter."""

    @property
    def backoff_ms_max(self) -> int:
        """Return the longest wait between attempts."""


class RetryingStore:
    """A store whose reads, deletes and creates are repeated while their outcome is unknown, or there is no room.

    An unknown outcome is repeated until the attempts are used up, or ``within`` a time until that is over. A full store
    is always bounded by the attempts: room comes back only if somebody makes it. With ``patience``, a read that is not
    answered for so long is sent again beside the first, and a create is given up and sent again.
    """

    def __init__(
        self,
        store: Metered,
        settings: RetrySettings,
        *,
        time: RetryTime | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.store = store
        self._settings = settings
        self._time = time
        self._patience = patience

    def over(self, store: ObjectStore) -> RetryingStore:
        """Return the same retries over another store, whose requests are counted with those of this one."""
        return RetryingStore(Metered(store, self.store.metrics), self._settings)

    def within(self, time: RetryTime) -> RetryingStore:
        """Return the same store, whose calls are repeated until this time is over."""
        return RetryingStore(self.store, self._settings, time=time, patience=self._patience)

    async def pause(self, attempt: int, longest_ms: int) -> None:
        """Wait before a repeat; ``attempt`` counts from 0."""
        wait_s = backoff_ms(attempt + 1, min_ms=self._settings.backoff_ms, max_ms=longest_ms) / 1000
        await asyncio.sleep(wait_s)
        if self._time is not None:
            self._time.waited(wait_s)

    async def repeat(self, call: Callable[[], Awaitable[T]], *, sends_bytes: int | None = None) -> T:
        """Make a call that may be repeated, and return its answer.

        One that ``sends_bytes`` and is answered shortly is given up with patience. Raises, once the attempts are used
        up, StoreFull where none of them found room, else OutcomeUnknown.
        """
        doubt: OutcomeUnknown | None = None
        attempt = 0
        while True:
            try:
                async with self._given_up(attempt, sends_bytes):
                    return await self._attempt(call)
            except (OutcomeUnknown, StoreFull) as error:
                doubt = error if isinstance(error, OutcomeUnknown) else doubt
                if not await self._wait_to_repeat(attempt, error):
                    raise doubt or error from None
            attempt += 1

    @asynccontextmanager
    async def _given_up(self, attempt: int, sends_bytes: int | None) -> AsyncIterator[None]:
        """Raise OutcomeUnknown where an attempt, counted from 0, takes longer than patience has for it."""
        if self._patience is None or sends_bytes is None:
            yield
            return
        limits = RequestLimits(int(self._patience.wait_s * 1000) << attempt, REQUEST_BYTES_PER_S_MIN)
        try:
            async with asyncio.timeout(limits.seconds(sends_bytes << attempt)):
                yield
        except TimeoutError:
            raise OutcomeUnknown("the store does not answer") from None

    async def _attempt(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call once, and note whether the store answered."""
        if self._time is None:
            return await call()
        began_s = asyncio.get_running_loop().time()
        try:
            answer = await call()
        except OutcomeUnknown:
            self._time.failed(asyncio.get_running_loop().time() - began_s)
            raise
        except TenureError:
            self._time.answered()
            raise
        self._time.answered()
        return answer

    async def _wait_to_repeat(self, attempt: int, error: TenureError) -> bool:
        """Wait after a failed attempt, counted from 0; return whether to make another."""
        if self._time is None or not isinstance(error, OutcomeUnknown):
            is_last = attempt + 1 >= self._settings.call_attempts_max
        else:
            is_last = self._time.is_over
        if not is_last:
            self.store.metrics.retries += 1
            await self.pause(attempt, self._settings.backoff_ms_max)
        return not is_last

    async def get(self, key: str, limit_bytes: int) -> bytes:
        """Return the object's bytes; with patience, where it cannot be large."""
        get = self.store.get
        if limit_bytes <= _SMALL_BYTES:
            return await self.repeat(lambda: self._hedged(lambda: get(key, limit_bytes=limit_bytes)))
        return await self.repeat(lambda: get(key, limit_bytes=limit_bytes))

    async def find_soon(self, key: str, limit_bytes: int, *, size_bytes: int = 0) -> bytes | None:
        """Return the bytes of an object of about this size, or None where there is none, with patience."""
        get = self.store.get
        try:
            return await self.repeat(lambda: self._hedged(lambda: get(key, limit_bytes=limit_bytes), size_bytes))
        except ObjectMissing:
            return None

    async def find(self, key: str, limit_bytes: int) -> bytes | None:
        """Return the object's bytes, or None where there is none."""
        try:
            return await self.get(key, limit_bytes)
        except ObjectMissing:
            return None

    async def head(self, key: str) -> ObjectInfo:
        return await self.repeat(lambda: self._hedged(lambda: self.store.head(key)))

    async def _hedged(self, call: Callable[[], Awaitable[T]], size_bytes: int = 0) -> T:
        """Make a call that reads, and return the first answer: another one is made whenever none comes for a while.

        Each wait is twice as long as the one before, and a few calls at most are under way: the oldest is given up.
        Raises OutcomeUnknown where no answer comes in the time of one request.
        """
        patience = self._patience
        if patience is None:
            return await call()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RequestLimits().seconds(size_bytes)
        wait_s = patience.wait_s + size_bytes / _READ_BYTES_PER_S
        under_way: deque[tuple[asyncio.Task[T], float]] = deque()
        try:
            while loop.time() < until_s:
                under_way.append((asyncio.ensure_future(_started(call)), loop.time()))
                await asyncio.wait([task for task, _ in under_way], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for task, began_s in under_way:
                    if task.done():
                        if not size_bytes:
                            patience.answered(loop.time() - began_s)
                        return task.result()
                self.store.metrics.retries += 1
                wait_s *= 2
                if len(under_way) == _HEDGES_MAX:
                    under_way.popleft()[0].cancel()
            raise OutcomeUnknown("the store does not answer")
        finally:
            for task, _ in under_way:
                task.cancel()

    async def exists(self, key: str) -> bool:
        try:
            await self.head(key)
        except ObjectMissing:
            return False
        return True

    async def age_ms(self, key: str) -> int:
        """Return how long ago the object was stored, by the store's own clock. Raises ObjectMissing."""
        stored = await self.head(key)
        return await self.repeat(self.store.now_ms, sends_bytes=0) - stored.modified_ms

    async def list_objects(self, prefix: str, start_after: str | None = None) -> AsyncGenerator[ObjectInfo]:
        """List, and continue after the last key after a failure."""
        attempt = 0
        while True:
            try:
                async for info in self._within_patience(self.store.list(prefix, start_after), attempt):
                    yield info
                    start_after, attempt = info.key, 0
                return
            except OutcomeUnknown as error:
                if not await self._wait_to_repeat(attempt, error):
                    raise
                attempt += 1

    async def _within_patience(self, found: AsyncIterator[T], attempt: int) -> AsyncIterator[T]:
        """Yield what is found; raises OutcomeUnknown where the next of it is waited for too long."""
        limit_s = None if self._patience is None else self._patience.wait_s * (1 << attempt)
        try:
            while True:
                async with asyncio.timeout(limit_s):
                    each = await anext(found)
                yield each
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise OutcomeUnknown(f"no answer within {limit_s:.1f} s") from None

    async def copy(self, source: str, target: str) -> None:
        await self.repeat(lambda: self.store.copy(source, target))

    async def put(self, key: str, data: Bytes) -> None:
        """Write an object over any other at its key, where the last writer may win."""
        await self.repeat(lambda: self.store.put(key, data), sends_bytes=len(data))

    async def delete(self, keys: Sequence[str]) -> None:
        await self.repeat(lambda: self.store.delete(keys))

    async def create(self, key: str, data: Bytes) -> bool:
        """Create the object; return whether the one at ``key`` is now this one, byte for byte, or another writer's.

        Raises as ``create_or_read``.
        """
        return (await self.create_or_read(key, data, limit_bytes=len(data))).is_mine

    async def create_own(self, key: str, data: Bytes) -> None:
        """Create an object whose key only this writer uses, or whose bytes are the same for every writer.

        Raises Conflict (``key_taken``) where the key holds other bytes, and as ``create_or_read``.
        """
        if not await self.create(key, data):
            raise Conflict(f"{key} holds other bytes than were to be written there", code="key_taken", key=key)

    async def create_or_read(self, key: str, data: Bytes, *, limit_bytes: int) -> Created:
        """Create the object, or return what another writer created at its key, up to ``limit_bytes``.

        The same bytes are created at the same key again while the outcome is unknown, as often as ``repeat`` does.
        Raises StoreFull and StoreRefused if no attempt can have been carried out, else OutcomeUnknown.
        """
        doubt: OutcomeUnknown | None = None
        attempt = 0
        while True:
            try:
                async with self._given_up(attempt, len(data)):
                    return await self._create_once(key, data, limit_bytes)
            except (OutcomeUnknown, StoreFull) as error:
                doubt = error if isinstance(error, OutcomeUnknown) else doubt
                if await self._wait_to_repeat(attempt, error):
                    attempt += 1
                elif doubt is None:
                    raise
                else:
                    message = f"{key} may be stored: {doubt}: repeat this once the store has settled"
                    raise OutcomeUnknown(message, key=key) from doubt
            except StoreRefused as error:
                if doubt is None:
                    raise
                raise OutcomeUnknown(f"{key} may be stored, by an earlier attempt: {error}", key=key) from error

    async def create_until_known(
        self,
        key: str,
        data: Bytes,
        *,
        limit_bytes: int,
        is_over: Callable[[], bool],
        attempt_ms_max: int = 10_000,
        apart_ms: int = 1_000,
        bytes_per_s_min: int = REQUEST_BYTES_PER_S_MIN,
    ) -> Created:
        """Create the object as ``create_or_read`` does, but repeat it for as long as ``is_over`` returns False.

        An outage, a full store and refused keys are repeated alike: they end. An attempt is given up and repeated
        after ``attempt_ms_max``, or this store's patience, and the time that its bytes take at ``bytes_per_s_min``; one
        that was given up leaves both twice as long, or a slower network would never carry it. After the first few
        attempts the repeats are at least ``apart_ms`` apart, as stores limit the writes to one key (GCS to one per
        second). Raises OutcomeUnknown once ``is_over`` returns True after a failure, and at once where this store
        object has failed for good (``store_failed``).
        """
        attempt = 0
        first_ms = attempt_ms_max if self._patience is None else int(self._patience.wait_s * 1000)
        limits = RequestLimits(min(attempt_ms_max, first_ms), bytes_per_s_min)
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                created = await self._create_within(limits.seconds(len(data)), key, data, limit_bytes)
                if self._patience is not None and len(data) <= _SMALL_BYTES:
                    self._patience.answered(asyncio.get_running_loop().time() - began_s)
                return created
            except _TooSlow as error:
                limits = limits.for_half_the_rate()
                limits = limits._replace(timeout_ms=min(attempt_ms_max, 2 * limits.timeout_ms))
                if is_over():
                    raise OutcomeUnknown(f"{key} may be stored: {error}", key=key) from error
            except (OutcomeUnknown, StoreFull, StoreRefused) as error:
                if is_over() or error.code == "store_failed":
                    raise OutcomeUnknown(f"{key} may be stored: {error}", key=key) from error
            self.store.metrics.retries += 1
            await self.pause(attempt, self._settings.backoff_ms_max)
            if (attempt := attempt + 1) > _QUICK_REPEATS:
                await asyncio.sleep(apart_ms / 1000)

    async def _create_within(self, limit_s: float, key: str, data: Bytes, limit_bytes: int) -> Created:
        try:
            async with asyncio.timeout(limit_s):
                return await self._create_once(key, data, limit_bytes)
        except TimeoutError:
            raise _TooSlow(f"no answer within {limit_s:.0f} s", key=key) from None

    async def _create_once(self, key: str, data: Bytes, limit_bytes: int) -> Created:
        """Send the create, and read the key if it is taken.

        "Exists" does not mean stored: it may be the reply to our own request, sent twice, or to one that met another
        create under way (S3's 409) and stored nothing. Only bytes that were read say whose object it is. Raises
        OutcomeUnknown where the key is taken but cannot be read, or nothing is there.
        """
        try:
            await self._attempt(lambda: self.store.put_new(key, data))
        except ObjectExists:
            pass
        else:
            return Created(True)
        try:
            found = await self.get(key, max(limit_bytes, len(data)))
        except ObjectMissing:
            raise OutcomeUnknown(f"{key} is taken, but not there", key=key) from None
        except StoreRefused as error:
            raise OutcomeUnknown(f"{key} is taken, and may not be read: {error}", key=key) from error
        except Invalid as error:
            if error.code != "object_too_large":
                raise
            return Created(False)
        return Created(True) if found == data else Created(False, found)
