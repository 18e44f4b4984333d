"""The writer of the log: appends, group writes, syncs, rolls, and the room reserved on a full disk.

``append`` only charges room and remembers; headers and checksums are built in ``write``, in one loop and one pwrite for
the whole batch. Nothing here waits for a disk but ``sync`` and ``seal``: a roll goes on in a file that was allocated
ahead, and the next sync makes it durable (see :mod:`~tenure.log.sync`).

Room is charged against allocated files, so a full disk is met before anything happened (fault 12). How many of them are
kept, and for whom, is the arithmetic of :mod:`~tenure.log.room`. A small log of one segment keeps three quarters of
that instead, and allocates nothing ahead.

A write or sync that fails is never tried again (fault 13): the kernel may have thrown the pages away and would report
success the second time. ``failed`` is set, appends are refused, reads go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from math import inf
from typing import NoReturn

from tenure.errors import Closed, Indeterminate, Invalid, Overloaded, TenureError
from tenure.log.disk import Disk, File, write_whole
from tenure.log.features import NO_FEATURES, FeatureSet
from tenure.log.frame import HEADER_BYTES, KIND_FEATURES, KIND_SEAL, encode_batch
from tenure.log.interface import Entry, Sync
from tenure.log.opening import NO_ROOM, no_room_error
from tenure.log.reader import SegmentFiles
from tenure.log.room import Room
from tenure.log.segment import HEAD_BYTES, Head
from tenure.log.spare_segments import Spare, Spares, spare_size
from tenure.log.sync import FileSync, Goal, Removal, Roll, Syncs

__all__ = ["OFFSET_MAX", "SegmentWriter"]

OFFSET_MAX = (1 << 32) - 1
_YOUNG_SHARE = 4
#: When so small a part of a segment is left, the next one is prepared.
_NEAR_SHARE = 4


class SegmentWriter:
    """The writing half of :class:`~tenure.log.log.FileLog`: appends to the last segment and rolls to the next."""

    def __init__(
        self,
        disk: Disk,
        heads: list[Head],
        *,
        segment_bytes: int,
        handles_max: int,
        features: FeatureSet = NO_FEATURES,
    ) -> None:
        self.epoch = 0
        self.pending_batch = self.written_batch = self.synced_batch = 0
        self.has_home = False
        self.failed: TenureError | None = None
        self.crowded = False
        self.preamble: Callable[[], Sequence[Entry]] | None = None
        self.log_ms: Callable[[], int] = int
        self.granted_until_ms = inf
        self.features = features
        self._disk = disk
        self._heads = heads
        self._salts = {head.number: head.salt for head in heads}
        self._room = Room(segment_bytes)
        self._files = SegmentFiles(disk, handles_max=handles_max)
        self._syncs = Syncs(disk)
        self._spares = Spares(disk, size=segment_bytes)
        #: Why no spare could be had the last time, and how much room the disk had then.
        self._refused = OSError(ENOSPC, "No space left on device")
        self._refused_free_bytes = -1
        self._rolls: list[Roll] = []
        self._removals: list[Removal] = []
        self._closed = False
        self._dropped = 0
        #: The segment and the number of spares that were asked for last.
        self._prepared = (0, 0)
        #: What the segments before the one being written use.
        self._closed_bytes = sum(head.previous_end for head in heads[1:])
        #: Where the last seal ends: while the log ends there, it needs no other.
        self._sealed_at = -1
        #: Where the log ended when the last sync was begun.
        # The segment being written. An append fits below _limit; -1 sends every append to the slow path. The file
        # may be longer than _capacity, for what reclaims space.
        self._file: File = -1
        self._base = self._salt = 0
        self._end = self._written_end = self._last_offset = self._last_crc = 0
        self._capacity = self._file_bytes = 0
        self._limit = -1
        self._pending: dict[int, Entry] = {}

    @property
    def reserve_used(self) -> bool:
        return self.crowded and not self._spares.is_ready(self._room.kept, least=self._room.reclaim_bytes)

    @property
    def sync_frees_room(self) -> bool:
        return bool(self._rolls or self._removals)

    def reserve(self, ack_bytes: int, growth_bytes: int = 0) -> None:
        room = self._room
        if room.reserve(ack_bytes, growth_bytes):
            if len(self._spares) > 2 * room.kept and not self.crowded:
                self._spares.shrink(room.kept)
            if self._file != -1:
                self._set_limit()

    @property
    def pending_segment(self) -> int:
        return self._heads[-1].number

    def spares_due(self) -> bool:
        wanted = (self._heads[-1].number, self._spares_wanted())
        if wanted == self._prepared or self.crowded or self._limit < 0:
            return False
        self._prepared = wanted  # once: a disk that refuses is tried again when the room is needed
        return not self._spares.is_ready(wanted[1], least=self._room.reclaim_bytes) if wanted[1] else False

    def _spares_wanted(self) -> int:
        """Return how many spares there should be soon.

        These are the ones to keep when an eighth more is reserved, and one to roll to once the segment is nearly full.
        """
        is_near = self._end > self._limit - self._limit // _NEAR_SHARE
        if len(self._heads) == 1 and not self._spares:
            return self._room.kept_soon if is_near else 0
        return self._room.kept_soon + is_near

    def prepare_spares(self) -> None:
        with suppress(OSError):
            self._spares.prepare(self._prepared[1], size=self._room.reclaim_bytes, after=self._heads[-1].number)

    def append(self, entries: Sequence[Entry], *, urgent: bool = False, reclaim: bool = False) -> list[int]:
        need = HEADER_BYTES * len(entries)
        for entry in entries:
            need += len(entry[2])
        if self._end + need > self._limit:
            self._make_room(need, urgent=urgent, reclaim=reclaim)
        if reclaim:
            self._room.reclaimed_bytes += need
        at = self._base + self._end
        self._end += need
        locations = []
        for entry in entries:
            locations.append(at)
            self._pending[at] = entry
            at += HEADER_BYTES + len(entry[2])
        return locations

    def append_one(self, kind: int, topic: int, body: bytes, urgent: bool = False) -> int:
        need = HEADER_BYTES + len(body)
        if self._end + need > self._limit:
            self._make_room(need, urgent=urgent, reclaim=False)
        at = self._base + self._end
        self._end += need
        self._pending[at] = (kind, topic, body)
        return at

    def write(self) -> int:
        entries = list(self._pending.values())
        if not entries:
            return self.written_batch
        if self.failed is not None or self._closed:
            raise self._refusal()
        batch = self.pending_batch
        data, crc = encode_batch(entries, self._salt, epoch=self.epoch, batch=batch, synced_batch=self.synced_batch)
        try:
            if self._disk.pwrite(self._file, data, self._written_end) != len(data):
                write_whole(self._disk, self._file, data, offset=self._written_end)
        except OSError as error:
            self._fail("writing", error)
        self._last_offset, self._last_crc = self._end - HEADER_BYTES - len(entries[-1][2]), crc
        self._written_end = self._end
        self.written_batch, self.pending_batch = batch, batch + 1
        self._pending = {}
        return batch

    @property
    def sync_wait_ms(self) -> int:
        return 0

    @property
    def beat_wait_ms(self) -> int | None:
        return None

    def begin_sync(self) -> Sync:
        self._check_ready()
        segment = self._heads[-1].number
        self._files.pin(segment)
        file = self._file if self._is_sync_due() else None
        goal = self._goal() if file is not None else Goal(self.written_batch, segment)
        rolls = tuple(self._rolls) if self._rolls else ()
        removals = tuple(each for each in self._removals if each.batch <= goal.batch) if self._removals else ()
        return self._syncs.begin(
            file,
            segment=segment,
            goal=goal,
            rolls=rolls,
            removals=removals,
        )

    def _is_sync_due(self) -> bool:
        """Return whether a sync that begins now has anything to do."""
        return self.written_batch > self.synced_batch

    def _goal(self) -> Goal:
        """Return how far a sync that begins now goes: as far as was written."""
        return Goal(self.written_batch, self._heads[-1].number)

    def end_sync(self, sync: Sync) -> int:
        assert isinstance(sync, FileSync)
        self._syncs.end(sync)
        self._files.unpin(sync.segment)
        if self.failed is not None:
            raise self.failed
        if sync.error is not None:
            self._fail("syncing", sync.error)
        if sync.goal.batch > self.synced_batch:
            self.synced_batch = sync.goal.batch
        if self._removals and self._removals[0].is_done:
            self._removals = [removal for removal in self._removals if not removal.is_done]
            if self.crowded:
                self._refill(self._room.kept + 1, least=self._room.reclaim_bytes)
        while self._rolls and self._rolls[0].is_done:
            self._files.unpin(self._rolls.pop(0).number - 1)
        return self.synced_batch

    def sync(self) -> int:
        self._check_ready()
        self.write()
        while self.synced_batch < self.written_batch:
            self._sync_once()
        return self.synced_batch

    def _sync_once(self) -> None:
        sync = self.begin_sync()
        sync.run()
        self.end_sync(sync)

    def seal(self) -> None:
        self.sync()
        if not self._is_sealed():
            self._append_seal()
            self.sync()

    def witness(self) -> bool:
        self._check_ready()
        if self._pending or self.synced_batch < self.written_batch or self._is_sealed():
            return False
        with suppress(Overloaded):
            self._append_seal()
            return True
        return False

    def turn_on_features(self) -> int:
        if self.features.off:
            before, self.features = self.features, self.features.all_on()
            try:
                self._make_room(0, urgent=False, reclaim=False, must_roll=True)
            except BaseException:
                self.features = before
                raise
        return self.write()

    # How it is done.

    def _use(self, head: Head, file: File, *, end: int, capacity: int) -> None:
        """Write to this segment from now on."""
        self._files.adopt(head.number, file)
        self._files.pin(head.number)
        self._file, self._base, self._salt = file, head.number << 32, head.salt
        self._end = self._written_end = end
        self._capacity = self._file_bytes = capacity
        self._pending = {}
        self._set_limit()

    def _set_limit(self) -> None:
        """Set the offset up to which ordinary appends need not check the reserved room."""
        if self._spares.is_ready(self._room.kept, least=self._room.reclaim_bytes):
            self._limit = self._capacity - self._room.own_bytes
        else:
            is_young = len(self._heads) == 1 and self._room.is_small
            self._limit = self._capacity // _YOUNG_SHARE if is_young else -1

    def _make_room(self, need: int, *, urgent: bool, reclaim: bool, must_roll: bool = False) -> None:
        """Make ``need`` bytes fit, by a roll where they do not, and leave the room reserved from such an append.

        Raises Overloaded, Closed; nothing happened then.
        """
        self._check_ready()
        if need > OFFSET_MAX // 2:
            raise Invalid(f"{need} bytes in one append are more than a segment can hold")
        fits = not must_roll and self._end + need <= self._capacity - self._room.own_bytes
        kept = self._room.kept + (not fits)
        least = self._room.reclaim_bytes if urgent or reclaim else self._room.spare_bytes(need)
        try:
            self._refill(kept, least=least)
            if not (
                self._may_take(need, fits=fits, urgent=urgent, reclaim=reclaim)
                or (urgent and not reclaim and self._may_take_as_any(need, fits=fits))
            ):
                if not (reclaim and self._grow(need)):
                    raise no_room_error(self._refused)
            elif not fits:
                self._roll_or_gather(need) if reclaim else self._roll(need)
        except Indeterminate as error:
            raise self._refusal() from error
        self._set_limit()

    def _may_take(self, need: int, *, fits: bool, urgent: bool, reclaim: bool) -> bool:
        """Return whether an append leaves the room reserved from it; one that does not fit takes a spare itself."""
        if not (urgent or reclaim):
            return self._spares.is_ready(self._room.kept + (not fits), least=self._room.spare_bytes(need))
        if not fits and not self._spares:
            return False
        return reclaim or self._leaves_room_to_reclaim(need, fits=fits)

    def _may_take_as_any(self, need: int, *, fits: bool) -> bool:
        """Return whether an urgent append, too long for the room that is kept for such, finds room as any append does:
        the disk may have plenty.
        """
        self._refill(self._room.kept + (not fits), least=self._room.spare_bytes(need))
        return self._may_take(need, fits=fits, urgent=False, reclaim=False)

    def _leaves_room_to_reclaim(self, need: int, *, fits: bool) -> bool:
        """Return whether any segment could still be emptied, if all in it were alive.

        A segment that was dropped counts as the spare that it becomes: none is emptied before its space is back.
        """
        spares = self._spares.sizes() + [spare_size(removal.used_bytes) for removal in self._removals]
        left = sum(map(self._room.usable_bytes, spares)) - need
        if fits:
            left += self._file_bytes - self._room.own_bytes - self._end
        return left >= (self._room.owed_bytes() if len(self._heads) > 1 else 0)

    def _grow(self, need: int) -> bool:
        """Make the segment longer where the disk has room for that, if not for another segment."""
        size = self._end + need + self._room.own_bytes
        try:
            if size <= OFFSET_MAX:
                self._disk.allocate(self._file, size)
                self._capacity = max(self._capacity, size)
                self._file_bytes = max(self._file_bytes, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._fail("making a segment longer", error)
        return self._capacity >= size

    def _roll_or_gather(self, need: int) -> None:
        """Roll for what reclaims space; where no spare is long enough by itself, make one room of several.

        The last spares are freed for the first one, and that for the segment being written. Where all of them together
        are too short, they stay.
        """
        try:
            self._roll(need)
            return
        except Overloaded:
            room = self._file_bytes - self._end + sum(self._spares.sizes()) + self._disk.free_bytes()
            if room < need + self._room.own_bytes:
                raise
        while len(self._spares) > 1:
            self._spares.shrink(len(self._spares) - 1)
            with suppress(Overloaded):
                self._roll(need)
                return
        self._spares.shrink(0)
        if not self._grow(need):
            raise no_room_error(self._refused)

    def _refill(self, count: int, *, least: int) -> None:
        """Try to have ``count`` spares of ``least`` bytes each; set ``crowded`` where the disk refuses.

        A disk that was full is not tried again before it has more room: a refusal costs as much as a success.
        """
        if self._spares.is_ready(count, least=least) or self._disk.free_bytes() <= self._refused_free_bytes:
            return
        try:
            self._spares.fill(count, least=least, after=self._heads[-1].number)
            self._refused_free_bytes, self.crowded = -1, False
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._fail("making a segment", error)
            self._refused, self.crowded = error, True
            if error.errno in (ENOSPC, EDQUOT):
                self._add_small_spares()
        self._set_limit()

    def _add_small_spares(self) -> None:
        """Make spares of what room a full disk has, as long as there are fewer than are kept."""
        while len(self._spares) < self._room.kept and self._spares.add_small(after=self._heads[-1].number):
            pass
        self._refused_free_bytes = self._disk.free_bytes()

    def _append_own(self, kind: int, body: bytes) -> None:
        """Append a frame of the log's own; it may use all room that is left."""
        need = HEADER_BYTES + len(body)
        if self._end + need > self._capacity:
            self._make_room(need, urgent=True, reclaim=True)
        self._join((kind, 0, body))

    def _append_seal(self) -> None:
        if self.crowded and self._end + HEADER_BYTES > self._capacity:
            raise no_room_error(self._refused)  # The room that is kept is for acks and for reclaiming.
        self._append_own(KIND_SEAL, b"")
        self._sealed_at = self._base + self._end

    def _is_sealed(self) -> bool:
        return self._base + self._written_end == self._sealed_at

    def _join(self, entry: Entry) -> None:
        self._pending[self._base + self._end] = entry
        self._end += HEADER_BYTES + len(entry[2])

    def _roll(self, need: int) -> None:
        """Roll to the next spare. It becomes a segment with the next sync, once everything before it is durable."""
        preamble = self._first_entries(self._heads[-1].number + 1)
        need += sum(HEADER_BYTES + len(body) for _, _, body in preamble)
        size = HEAD_BYTES + need + self._room.own_bytes
        spare = self._take_spare(size)
        try:
            head = self._begin(spare)
        except BaseException:
            self._disk.close(spare.file)
            raise
        self._rolls.append(Roll(head.number, self._file, old_end=self._end))
        self._last_offset, self._last_crc = 0, head.crc
        self._heads.append(head)
        self._closed_bytes += head.previous_end
        self._salts[head.number] = head.salt
        self._use(head, spare.file, end=HEAD_BYTES, capacity=max(size, min(spare.size, self._room.segment_bytes)))
        self._file_bytes = max(self._capacity, spare.size)
        for entry in preamble:
            self._join(entry)
        self._room.measure(self._heads, capacity=self._capacity)
        if self.crowded:
            self._add_small_spares()

    def _first_entries(self, number: int) -> list[Entry]:
        """Return the frames that a segment starts with: the features of the log, then what the broker repeats."""
        entries: list[Entry] = [(KIND_FEATURES, 0, self.features.pack())] if self.features.on else []
        if number > 1 and self.preamble is not None:
            entries += self.preamble()
        return entries

    def _begin(self, spare: Spare) -> Head:
        """Write what is pending into the segment before, and the head that follows from it into the new one."""
        self.write()
        before = self._heads[-1]
        head = Head(spare.number, self.pending_batch, before.log_id, self.epoch, self._end, self._last_crc)
        assert head.number == before.number + 1
        try:
            write_whole(self._disk, spare.file, head.pack(), offset=0)
        except OSError as error:
            self._fail("writing", error)
        return head

    def _take_spare(self, size: int) -> Spare:
        try:
            return self._spares.take(size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._fail("making a segment", error)
            raise no_room_error(error) from error

    def _fail(self, what: str, error: OSError | TenureError) -> NoReturn:
        """Turn read-only for good. Raises Indeterminate, as for every caller that waits for durability, or the error
        of the log's home.
        """
        if self.failed is None and isinstance(error, TenureError):
            self.failed = error
        elif self.failed is None:
            assert isinstance(error, OSError)
            why = error.strerror or error
            message = f"{what} failed: {why}. Whether the last batches are durable is unknown; the log is read-only."
            self.failed = Indeterminate(message, errno=error.errno)
        self._limit = -1
        raise self.failed from error

    def _check_ready(self) -> None:
        if self._closed or self.failed is not None or self._file == -1:
            raise self._refusal()

    def _refusal(self) -> Closed:
        if self._closed:
            return Closed("the log is closed: open it again", code="closed")
        if self.failed is not None:
            return Closed(f"Nothing is taken in any more: {self.failed.message}")
        return Closed("the log has not been replayed yet: exhaust replay() first", code="not_replayed")
