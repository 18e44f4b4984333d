"""The exporter: it follows a log, sends new rows to a buffer, and resumes after any crash without loss or repeat.

One call is under way at a time. The exporter records it before it makes it, and repeats a call whose outcome is unknown
with the very same rows: whichever of the two the buffer takes, it holds them once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tenure.chain.notes import load_notes
from tenure.chain.settings import ChainSettings
from tenure.errors import Conflict
from tenure.export.follower import Step
from tenure.export.home_intents import HomeIntents
from tenure.export.intents import Intent, Intents
from tenure.export.next_call import NextCall
from tenure.export.resume import Cursor, cursor_of, first_cursor, goes_through, keep, kept_position, resume
from tenure.export.rows import Place
from tenure.export.settings import ExportSettings
from tenure.log.disk import PosixDisk
from tenure.log.interface import Position
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import open_store

__all__ = ["Exporter", "Outlet", "Progress", "directory_of"]

log = logging.getLogger("tenure.export")

_STEPS_A_TURN = 64


class Outlet(Protocol):
    """The exporter's view of a buffer.

    ``ordinal`` is that of its last batch there, -1 for none; ``recalled`` is the metadata of that batch, where it is
    still there.
    """

    buffer: str
    ordinal: int
    recalled: bytes

    async def send(self, rows: list[bytes], metadata: bytes) -> None:
        """Commit the rows as one batch, the next ordinal, and return once it is durable."""
        ...


class Progress(msgspec.Struct):
    """The progress of an exporter since it was started.

    ``batch`` is the last batch of the log that is exported; a restart needs the log from ``kept_batch`` on.
    """

    batch: int = 0
    kept_batch: int = 0
    rows: int = 0
    gaps: int = 0
    calls: int = 0


class Chunk(NamedTuple):
    """The rows for one call, and the place after them; ``is_full`` where there are more to come."""

    rows: list[bytes]
    place: Place
    is_full: bool


def directory_of(data: Path) -> Path:
    """Return where an exporter keeps its files, beside the log that it follows; one directory for each buffer."""
    return data / "export"


class About(msgspec.Struct, frozen=True):
    """The metadata of each call, for people and for an exporter that has lost its directory."""

    first_batch: int
    last_batch: int
    rows: int
    position: Position
    ts: int
    position_rows: int = 0
    """Rows after the position that belong to the call too."""


class Exporter:
    """A follower of the log of one data directory into one buffer. It calls ``on_progress`` after every step.

    Raises Conflict where another exporter is at work on the directory.
    """

    def __init__(
        self,
        data: Path,
        outlet: Outlet,
        *,
        settings: ExportSettings,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._outlet = outlet
        self._on_progress = on_progress
        self._log = PosixDisk(data, create=False)
        self._lock = PosixDisk(directory_of(data))
        self._lock.lock()
        self._own = PosixDisk(directory_of(data) / outlet.buffer)
        self._intents = self._open_intents()
        kept = kept_position(self._own)
        self._cursor = self._find_cursor()
        self._follower, stored, rows = resume(self._log, self._own, self._cursor, ordinal=outlet.ordinal + 1)
        self._next_call = NextCall(rows, stored=stored, doubted=self._cursor.doubted, settings=settings)
        self._steps = self._poll()
        self._folded_bytes = 0
        self._is_kept = kept is not None
        kept_batch = kept.batch if kept is not None else 0
        self.progress = Progress(batch=self._cursor.stored.position.batch - 1, kept_batch=kept_batch)

    def _open_intents(self) -> Intents | HomeIntents:
        """Return the intents, which are where the log is: beside it, or in its home."""
        notes = load_notes(self._log)
        if notes is None:
            return Intents(self._own.root / "intents")
        store = RetryingStore(Metered(open_store(notes.home), StoreMetrics()), ChainSettings())
        return HomeIntents(store, self._outlet.buffer, ordinal=self._outlet.ordinal)

    def _find_cursor(self) -> Cursor:
        outlet = self._outlet
        found = cursor_of(self._intents.known, ordinal=outlet.ordinal)
        if found is not None:
            is_there = found.doubted is None or goes_through(self._log, found.doubted.position)
            return found if is_there else found._replace(doubted=None)
        if outlet.ordinal < 0 and not self._intents.known:
            return first_cursor(self._log)
        try:
            about = msgspec.json.decode(outlet.recalled, type=About)
        except msgspec.MsgspecError:
            raise Conflict(
                f"{self._own.root} and the buffer do not agree on which events of this log are in the buffer: put back "
                "what was there, or export to another buffer",
                code="export_unknown",
            ) from None
        return Cursor(Place(about.position, about.position_rows), ts=about.ts)

    async def run(self, stop: asyncio.Event) -> None:
        """Export until ``stop`` is set, then what is there still, and return."""
        self._on_progress(self.progress)
        while True:
            stopping = stop.is_set()
            is_full = await self._advance()
            if is_full:
                continue
            if stopping:
                break
            try:
                await asyncio.wait_for(stop.wait(), self._settings.flush_ms / 1000)
            except TimeoutError:
                continue
        self._keep()

    def close(self) -> None:
        """Release the directory."""
        self._steps.close()
        self._intents.close()
        self._lock.unlock()

    async def _advance(self) -> bool:
        """Send what is new; return True where there is more."""
        chunk = await self._gather()
        if chunk is None:
            return False
        if chunk.rows:
            await self._send(chunk)
        self.progress.batch = chunk.place.position.batch - 1
        self.progress.gaps = self._next_call.gaps_count
        is_due = self._folded_bytes >= self._settings.checkpoint_bytes or not self._is_kept
        if is_due and not chunk.place.rows:  # within a batch the fold is ahead of its position
            self._keep()
        self._on_progress(self.progress)
        return chunk.is_full

    async def _gather(self) -> Chunk | None:
        """Return the rows for one call: all that is new, up to the limits, or exactly those of a call in doubt.

        None where there is nothing, or where the log does not yet show all rows of the call in doubt: after a crash its
        end is durable, but the log shows it as durable only once the broker is open again.
        """
        call = self._next_call
        for number, step in enumerate(chain(call.beyond(), self._steps)):
            if number % _STEPS_A_TURN == 0:
                await asyncio.sleep(0)
            call.take(step)
            if call.is_complete:
                return self._chunk(is_full=True)
        self._steps = self._poll()
        return None if call.is_doubted else self._chunk(is_full=False)

    def _chunk(self, *, is_full: bool) -> Chunk | None:
        place = self._next_call.place
        return None if place is None else Chunk(self._next_call.call(), place, is_full)

    def _poll(self) -> Generator[Step, None, None]:
        """Yield the steps of a poll, and count the bytes of log that they took."""
        before = self._follower.position
        for step in self._follower.poll():
            position = step.after.position
            same = before is not None and before.segment == position.segment
            self._folded_bytes += position.offset - (before.offset if same and before is not None else 0)
            before = position
            yield step

    async def _send(self, chunk: Chunk) -> None:
        outlet, state = self._outlet, self._follower.state
        ts = state.log_ms + state.wall_offset_ms
        before, after = self._cursor.stored, chunk.place
        self._intents.write(Intent(outlet.ordinal + 1, before, after, ts))
        last_batch = after.position.batch - (0 if after.rows else 1)
        about = About(before.position.batch, last_batch, len(chunk.rows), after.position, ts, after.rows)
        await outlet.send(chunk.rows, msgspec.json.encode(about))
        self._cursor = Cursor(after, ts=ts)
        self.progress.rows += len(chunk.rows)
        self.progress.calls += 1

    def _keep(self) -> None:
        """Save the fold where every row before it is in the buffer, or there was none."""
        if self._follower.position is not None and not self._next_call.has_rows:
            keep(self._own, self._follower)
            self._folded_bytes, self._is_kept = 0, True
            self.progress.kept_batch = self._follower.position.batch
