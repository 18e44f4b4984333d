"""Retries of store calls: bounded, with full jitter, and only for calls that may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from tenure.backoff import backoff_ms
from tenure.errors import Conflict, Invalid
from tenure.objects.metered import Metered
from tenure.objects.store import Bytes, ObjectExists, ObjectInfo, ObjectMissing, OutcomeUnknown, StoreFull

__all__ = ["RetrySettings", "RetryingStore"]

T = TypeVar("T")


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
    """A store whose reads, deletes and creates are repeated while their outcome is unknown, or there is no room."""

    def __init__(self, store: Metered, settings: RetrySettings) -> None:
        self.store = store
        self._settings = settings

    async def pause(self, attempt: int, longest_ms: int) -> None:
        """Wait before a repeat; ``attempt`` counts from 0."""
        await asyncio.sleep(backoff_ms(attempt + 1, min_ms=self._settings.backoff_ms, max_ms=longest_ms) / 1000)

    async def repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that may be repeated, and return its answer.

        Raises, once the attempts are used up, StoreFull where none of them found room, else OutcomeUnknown.
        """
        failures: list[OutcomeUnknown | StoreFull] = []
        for attempt in range(self._settings.call_attempts_max):
            if failures:
                self.store.metrics.retries += 1
                await self.pause(attempt - 1, self._settings.backoff_ms_max)
            try:
                return await call()
            except (OutcomeUnknown, StoreFull) as error:
                failures.append(error)
        raise next((error for error in reversed(failures) if isinstance(error, OutcomeUnknown)), failures[-1])

    async def get(self, key: str, limit_bytes: int) -> bytes:
        return await self.repeat(lambda: self.store.get(key, limit_bytes=limit_bytes))

    async def find(self, key: str, limit_bytes: int) -> bytes | None:
        """Return the object's bytes, or None where there is none."""
        try:
            return await self.get(key, limit_bytes)
        except ObjectMissing:
            return None

    async def exists(self, key: str) -> bool:
        try:
            await self.repeat(lambda: self.store.head(key))
        except ObjectMissing:
            return False
        return True

    async def list_objects(self, prefix: str, start_after: str | None = None) -> AsyncGenerator[ObjectInfo]:
        """List, and continue after the last key after a failure."""
        attempt = 0
        while True:
            try:
                async for info in self.store.list(prefix, start_after):
                    yield info
                    start_after, attempt = info.key, 0
                return
            except OutcomeUnknown:
                attempt += 1
                if attempt >= self._settings.call_attempts_max:
                    raise
                self.store.metrics.retries += 1
                await self.pause(attempt, self._settings.backoff_ms_max)

    async def copy(self, source: str, target: str) -> None:
        await self.repeat(lambda: self.store.copy(source, target))

    async def delete(self, keys: Sequence[str]) -> None:
        await self.repeat(lambda: self.store.delete(keys))

    async def create(self, key: str, data: Bytes) -> bool:
        """Create the object; return True if the one at ``key`` is now this one, byte for byte, False if another's.

        "Exists" does not mean stored: it may be the reply to our own request, sent twice, or to one that met another
        create under way (S3's 409) and stored nothing. So the key is read. Where nothing is there the outcome is
        unknown, and the same bytes are created at the same key again until it is taken, by either copy of ours or by
        another writer. Raises OutcomeUnknown or StoreFull once the attempts are used up.
        """
        for attempt in range(self._settings.call_attempts_max):
            try:
                await self.repeat(lambda: self.store.put_new(key, data))
            except ObjectExists:
                if (mine := await self._holds(key, data)) is not None:
                    return mine
                self.store.metrics.retries += 1
                await self.pause(attempt, self._settings.backoff_ms_max)
            except StoreFull as error:
                if attempt == 0:
                    raise
                raise OutcomeUnknown(f"{key} may be stored, by an earlier attempt: {error}", key=key) from error
            else:
                return True
        raise OutcomeUnknown(f"{key} is taken, but not there: repeat this once the store has settled", key=key)

    async def create_own(self, key: str, data: Bytes) -> None:
        """Create an object whose key only this writer uses, or whose bytes are the same for every writer.

        Raises Conflict (``key_taken``) where the key holds other bytes, and as ``create``.
        """
        if not await self.create(key, data):
            raise Conflict(f"{key} holds other bytes than were to be written there", code="key_taken", key=key)

    async def _holds(self, key: str, data: Bytes) -> bool | None:
        """Return whether the object has these bytes; None where there is none."""
        try:
            return await self.get(key, len(data)) == data
        except ObjectMissing:
            return None
        except Invalid as error:
            if error.code != "object_too_large":
                raise
            return False
