"""The exporter: it follows a log, hands what is new to a buffer, and knows after any end where to go on.

One call is under way at a time. It is written down before it is made, and a call whose outcome is unknown is made
again with the very same rows: whichever of the two the buffer takes, it holds them once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tenure.errors import Conflict
from tenure.export.follower import Step
from tenure.export.intents import Intent, Intents
from tenure.export.resume import Cursor, beginning, cursor_of, goes_through, keep, kept_position, resume
from tenure.export.settings import ExportSettings
from tenure.log.disk import PosixDisk
from tenure.log.home import Position

__all__ = ["Exporter", "Outlet", "Progress", "directory_of"]

log = logging.getLogger("tenure.export")

_STEPS_A_TURN = 64


class Outlet(Protocol):
    """A buffer, as the exporter sees it: ``ordinal`` is that of its last batch in there, -1 for none, and ``recalled``
    what was said with that batch, where it is still there.
    """

    buffer: str
    ordinal: int
    recalled: bytes

    async def send(self, rows: list[bytes], metadata: bytes) -> None:
        """Commit the rows as one batch, the next ordinal, and return once it is durable."""
        ...


class Progress(msgspec.Struct):
    """How far an exporter has come since it was started; ``batch`` is the last one of the log that is told, and from
    ``kept_batch`` on it needs the log to begin anew.
    """

    batch: int = 0
    kept_batch: int = 0
    rows: int = 0
    gaps: int = 0
    calls: int = 0


class Chunk(NamedTuple):
    """Rows for one call, and the position behind them; ``is_full`` where there are more to come."""

    rows: list[bytes]
    position: Position
    is_full: bool


def directory_of(data: Path) -> Path:
    """Where an exporter keeps what it needs, beside the log that it follows; a directory in it for each buffer."""
    return data / "export"


class About(msgspec.Struct, frozen=True):
    """What is said with each call, for people and for an exporter that has lost its directory."""

    first_batch: int
    last_batch: int
    rows: int
    position: Position
    ts: int


class Exporter:
    """Follows the log of one data directory into one buffer. ``told`` is called after every step forward.

    Raises Conflict where another exporter is at work on the directory.
    """

    def __init__(
        self, data: Path, outlet: Outlet, *, settings: ExportSettings, told: Callable[[Progress], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._outlet = outlet
        self._told = told
        self._log = PosixDisk(data, create=False)
        self._lock = PosixDisk(directory_of(data))
        self._lock.lock()
        self._own = PosixDisk(directory_of(data) / outlet.buffer)
        self._intents = Intents(self._own.root / "intents")
        kept = kept_position(self._own)
        self._cursor = self._find_cursor(kept)
        self._follower, self._silent_batch, self._rows = resume(self._log, self._own, self._cursor)
        self._folded_bytes = 0
        self._is_kept = kept is not None
        kept_batch = kept.batch if kept is not None else 0
        self.progress = Progress(batch=self._cursor.position.batch - 1, kept_batch=kept_batch)

    def _find_cursor(self, kept: Position | None) -> Cursor:
        outlet = self._outlet
        found = cursor_of(self._intents.known, ordinal=outlet.ordinal, kept=kept)
        if found is not None:
            is_there = found.doubted is None or goes_through(self._log, found.doubted)
            return found if is_there else found._replace(doubted=None)
        if outlet.ordinal < 0:
            return beginning(self._log)
        try:
            about = msgspec.json.decode(outlet.recalled, type=About)
        except msgspec.MsgspecError:
            raise Conflict(
                f"the buffer holds events of this log, but {self._own.root} does not say which: put back what was "
                "there, or export to another buffer",
                code="export_unknown",
            ) from None
        return Cursor(about.position, ts=about.ts)

    async def run(self, stop: asyncio.Event) -> None:
        """Export until told to stop, then what is there still, and end."""
        self._told(self.progress)
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
        """Let go of the directory."""
        self._intents.close()
        self._lock.unlock()

    async def _advance(self) -> bool:
        """Hand over what is new; True where there is more."""
        chunk = await self._gather()
        if chunk is None:
            return False
        if chunk.rows:
            await self._send(chunk)
        self.progress.batch = chunk.position.batch - 1
        if self._folded_bytes >= self._settings.checkpoint_bytes or not self._is_kept:
            self._keep()
        self._told(self.progress)
        return chunk.is_full

    async def _gather(self) -> Chunk | None:
        """Rows for one call: all that is new, as far as one call goes, or exactly those of a call in doubt.

        None where there is nothing, or where the log does not yet show all that the call in doubt was made of: after a
        crash its end is durable, but is said to be only once the broker is open again.
        """
        size, doubted, position = 0, self._cursor.doubted, None
        for number, step in enumerate(self._polled()):
            if number % _STEPS_A_TURN == 0:
                await asyncio.sleep(0)
            position = step.position
            if position.batch - 1 > self._silent_batch:
                self._rows += step.rows
                size += sum(map(len, step.rows))
                self.progress.gaps += step.is_gap
            enough = size >= self._settings.call_bytes_max if doubted is None else position.batch >= doubted.batch
            if enough:
                return self._chunk(position, is_full=True)
        return None if position is None or doubted is not None else self._chunk(position, is_full=False)

    def _chunk(self, position: Position, *, is_full: bool) -> Chunk:
        rows, self._rows = self._rows, []
        return Chunk(rows, position, is_full)

    def _polled(self) -> Iterator[Step]:
        """The steps of a poll, and the bytes of log that they took."""
        before = self._follower.position
        for step in self._follower.poll():
            same = before is not None and before.segment == step.position.segment
            self._folded_bytes += step.position.offset - (before.offset if same and before is not None else 0)
            before = step.position
            yield step

    async def _send(self, chunk: Chunk) -> None:
        outlet, state = self._outlet, self._follower.state
        ts = state.log_ms + state.wall_offset_ms
        before, after = self._cursor.position, chunk.position
        self._intents.write(Intent(outlet.ordinal + 1, before, after, ts))
        about = About(before.batch, after.batch - 1, len(chunk.rows), after, ts)
        await outlet.send(chunk.rows, msgspec.json.encode(about))
        self._cursor = Cursor(after, ts=ts)
        self.progress.rows += len(chunk.rows)
        self.progress.calls += 1

    def _keep(self) -> None:
        """Keep the fold; every row it stands for is in the buffer, or there was none."""
        if self._follower.position is not None and not self._rows:
            keep(self._own, self._follower)
            self._folded_bytes, self._is_kept = 0, True
            self.progress.kept_batch = self._follower.position.batch
