"""Resuming an export after any end: from the buffer's last batch, the intents, and a saved fold.

The cursor is the last row in the buffer. The rows after it need a state, so the exporter saves its fold beside the log
from time to time; a restart folds the log from there up to the cursor without making rows. Only where no saved fold can
be used does it begin at the oldest segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state.state import State
from tenure.errors import Corrupt, NotFound, Overloaded
from tenure.export.follower import Follower
from tenure.export.intents import Intent
from tenure.export.rows import Place, first_position, gap, history_n
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.interface import Position, UnknownPosition
from tenure.log.recovery import locate
from tenure.log.segment import list_heads

__all__ = ["Cursor", "Resumed", "cursor_of", "first_cursor", "goes_through", "keep", "kept_position", "resume"]

_LOOKS_MAX = 5


class Cursor(NamedTuple):
    """The last row that is ``stored`` in the buffer, and the last of a call in doubt when the exporter ended."""

    stored: Place
    doubted: Place | None = None
    ts: int = 0


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A fold, saved for the next start: every row up to its position is in the buffer."""

    unknown: dict[int, int]
    state: bytes


class Resumed(NamedTuple):
    """A follower, the last of its rows that is in the buffer, and rows to export before its own."""

    follower: Follower
    stored: Place
    rows: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


def cursor_of(intents: Sequence[Intent], *, ordinal: int) -> Cursor | None:
    """Return how far the export has come into a buffer whose last batch of it is ``ordinal``, -1 for none.

    None where the intents, newest first, do not show it: there are none, or they are those of an older copy. An intent
    is written once the call before it is committed, so only the newest may be in doubt.
    """
    if not intents:
        return None
    newest = intents[0]
    if newest.ordinal == ordinal:
        return Cursor(newest.after, ts=newest.ts)
    if newest.ordinal == ordinal + 1:
        return Cursor(newest.before, doubted=newest.after, ts=newest.ts)
    return None


def first_cursor(log: Disk) -> Cursor:
    """Return the cursor of an export that starts today: everything that the log still holds is to come.

    Raises NotFound where there is no log.
    """
    position = first_position(log)
    if position is None:
        raise NotFound("there is no log here: name the directory of a broker that was opened once", code="no_log")
    return Cursor(Place(position))


def keep(disk: Disk, follower: Follower) -> None:
    """Save a fold whose rows are all in the buffer. It is a cache: without it, a restart takes longer."""
    assert follower.position is not None
    follower.state.forget_segments(follower.position.segment + 1)
    payload = _encode(Kept(follower.unknown, dump_checkpoint(follower.state)))
    try:
        checkpoint.save(disk, follower.position, payload)
    except (Overloaded, Corrupt):
        return


def kept_position(disk: Disk) -> Position | None:
    """Return the position of the newest saved fold."""
    return next((position for position, _ in _load_kept(disk)), None)


def resume(log: Disk, own: Disk, cursor: Cursor, *, ordinal: int) -> Resumed:
    """Return a follower that continues after the cursor; the next call has this ``ordinal``.

    ``own`` is the directory that `keep` writes to. Where the log does not go through the cursor, a gap is reported and
    the oldest segment is the beginning; where it was trimmed past the cursor, the follower reports it.
    """
    stored, at = cursor.stored, cursor.stored.position
    is_there = goes_through(log, at)
    for start, kept in _load_kept(own):
        if (is_there or start.batch >= at.batch) and goes_through(log, start):
            follower = Follower(log, state=load_checkpoint(kept.state), position=start, unknown=kept.unknown)
            return Resumed(follower, stored, [])
    if is_there:
        return Resumed(_from_broker(log, before=at.batch), stored, [])
    if at.segment < list_heads(log)[0].number:
        state = State()
        state.log_ms = cursor.ts
        return Resumed(Follower(log, state=state, position=at), stored, [])
    n = history_n(ordinal)
    row = gap("history", ts=cursor.ts, batch=at.batch - 1, n=n, first_batch=at.batch, last_batch=at.batch)
    return Resumed(Follower(log), Place(Position(0, 0, 0)), [row])


def _from_broker(log: Disk, *, before: int) -> Follower:
    """Return a follower from the broker's newest checkpoint up to the cursor, or from the oldest segment."""
    for position, payload in checkpoint.load(log):
        if position.batch <= before and goes_through(log, position):
            try:
                return Follower(log, state=load_checkpoint(payload), position=position)
            except (Corrupt, msgspec.MsgspecError):
                continue
    return Follower(log)


def _load_kept(disk: Disk) -> Iterator[tuple[Position, Kept]]:
    for position, payload in checkpoint.load(disk):
        try:
            yield position, _decode(payload)
        except msgspec.MsgspecError:
            continue


def goes_through(log: Disk, position: Position) -> bool:
    """Return whether a position is one of this log's, durable or not."""
    for _ in range(_LOOKS_MAX):
        try:
            locate(log, list_heads(log), position)
            return True
        except UnknownPosition:
            return False
        except FileNotFoundError:
            continue  # a segment was dropped meanwhile
    return False
