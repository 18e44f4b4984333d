"""The commit log of a file table: its files, and how far each buffer is in it.

The layout is that of Spark's streaming file sink: ``_spark_metadata/<n>``, and every tenth is ``<n>.compact`` with
everything so far, so that a reader needs one compact file and at most nine after it. A commit is the creation of the
next number, only if it is absent. A writer that loses a number reads the log again and checks whether its range is
there.

Old numbers are deleted, as each compact file is as long as the table: without that a log grows with the square of the
commits. So a driver that slept may create a number that was used before. It lists the log after each commit: a compact
file beyond its own number means that it has to check whether its commit is part of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence

import msgspec

from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.errors import Corrupt, Invalid, Overloaded
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectInfo, ObjectMissing, ObjectStore
from tenure.spark.sinks.files.lines import Line, Mark, decode, encode, mark_line
from tenure.spark.sinks.files.schema import TableSchema

__all__ = ["LOG", "FileLog", "LogState"]

LOG = "_spark_metadata/"
INTERVAL = 10
"""Spark's own; its readers derive it from the names, or take this where there are none."""
LOG_BYTES_MAX = 512 << 20
"""The largest log file that is read: about 300 bytes for each file of the table."""
KEEP_MS = 600_000
"""How long a number stays that a later compact file covers: a reader may still be behind it."""
ATTEMPTS_MAX = 100
"""Other writers' commits that one commit or one read may meet."""
LISTINGS_MAX = 5
"""A listing that runs beside a commit may show a number and not the one before it; several do not."""

_NAME = re.compile(r"(0|[1-9][0-9]{0,17})(\.compact)?")


class LogState(msgspec.Struct):
    """The log's state: its last number (-1 if empty), the files, the last mark of each buffer and sink, the schema.

    There is no schema in the log of a table that an older version wrote.
    """

    last: int = -1
    files: list[Line] = []
    marks: dict[tuple[str, str], Mark] = {}
    schema: TableSchema | None = None

    def last_committed(self, buffer: str, sink: str) -> int | None:
        mark = self.marks.get((buffer, sink))
        return None if mark is None else mark.high

    def add(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self.schema = line.schema or self.schema
            if line.tenure is not None:
                self.marks[line.tenure.buffer, line.tenure.sink] = line.tenure
            elif not line.isDir:
                self.files.append(line)


class FileLog:
    """The log below a table's directory. ``table`` is the directory's URL as Spark spells it."""

    def __init__(self, store: ObjectStore, table: str, *, settings: BufferSettings | None = None) -> None:
        self._settings = settings or BufferSettings()
        self.retrying = RetryingStore(Metered(store, BufferMetrics()), self._settings)
        self._table = table

    async def read(self) -> LogState:
        """Return the present state. Raises Corrupt where numbers are missing, Invalid for another program's log."""
        for attempt in range(ATTEMPTS_MAX):
            numbers = await self._numbers()
            wanted = _needed_numbers(numbers)
            gap = next((number for number in wanted if number not in numbers), None)
            if gap is not None and attempt >= LISTINGS_MAX:
                raise Corrupt(f"the table's log has no number {gap}, but later ones", code="table_log_gap")
            try:
                if gap is None:
                    return await self._state(wanted)
            except ObjectMissing:  # it was covered, and deleted, since it was listed
                pass
            await self.retrying.pause(attempt, self._settings.conflict_ms_max)
        raise Overloaded("the table's log changes faster than it can be read", code="table_busy")

    async def append(
        self, state: LogState, mark: Mark, files: Sequence[Line], *, schema: TableSchema | None = None
    ) -> bool:
        """Commit after exactly this state; return False where another was faster, or may have been: read, then decide.

        ``schema`` is the table's from now on; without it, it stays. Raises Indeterminate where the outcome is unknown.
        """
        number = state.last + 1
        if _is_compact(number):
            return await self._create(number, self._restate(state, mark, [*state.files, *files], schema=schema))
        changed = None if schema == state.schema else schema
        return await self._create(number, encode([mark_line(self._table, mark, changed), *files]))

    async def replace(self, state: LogState, mark: Mark, *, dropped: Collection[str], files: Sequence[Line]) -> bool:
        """Append, and leave out the files at the paths ``dropped``.

        Return False as ``append`` does, and where the next number adds to those before it and leaves nothing out: it is
        then taken by a commit that adds nothing. There is a mark in the log already.
        """
        number = state.last + 1
        if not _is_compact(number):
            await self._create(number, encode([mark_line(self._table, next(iter(state.marks.values())))]))
            return False
        kept = [line for line in state.files if line.path not in dropped]
        return await self._create(number, self._restate(state, mark, [*kept, *files]))

    def _restate(
        self, state: LogState, mark: Mark, files: Sequence[Line], *, schema: TableSchema | None = None
    ) -> bytes:
        """Return everything in the log, with one mark more, which has the schema."""
        others = [one for place, one in state.marks.items() if place != (mark.buffer, mark.sink)]
        own = mark_line(self._table, mark, schema or state.schema)
        return encode([*(mark_line(self._table, one) for one in others), own, *files])

    async def _create(self, number: int, data: bytes) -> bool:
        """Commit a number, and delete those that are covered."""
        if len(data) > LOG_BYTES_MAX:
            raise Invalid(
                f"the table's log would have {len(data):,} bytes, the limit is {LOG_BYTES_MAX:,}: write larger ranges "
                "and fewer files, or begin another table",
                code="table_log_too_large",
            )
        if not await self.retrying.create(_key(number), data):
            return False
        numbers = await self._numbers()
        await self._forget(numbers)
        return not any(other > number and _is_compact(other) for other in numbers)

    async def _numbers(self) -> dict[int, ObjectInfo]:
        """Return the log's numbers, ascending."""
        found = dict[int, ObjectInfo]()
        async for info in self.retrying.list_objects(LOG):
            match = _NAME.fullmatch(info.key.removeprefix(LOG))
            if match is None:  # checksums and half-written files of Hadoop's
                continue
            number = int(match[1])
            if bool(match[2]) != _is_compact(number):
                raise Invalid(
                    f"{info.key} is not of a file table's log: another program writes to this directory, or did",
                    code="table_foreign",
                )
            found[number] = info
        return dict(sorted(found.items()))

    async def _state(self, wanted: range) -> LogState:
        reads = [self.retrying.get(_key(number), LOG_BYTES_MAX) for number in wanted]
        state = LogState(wanted.stop - 1)
        for number, data in zip(wanted, await asyncio.gather(*reads), strict=True):
            state.add(decode(_key(number), data))
        return state

    async def _forget(self, numbers: dict[int, ObjectInfo]) -> None:
        """Delete what two compact files cover, once no reader can be behind it by the store's own clock."""
        compacts = [number for number in numbers if _is_compact(number)]
        if len(compacts) < 2:
            return
        before_ms = max(info.modified_ms for info in numbers.values()) - KEEP_MS
        old = [info.key for number, info in numbers.items() if number < compacts[-2] and info.modified_ms < before_ms]
        if old:
            await self.retrying.delete(old)


def _needed_numbers(numbers: Collection[int]) -> range:
    """Return the numbers that together hold everything: the last compact file and those after it."""
    last = max(numbers, default=-1)
    return range(max(0, (last + 1) // INTERVAL * INTERVAL - 1), last + 1)


def _is_compact(number: int) -> bool:
    return number % INTERVAL == INTERVAL - 1


def _key(number: int) -> str:
    return f"{LOG}{number}.compact" if _is_compact(number) else f"{LOG}{number}"
