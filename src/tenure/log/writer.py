"""The writing half of the log: append to memory, write at once, sync together, fail for good.

``append`` only charges room and remembers; headers and checksums are built in ``write``, in one loop and one pwrite for
the whole batch. Room is charged against the allocated segment, so a full disk is met before anything happened (fault
12); part of each segment is kept for urgent appends, and a little for the log's own frames, because dropping a segment
has to be logged too.

A write or sync that fails is never tried again (fault 13): the kernel may have thrown the pages away and would report
success the second time. ``failed`` is set, appends are refused, reads go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from tenure.errors import Closed, Indeterminate, Invalid, Overloaded, TenureError
from tenure.log.disk import Disk, File, write_whole
from tenure.log.frame import HEADER_BYTES, KIND_SEAL, encode_batch
from tenure.log.home import Entry, Sync
from tenure.log.opening import NO_ROOM, no_room
from tenure.log.reader import SegmentFiles
from tenure.log.segment import HEAD_BYTES, SEGMENTS, SPARE, Head, prepare, segment_name
from tenure.log.syncing import FileSync, SyncGate

__all__ = ["OFFSET_MAX", "SegmentWriter"]

OFFSET_MAX = (1 << 32) - 1
_OWN_BYTES_MAX = 4096


class SegmentWriter:
    """Takes appends into the last segment and rolls to the next; :class:`~tenure.log.log.FileLog` adds the rest."""

    def __init__(
        self,
        disk: Disk,
        heads: list[Head],
        *,
        segment_bytes: int,
        reserve_bytes: int,
        handles_max: int,
    ) -> None:
        self.epoch = 0
        self.pending_batch = self.written_batch = self.synced_batch = 0
        self.failed: TenureError | None = None
        self.crowded = False
        self.preamble: Callable[[], Sequence[Entry]] | None = None
        self._disk = disk
        self._heads = heads
        self._salts = {head.number: head.salt for head in heads}
        self._segment_bytes, self._reserve_bytes = segment_bytes, reserve_bytes
        self._own_bytes = min(_OWN_BYTES_MAX, segment_bytes // 16)
        self._files = SegmentFiles(disk, handles_max=handles_max)
        self._gate = SyncGate(disk)
        self._closed = False
        self._dropped = 0
        #: Where the last seal ends: while the log ends there, it needs no other.
        self._sealed_at = -1
        # The segment being written. An append fits below _limit; -1 sends every append to the slow path.
        self._file: File = -1
        self._base = self._salt = 0
        self._end = self._written_end = self._last_offset = self._last_crc = 0
        self._capacity = 0
        self._limit = -1
        self._pending: dict[int, Entry] = {}

    def append(self, entries: Sequence[Entry], *, urgent: bool = False) -> list[int]:
        need = HEADER_BYTES * len(entries)
        for entry in entries:
            need += len(entry[2])
        if self._end + need > self._limit:
            self._make_room(need, urgent=urgent)
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
            self._make_room(need, urgent=urgent)
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

    def begin_sync(self) -> Sync:
        self._check_ready()
        segment = self._heads[-1].number
        self._files.pin(segment)
        file = self._file if self.written_batch > self.synced_batch else None
        return self._gate.begin(file, segment=segment, batch=self.written_batch)

    def end_sync(self, sync: Sync) -> int:
        assert isinstance(sync, FileSync)
        self._gate.end(sync)
        self._files.unpin(sync.segment)
        if self.failed is not None:
            raise self.failed
        if sync.error is not None:
            self._fail("syncing", sync.error)
        self.synced_batch = max(self.synced_batch, sync.batch)
        return self.synced_batch

    def sync(self) -> int:
        self._check_ready()
        self.write()
        if self.synced_batch < self.written_batch:
            self._sync_now()
        return self.synced_batch

    def seal(self) -> None:
        self.sync()
        if not self._sealed():
            self._append_seal()
            self.sync()

    def witness(self) -> bool:
        self._check_ready()
        if self._pending or self.synced_batch < self.written_batch or self._sealed():
            return False
        with suppress(Overloaded):
            self._append_seal()
            return True
        return False

    # How it is done.

    def _use(self, head: Head, file: File, *, end: int, capacity: int) -> None:
        """Write to this segment from now on."""
        self._files.adopt(head.number, file)
        self._files.pin(head.number)
        self.crowded = False
        self._file, self._base, self._salt = file, head.number << 32, head.salt
        self._end = self._written_end = end
        self._capacity = capacity
        self._limit = capacity - self._own_bytes - self._reserve_bytes
        self._pending = {}

    def _make_room(self, need: int, *, urgent: bool) -> None:
        """Let ``need`` bytes fit: by rolling, else for urgent ones from the reserve. Raises Overloaded, Closed."""
        self._check_ready()
        try:
            self._roll(need)
        except Overloaded:
            if not urgent or self._end + need > self._capacity - self._own_bytes:
                raise
        except Indeterminate as error:
            raise self._refusal() from error

    def _append_own(self, kind: int, body: bytes) -> None:
        """Append a frame of the log's own; it may use whatever room is left."""
        need = HEADER_BYTES + len(body)
        if self._end + need > self._capacity:
            self._roll(need)
        self._join((kind, 0, body))

    def _append_seal(self) -> None:
        self._append_own(KIND_SEAL, b"")
        self._sealed_at = self._base + self._end

    def _sealed(self) -> bool:
        return self._base + self._written_end == self._sealed_at

    def _join(self, entry: Entry) -> None:
        self._pending[self._base + self._end] = entry
        self._end += HEADER_BYTES + len(entry[2])

    def _roll(self, need: int) -> None:
        """Go on in a new segment. Everything before it is synced first, so its existence is a witness."""
        preamble = () if self.preamble is None else self.preamble()
        need += sum(HEADER_BYTES + len(body) for _, _, body in preamble)
        size = max(self._segment_bytes, HEAD_BYTES + need + self._reserve_bytes + self._own_bytes)
        if size > OFFSET_MAX:
            raise Invalid(f"{need} bytes in one append are more than a segment can hold")
        file = self._claim_room(size)
        try:
            self.write()
            self._sync_now()
            before = self._heads[-1]
            head = Head(before.number + 1, self.pending_batch, before.log_id, self.epoch, self._end, self._last_crc)
            self._publish(file, head)
        except BaseException:
            self._disk.close(file)
            raise
        old, old_end = self._file, self._end
        self._last_offset, self._last_crc = 0, head.crc
        self._heads.append(head)
        self._salts[head.number] = head.salt
        self._use(head, file, end=HEAD_BYTES, capacity=size)
        for entry in preamble:
            self._join(entry)
        with suppress(OSError):  # Only room is lost: the head of the next segment says where this one ends.
            self._disk.truncate(old, old_end)
        self._files.unpin(before.number)

    def _claim_room(self, size: int) -> File:
        try:
            return prepare(self._disk, size)
        except OSError as error:
            self._no_room(error)

    def _publish(self, file: File, head: Head) -> None:
        try:
            write_whole(self._disk, file, head.pack(), offset=0)
        except OSError as error:
            self._no_room(error)
        self._sync_now(file)
        try:
            self._disk.rename(SPARE, segment_name(head.number))
        except OSError as error:
            self._no_room(error)
        try:
            self._disk.sync_dir(SEGMENTS)
        except OSError as error:
            self._fail("syncing the directory", error)

    def _no_room(self, error: OSError) -> NoReturn:
        """Nothing has changed: tell a lack of room, which may pass, from a broken disk."""
        if error.errno not in NO_ROOM:
            self._fail("making a segment", error)
        with suppress(OSError):
            self._disk.unlink(SPARE)
        self.crowded = True
        raise no_room(error) from error

    def _sync_now(self, file: File | None = None) -> None:
        try:
            self._gate.sync_now(self._file if file is None else file)
        except OSError as error:
            self._fail("syncing", error)
        if file is None:
            self.synced_batch = self.written_batch

    def _fail(self, what: str, error: OSError) -> NoReturn:
        """Turn read-only for good. Raises what those who wait for durability are told."""
        if self.failed is None:
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
