"""The place of a backup: a directory or a prefix in an object store, behind blocking calls that are retried.

Objects are created and never changed, whole and durably. In a directory of the same file system as the log, a file
that does not change any more is linked instead of copied.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

from tenure.backup.settings import BackupSettings
from tenure.errors import Invalid
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectInfo, ObjectStore, open_store

__all__ = ["Place", "open_place"]

T = TypeVar("T")
_KEYS_AT_ONCE: Final = 100
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOENT})
"""Errors of a link after which the file is copied: another file system, one without links, or a file dropped since."""


def open_place(where: str | Path, settings: BackupSettings | None = None) -> Place:
    """Return the place that a path or a URL names; nothing is made there yet. Raises Invalid for an unknown URL."""
    text = str(where)
    if not text or "\0" in text:
        raise Invalid("a backup needs a place: a directory, or a URL such as s3://bucket/prefix")
    url = text if "://" in text else Path(text).absolute().as_uri()
    store = open_store(url)
    directory = Path(unquote(urlsplit(url).path)) if url.startswith("file://") else None
    return Place(store, settings or BackupSettings(), directory=directory)


class Place:
    """Blocking calls on the store of a backup; close it in the end. Every method raises the errors of the store."""

    def __init__(self, store: ObjectStore, settings: BackupSettings, *, directory: Path | None = None) -> None:
        self.settings = settings
        self.directory = directory
        self._store = RetryingStore(Metered(store, StoreMetrics()), settings)
        self._runner = asyncio.Runner()

    @property
    def piece_bytes(self) -> int:
        """Return how many bytes of a file are one piece here."""
        return self.settings.piece_bytes if self.directory is None else self.settings.synced_bytes

    @property
    def name(self) -> str:
        """Return the directory, or the URL without any secret."""
        return self._store.store.url if self.directory is None else str(self.directory)

    def create(self, key: str, data: bytes) -> None:
        """Create an object that only this backup writes. Raises Conflict where the key holds other bytes."""
        self._run(self._store.create_own(key, data))

    def put(self, key: str, data: bytes) -> None:
        """Write an object over any that is there."""
        self._run(self._store.repeat(lambda: self._store.store.put(key, data)))

    def find(self, key: str) -> bytes | None:
        """Return a small object, or None where there is none."""
        return self._run(self._store.find(key, self.settings.manifest_bytes_max))

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return a part of an object, less where it ends before. Raises ObjectMissing."""

        def read() -> Coroutine[Any, Any, bytes]:
            return self._store.store.get(key, start=start, length=length, limit_bytes=length)

        return self._run(self._store.repeat(read))

    def list_keys(self) -> Iterator[str]:
        """Yield the keys of all objects, some at a time."""
        listed = self._store.list_objects("")
        while keys := self._run(_take_keys(listed)):
            yield from keys

    def delete(self, keys: list[str]) -> None:
        """Delete objects; a missing one is no error."""
        self._run(self._store.delete(keys))

    def link(self, source: Path, key: str) -> bool:
        """Link a file of the log to a key, durably; False where it has to be copied. The file must be synced."""
        if self.directory is None:
            return False
        target = self.directory / key
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _link(source, target):
            return False
        for folder in (target.parent, target.parent.parent, self.directory):
            _sync_directory(folder)
        return True

    def link_out(self, key: str, target: Path) -> bool:
        """Link a file of the backup to a path; False where it has to be copied."""
        return self.directory is not None and _link(self.directory / key, target)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def close(self) -> None:
        """End the loop that the calls run in."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


async def _take_keys(listed: AsyncIterator[ObjectInfo]) -> list[str]:
    """Return the next keys of a listing; none at its end."""
    keys: list[str] = []
    async for info in listed:
        keys.append(info.key)
        if len(keys) == _KEYS_AT_ONCE:
            break
    return keys


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise
    return True


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
