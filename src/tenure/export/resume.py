"""Where an exporter goes on after any end: what is in the buffer, what was intended, and a fold that was kept.

The cursor says which rows are in the buffer. To tell the next ones their state is needed, so the fold is kept beside
the log now and then; from there the log is folded in silence up to the cursor. Only where nothing kept can be used does
it begin at the oldest segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from tenure.core.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state import State
from tenure.errors import Corrupt, Overloaded
from tenure.export.follower import Follower
from tenure.export.intents import Intent
from tenure.export.rows import gap
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.home import Position, UnknownPosition
from tenure.log.recovery import locate
from tenure.log.segment import list_heads

__all__ = ["Cursor", "Resumed", "cursor_of", "keep", "kept_position", "resume"]

_LOOKS_MAX = 5


class Cursor(NamedTuple):
    """Rows up to ``position`` are in the buffer; those up to ``doubted`` were on their way when the exporter ended."""

    position: Position | None
    doubted: Position | None = None
    ts: int = 0


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A fold, kept for the next start: it stands for every row that ``buffer`` holds at its position."""

    buffer: str
    unknown: dict[int, int]
    state: bytes


class Resumed(NamedTuple):
    """A follower, the batch up to which its rows are in the buffer already, and rows to be told before its own."""

    follower: Follower
    silent_batch: int
    rows: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


def cursor_of(intents: Iterable[Intent], *, buffer: str, ordinal: int, kept: Position | None = None) -> Cursor | None:
    """How far the export into a buffer has come that holds ``ordinal`` batches of it; None where it has not begun.

    A buffer forgets producers that were silent for long (``ordinal`` 0). Then a fold that was ``kept`` tells whether
    the last call was committed; where it does not, its rows are sent once more, under the same names.
    """
    own = [intent for intent in intents if intent.buffer == buffer]
    if not own:
        return None
    for intent in own:
        if intent.ordinal == ordinal:
            return Cursor(intent.after, ts=intent.ts)
        if intent.ordinal == ordinal + 1:
            return Cursor(intent.before, doubted=intent.after, ts=intent.ts)
    newest = own[0]
    if ordinal == 0 and kept is not None and kept.batch >= newest.after.batch:
        return Cursor(newest.after, ts=newest.ts)
    return Cursor(newest.before, ts=newest.ts)


def keep(disk: Disk, follower: Follower, *, buffer: str) -> None:
    """Keep a fold whose rows are all in the buffer. A cache: where it cannot be written, a restart takes longer."""
    assert follower.position is not None
    follower.state.forget_segments(follower.position.segment + 1)
    payload = _encode(Kept(buffer, follower.unknown, dump_checkpoint(follower.state)))
    try:
        checkpoint.save(disk, follower.position, payload)
    except (Overloaded, Corrupt):
        return


def kept_position(disk: Disk, *, buffer: str) -> Position | None:
    """The position of the newest fold that was kept."""
    return next((position for position, _ in _kept(disk, buffer)), None)


def resume(log: Disk, own: Disk, cursor: Cursor | None, *, buffer: str) -> Resumed:
    """A follower that goes on behind the cursor. ``own`` is the directory that `keep` writes to.

    Where the log does not go through the cursor, that is told as a gap and the oldest segment is the beginning; where
    it was trimmed past the cursor, the follower tells it.
    """
    at = cursor.position if cursor is not None else None
    ts = cursor.ts if cursor is not None else 0
    is_there = at is None or _goes_through(log, at)
    silent_batch = at.batch - 1 if at is not None else 0
    for start, kept in _kept(own, buffer):
        if (is_there or start.batch > silent_batch) and _goes_through(log, start):
            follower = Follower(log, state=load_checkpoint(kept.state), position=start, unknown=kept.unknown)
            return Resumed(follower, silent_batch, [])
    if is_there:
        return Resumed(_from_broker(log, before=silent_batch + 1), silent_batch, [])
    assert at is not None
    if at.segment < list_heads(log)[0].number:
        state = State()
        state.log_ms = ts
        return Resumed(Follower(log, state=state, position=at), silent_batch, [])
    row = gap("history", ts=ts, batch=silent_batch, first_batch=at.batch, last_batch=at.batch)
    return Resumed(Follower(log), 0, [row])


def _from_broker(log: Disk, *, before: int) -> Follower:
    """A follower from the newest checkpoint of the broker not behind the cursor, or from the oldest segment."""
    for position, payload in checkpoint.load(log):
        if position.batch <= before and _goes_through(log, position):
            try:
                return Follower(log, state=load_checkpoint(payload), position=position)
            except (Corrupt, msgspec.MsgspecError):
                continue
    return Follower(log)


def _kept(disk: Disk, buffer: str) -> Iterator[tuple[Position, Kept]]:
    for position, payload in checkpoint.load(disk):
        try:
            kept = _decode(payload)
        except msgspec.MsgspecError:
            continue
        if kept.buffer == buffer:
            yield position, kept


def _goes_through(log: Disk, position: Position) -> bool:
    for _ in range(_LOOKS_MAX):
        try:
            locate(log, list_heads(log), position)
            return True
        except UnknownPosition:
            return False
        except FileNotFoundError:
            continue  # a segment was dropped while we looked
    return False
