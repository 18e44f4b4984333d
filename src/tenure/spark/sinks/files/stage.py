"""Staging of a file table's commits: an attempt's files before the log names them, and their removal.

Spark writes to ``_staging/<slot>/<attempt>/``; the driver gives each file its final name beside the others, which
contains the attempt's, and only then may the log name it. An attempt whose range the log holds can never be committed
any more. That, and not an age, decides what may be removed: also while a driver that was given up still writes. Its
commit will find the range held.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import shutil
from collections.abc import Sequence

from tenure.buffer.ingest.sink import Commit
from tenure.objects.retrying import RetryingStore
from tenure.spark.sinks.files.footer import read_footer
from tenure.spark.sinks.files.lines import Line, file_line
from tenure.spark.sinks.files.log import LogState
from tenure.spark.sinks.files.replaced import list_replaced
from tenure.spark.sinks.places import Place

__all__ = ["Stage"]

_STAGING = "_staging/"
_COPIES_MAX = 16
_ATTEMPT = re.compile(r"[0-9]+-([0-9]+)-[0-9a-f]{16}")


class Stage:
    """The attempts at one sink's commits of one buffer."""

    def __init__(self, place: Place, retrying: RetryingStore, commit: Commit) -> None:
        self._place, self._retrying, self._commit = place, retrying, commit
        slot = hashlib.sha256(f"{commit.buffer}/{commit.sink}".encode()).hexdigest()[:16]
        self._slot = f"{_STAGING}{slot}/"
        self.attempt = f"{commit.low}-{commit.high}-{secrets.token_hex(8)}"
        self.key = self._slot + self.attempt

    @property
    def spark_path(self) -> str:
        """Return where Spark writes this attempt."""
        return self._place.spark_path(self.key)

    async def publish(self) -> list[Line]:
        """Give every file its final name, durably; return the lines that add them to the log."""
        gate = asyncio.Semaphore(_COPIES_MAX)

        async def one(staged: str, size_bytes: int, modified_ms: int) -> Line:
            target = self._target(self.attempt, staged)
            async with gate:
                await self._retrying.copy(staged, target)
            return file_line(self._place.spark_url_of(target), size_bytes=size_bytes, modified_ms=modified_ms)

        prefix = f"{self.key}/"
        found = [info async for info in self._retrying.list_objects(prefix) if _is_data(info.key.removeprefix(prefix))]
        return list(await asyncio.gather(*(one(info.key, info.bytes, info.modified_ms) for info in found)))

    async def count_rows(self, lines: Sequence[Line]) -> int:
        """Return the rows of published files, by their footers. Raises Corrupt (``table_file_damaged``)."""
        gate = asyncio.Semaphore(_COPIES_MAX)

        async def one(line: Line) -> int:
            async with gate:
                footer = await read_footer(self._retrying, self._place.key_of(line.path), line.size)
                return int(footer.num_rows)

        return sum(await asyncio.gather(*map(one, lines)))

    async def clean(self, state: LogState) -> None:
        """Remove every attempt that is part of the log or can no longer be, this one among them.

        A file that the log named until a compaction replaced it is left for the compaction to remove, in its time.
        """
        last = state.last_committed(self._commit.buffer, self._commit.sink)
        attempts = dict[str, list[str]]()
        async for info in self._retrying.list_objects(self._slot):
            attempts.setdefault(info.key.removeprefix(self._slot).partition("/")[0], []).append(info.key)
        named = {self._place.key_of(line.path) for line in state.files} if attempts else set()
        replaced: set[str] | None = None
        for attempt, staged in attempts.items():
            match = _ATTEMPT.fullmatch(attempt)
            if match is None or last is None or int(match[1]) > last:
                continue
            targets = {self._target(attempt, key) for key in staged if _is_data(key.removeprefix(self._slot))}
            if (unnamed := targets - named) and replaced is None:
                replaced = {key async for one in list_replaced(self._retrying) for key in one.keys}
            await self._remove(attempt, [*sorted(unnamed - (replaced or set())), *staged])

    async def discard(self) -> None:
        """Remove this attempt, which no commit has named and none will."""
        staged = [info.key async for info in self._retrying.list_objects(f"{self.key}/")]
        prefix = f"{self.key}/"
        published = [self._target(self.attempt, key) for key in staged if _is_data(key.removeprefix(prefix))]
        await self._remove(self.attempt, [*published, *staged])

    async def _remove(self, attempt: str, keys: list[str]) -> None:
        await self._retrying.delete(keys)
        if self._place.local is not None:  # a directory of a file system stays when its files go
            await asyncio.to_thread(shutil.rmtree, self._place.local / self._slot / attempt, True)

    def _target(self, attempt: str, staged: str) -> str:
        """Return the final key of a staged file: always the same, so that it can be found again without a record."""
        folder, _, name = staged.removeprefix(f"{self._slot}{attempt}/").rpartition("/")
        return f"{folder}/{attempt}-{name}" if folder else f"{attempt}-{name}"


def _is_data(path: str) -> bool:
    """Return whether Spark's readers would take it; not its marks, checksums and files of uncommitted tasks.

    A name that begins with ``_`` is hidden unless it is the directory of a partition, ``_day=2026-11-15``.
    """
    return not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))
