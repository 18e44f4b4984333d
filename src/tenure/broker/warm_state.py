"""The state of a log that another process writes, kept warm: folded from the segment files as they grow.

A server that follows another one opens from it without a replay. What is folded here is durable in the log's home, so
it is never taken back: there is no state to roll back when the lead changes.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

from tenure.broker.newest_checkpoint import newest_state
from tenure.core.events import decode
from tenure.core.fold import fold
from tenure.core.state.snapshot import dump_checkpoint
from tenure.core.state.state import State
from tenure.errors import Corrupt, Overloaded
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.interface import Position, UnknownPosition
from tenure.log.opening import clear_leftovers
from tenure.log.recovery import Scan, locate
from tenure.log.segment import HEAD_BYTES, Head, list_heads, read_head
from tenure.settings import Settings

__all__ = ["Warm", "WarmState"]

logger = logging.getLogger("tenure.broker")


class Warm(NamedTuple):
    """What an engine opens from instead of a replay: a state, the position it is valid for, and the log's time.

    ``log_ms`` is the log time of the newest link that was followed, 0 where it is not known, and ``boot_ms`` this
    machine's clock when that link came.
    """

    state: State
    position: Position
    log_ms: int
    boot_ms: int


class WarmState:
    """The folded state of a directory that a standby writes. One caller at a time; methods raise OSError, Corrupt."""

    def __init__(self, disk: Disk, settings: Settings) -> None:
        self._disk = disk
        self._settings = settings
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the state: the files became others."""
        self.state = State(self._settings)
        self.position: Position | None = None
        self._heads: list[Head] = []
        self._folded_bytes = 0
        self._due_bytes = self._settings.checkpoint_bytes

    def advance(self, segment: int, offset: int) -> None:
        """Fold what the files hold up to an offset of a segment, the end of a batch."""
        if offset < HEAD_BYTES:
            return
        self._read_heads(segment)
        if self.position is None:
            self._begin((segment, offset))
        scan = Scan(self._disk, self._heads, after=self.position, stop=Position(segment, offset, 0))
        for kind, _, location, body in scan.frames():
            fold(self.state, decode(kind, body), location)
            self._folded_bytes += len(body)
        self.position = scan.end

    def _read_heads(self, segment: int) -> None:
        if not self._heads:
            self._heads = [head for head in list_heads(self._disk) if head.number <= segment]
        for number in range(self._heads[-1].number + 1, segment + 1):
            self._heads.append(read_head(self._disk, number)[0])

    def _begin(self, end: tuple[int, int]) -> None:
        """Begin at the newest checkpoint of the directory that is not beyond the end, or at its first segment."""
        found = newest_state(checkpoint.load(self._disk), partial(self._contains, end))
        if found is not None:
            self.state, self.position = found
        self.state.settings, self.state.has_home = self._settings, True

    def _contains(self, end: tuple[int, int], position: Position) -> bool:
        if position[:2] > end:
            return False
        try:
            locate(self._disk, self._heads, position)
        except UnknownPosition:
            return False
        return True

    def drop_segments(self) -> None:
        """Remove the segments that the log declares dropped; what they held is durable elsewhere, or was of no use."""
        if self.position is None or not self._heads or self._heads[0].number > self.position.dropped:
            return
        clear_leftovers(self._disk, self.position.dropped)
        self._heads = [head for head in self._heads if head.number > self.position.dropped]
        self.state.forget_segments(self._heads[0].number)

    def save_if_due(self) -> Position | None:
        """Write a checkpoint where enough was folded since the last one; return its position, None where there is none.

        The files must be durable up to here.
        """
        if self.position is None or self._folded_bytes < self._due_bytes:
            return None
        payload = dump_checkpoint(self.state)
        self._folded_bytes, self._due_bytes = 0, self._settings.checkpoint_due_bytes(len(payload))
        try:
            checkpoint.save(self._disk, self.position, payload)
        except (Corrupt, Overloaded) as error:  # only a cache: this directory follows as before
            logger.warning("%s; until there is one, the next opening takes longer", error.message)
            return None
        return self.position

    def take(self, *, log_ms: int, boot_ms: int) -> Warm | None:
        """Hand the state over to an engine, None where there is none yet; this one begins anew."""
        if self.position is None:
            return None
        warm = Warm(self.state, self.position, log_ms, boot_ms)
        self.begin_anew()
        return warm
