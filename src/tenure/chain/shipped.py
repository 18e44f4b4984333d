"""A log whose home is a chain: a `FileLog` whose sync also creates a link.

What a sync makes durable here is read back from the segment files and sent as one link. So nothing is kept in memory
for it, and a tail that an earlier life had not sent is sent in the same way. ``synced_batch`` means that the home has
it.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, Final

from tenure.chain.home_upkeep import LeaderUpkeep
from tenure.chain.leadership import Leadership
from tenure.chain.link import Run
from tenure.chain.metrics import Waiting
from tenure.chain.notes import Notes, NotesFile
from tenure.chain.parts import FEATURE
from tenure.chain.place import End, Step
from tenure.chain.sending import Load, send
from tenure.errors import Corrupt, Overloaded, TenureError
from tenure.log.disk import Disk
from tenure.log.features import FEATURES, FeatureSet
from tenure.log.interface import Position, Sync
from tenure.log.log import HANDLES_MAX, FileLog
from tenure.log.opening import load_or_create
from tenure.log.reader import read_error
from tenure.log.recovery import Scan
from tenure.log.segment import HEAD_BYTES, Head, segment_name
from tenure.log.spare_segments import unpublished_name
from tenure.log.sync import Goal
from tenure.log.walk import Walk
from tenure.objects.background import background
from tenure.objects.store import OutcomeUnknown

__all__ = ["ShippedLog"]

logger = logging.getLogger("tenure.chain")

_LOOK_S: Final = 0.1
"""How often a thread that waits for the store looks whether the process ends."""

Piece = tuple[int, int, int]
"""A segment, and where a piece of it starts and ends."""


class ShippedLog(FileLog):
    """A :class:`~tenure.log.interface.Log` in segment files, led by this process and kept in its home.

    A sync takes at least one request to the store and is never brief. Once a rival leads, ``failed`` says so, and
    nothing is taken in any more.
    """

    def __init__(
        self,
        disk: Disk,
        heads: list[Head],
        *,
        segment_bytes: int,
        features: FeatureSet,
        leadership: Leadership,
        notes: Notes,
    ) -> None:
        super().__init__(disk, heads, segment_bytes=segment_bytes, handles_max=HANDLES_MAX, features=features)
        self.has_home = True
        self.leadership = leadership
        self.log_ms = leadership.followed_ms
        self._notes = NotesFile(disk, notes)
        self._upkeep = LeaderUpkeep(disk, leadership, self._notes)
        self._noted_ms = leadership.clock.boot_ms()
        self._begun_ms = 0
        self.granted_until_ms = leadership.granted_until_ms
        #: Set with the URL of the successor once the link under way, or the next one, gives up the lead.
        self._hand_to: str | None = None
        #: Who is named by the link that ships the last of what was written; None while it is not to give up the lead.
        self._heir: str | None = None
        self._is_released = False
        #: How far the chain goes, and the end of each batch behind it.
        self._shipped = leadership.place.end
        self._ends: deque[End] = deque()
        self.waiting = Waiting(leadership.clock)

    @classmethod
    def lead(cls, disk: Disk, leadership: Leadership, notes: Notes, *, segment_bytes: int) -> ShippedLog:
        """Open the local copy for writing, as the leader of an epoch. Raises Corrupt, Overloaded, OSError."""
        log_id, epoch = leadership.chain.log_id, leadership.epoch
        heads, features = load_or_create(disk, segment_bytes=segment_bytes, log_id=log_id, epoch=epoch, known=FEATURES)
        return cls(disk, heads, segment_bytes=segment_bytes, features=features, leadership=leadership, notes=notes)

    def write(self) -> int:
        before, batch = self.written_batch, super().write()
        if batch > before:
            self._ends.append(End(self._heads[-1].number, self._written_end, batch))
            self.waiting.written()
        return batch

    @property
    def sync_wait_ms(self) -> int:
        since_ms = self.leadership.clock.boot_ms() - self._begun_ms
        return max(0, self.leadership.chain.settings.link_interval_ms - since_ms)

    @property
    def beat_wait_ms(self) -> int | None:
        if not self.leadership.beats:
            return None
        if self.leadership.asks:
            return 0
        since_ms = self.leadership.clock.boot_ms() - self._begun_ms
        return max(0, self.leadership.chain.settings.beat_ms - since_ms)

    def begin_sync(self) -> Sync:
        self._begun_ms = self.leadership.clock.boot_ms()
        return super().begin_sync()

    def end_sync(self, sync: Sync) -> int:
        batch = super().end_sync(sync)
        self.granted_until_ms = self.leadership.granted_until_ms
        while self._ends and self._ends[0].batch <= batch:
            self._shipped = self._ends.popleft()
        self.waiting.ended(leaves_any=bool(self._ends))
        return batch

    @property
    def unshipped_bytes(self) -> int:
        """How much was written here and is not in the home yet."""
        rolled = sum(head.previous_end for head in self._heads if head.number > self._shipped.segment)
        return rolled + self._written_end - self._shipped.offset

    @property
    def checkpoints(self) -> int:
        """How many checkpoints this leader brought to the home."""
        return self._upkeep.stored

    def checkpointed(self, position: Position) -> None:
        self._upkeep.start(position, self._notes.notes)

    def release_soon(self, hand_to: str) -> None:
        self._heir = hand_to
        self._upkeep.stop()

    def release(self, hand_to: str = "") -> None:
        """Ship what is pending, then the last link of this epoch, which carries the seal; unless that was sent."""
        if self._closed or self._file == -1 or self.failed is not None or self._is_released:
            return
        self._is_released = True
        try:
            if self._hand_to is None:
                self._release(hand_to)
            self._notes.save()
        except (OSError, TenureError) as error:
            logger.warning("the lead was not given up: the next start on another machine waits a while (%s)", error)

    def _release(self, hand_to: str) -> None:
        self.sync()
        with suppress(Overloaded):  # no room for a seal: what was shipped is durable all the same
            self.witness()
        self.write()
        self._upkeep.stop()
        self._hand_to, self.granted_until_ms = hand_to, 0
        self._sync_once()

    def seal(self) -> None:
        if self._closed or self._hand_to is None:  # nothing follows the link that gave up the lead
            super().seal()

    def close(self) -> None:
        """Give up the lead so that a successor need not wait, and release the directory."""
        try:
            self.release()
        finally:
            super().close()

    # How it is done.

    def _begin_epoch(self, scan: Scan) -> tuple[int, int]:
        """Begin the chain's epoch. What lies behind the chain's end is the tail: the first sync ships it."""
        if scan.end.batch - 1 < self._shipped.batch:
            message = f"the local copy ends at batch {scan.end.batch - 1}, its home at {self._shipped.batch}"
            raise Corrupt(f"{message}: fetch the log into an empty directory", batch=self._shipped.batch)
        for head in self._heads:
            if head.number >= self._shipped.segment:
                try:
                    self._ends.extend(self._tail(head, scan.end))
                except OSError as error:
                    raise read_error(error, head.number, 0) from error
        return self.leadership.epoch, self._shipped.batch

    def _tail(self, head: Head, end: Position) -> Iterator[End]:
        """Yield the end of each batch of a segment that lies behind the chain's end. Raises OSError."""
        is_first = head.number == self._shipped.segment
        offset = max(self._shipped.offset, HEAD_BYTES) if is_first else HEAD_BYTES
        batch = self._shipped.batch + 1 if is_first else head.first_batch
        start = Position(head.number, offset, batch)
        file = self._disk.open(segment_name(head.number))
        try:
            walk = Walk(self._disk, file, start, salt=head.salt, epoch=0, witnessed=0)
            limit = end.offset if head.number == end.segment else self._disk.size(file)
            for _ in walk.batches(limit):
                yield End(head.number, walk.offset, walk.batch - 1)
        finally:
            self._disk.close(file)

    def _is_sync_due(self) -> bool:
        return super()._is_sync_due() or self.leadership.beats or self._hand_to is not None

    def _goal(self) -> Goal:
        """Return how far the next link goes: as many batches as it may hold, and one in any case. It may be empty."""
        count, size = 0, 0
        for piece in _pieces(self._shipped, self._ends):
            size += piece[2] - piece[1]
            if count and size > self.leadership.chain.settings.link_bytes_max:
                break
            count += 1
        ends = list(islice(self._ends, count))
        takes_all = count == len(self._ends)
        self.waiting.begun(takes_all=takes_all)
        if self._heir is not None and takes_all and ends:
            self._hand_to, self.granted_until_ms = self._heir, 0
        last = ends[-1] if ends else self._shipped
        carry = partial(self._carry, _joined(_pieces(self._shipped, ends)), last.batch, self.log_ms())
        return Goal(last.batch, last.segment, carry)

    def _carry(self, pieces: list[Piece], last_batch: int, log_ms: int) -> None:
        """Ship one link, in the thread of the sync; note the place now and then. Raises as `Leadership.ship`."""
        if self.leadership.place.number >= self.leadership.chain.settings.epoch_links_max:
            self._begin_next_epoch(log_ms)
        runs = [Run(number, start, self._read_piece(number, start, end)) for number, start, end in pieces]
        load = Load(runs, last_batch, log_ms, self._hand_to)
        self._finish(send(self.leadership, load, has_parts=FEATURE in self.features, passed=self._pass))
        now_ms = self.leadership.clock.boot_ms()
        if now_ms - self._noted_ms >= self.leadership.chain.settings.place_ms:
            self._noted_ms = now_ms
            with suppress(OSError):  # only where the next start begins to read
                self._notes.save()

    def _pass(self, step: Step) -> None:
        """Note a link that was stored, in the thread that sends: a beat that passed a large one renews the grant."""
        self._notes.pass_step(step)
        if self._hand_to is None:
            self.granted_until_ms = self.leadership.granted_until_ms

    def _begin_next_epoch(self, log_ms: int) -> None:
        """Close this epoch and lead the next one, so that its links can be freed one day. Raises as ``_carry``."""
        nonce = secrets.token_bytes(16)
        self._notes.add_nonce(nonce)
        before = self.leadership.place
        self._finish(self.leadership.renew(nonce, log_ms=log_ms))
        self._notes.pass_step(Step(self.leadership.fence, before, self.leadership.place))

    def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait in this thread for what is sent to the store, which may hang: at most until this process ends or is
        known not to lead any more.

        Raises OutcomeUnknown or the reason then, and what the work raises.
        """
        sending = background().start(work)
        while not wait([sending], _LOOK_S).done:
            lost = self.leadership.lost
            if lost is not None and self._hand_to is None:
                sending.cancel()
                raise lost
            if self.leadership.is_over():
                sending.cancel()
                raise OutcomeUnknown("the store did not answer before this process ended: the last link may be stored")
        sending.result()

    def _read_piece(self, number: int, start: int, end: int) -> bytes:
        """Read a piece of a segment, published or not yet."""
        try:
            file = self._disk.open(segment_name(number))
        except FileNotFoundError:
            file = self._disk.open(unpublished_name(number))
        try:
            data = self._disk.pread(file, end - start, start)
        finally:
            self._disk.close(file)
        if len(data) != end - start:
            raise Corrupt(f"{segment_name(number)} is shorter than what was written to it", file=segment_name(number))
        return data


def _pieces(start: End, ends: Iterable[End]) -> Iterator[Piece]:
    """Yield the piece of a segment that each batch takes; the first of a segment takes its head too."""
    for before, end in pairwise(chain((start,), ends)):
        yield end.segment, before.offset if before.segment == end.segment else 0, end.offset


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces that follow each other as one."""
    joined: list[Piece] = []
    for number, start, end in pieces:
        if joined and joined[-1][0] == number and joined[-1][2] == start:
            joined[-1] = (number, joined[-1][1], end)
        else:
            joined.append((number, start, end))
    return joined
